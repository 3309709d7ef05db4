"""Loads the extension `_C`, or says in one line why it cannot be loaded."""

import importlib
import types

from sumpter._build import TORCH_VERSION, VERSION

_REINSTALL = "pip install --no-build-isolation --force-reinstall --no-deps <checkout of sumpter>"


def release(version: str) -> str:
    """major.minor.patch of a version: what has to be equal. '2.13.0+cu130' and '2.13.0+cpu' have the same C++ interface."""
    return version.partition("+")[0]


def load() -> types.ModuleType:
    """The extension. ImportError, of one line, if torch is missing or another one, or a library cannot be loaded."""
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(
            f"sumpter {VERSION} was built against torch {TORCH_VERSION}, and there is no torch here: "
            f"install torch {release(TORCH_VERSION)}"
        ) from None
    if release(torch.__version__) != release(TORCH_VERSION):
        raise ImportError(
            f"sumpter {VERSION} was built against torch {TORCH_VERSION}, and the installed torch is {torch.__version__}: "
            f"install torch {release(TORCH_VERSION)}, or build sumpter anew: {_REINSTALL}"
        )
    try:
        return importlib.import_module("sumpter._C")
    except ImportError as error:
        reason = str(error).partition("\n")[0]
        raise ImportError(
            f"sumpter {VERSION}: its extension sumpter._C cannot be loaded ({reason}): build it anew: {_REINSTALL}"
        ) from None
