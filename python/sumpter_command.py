"""The command `sumpter`: runs the program that the package brings.

A module beside the package, because importing the package loads torch, which takes a second that the program does not need.
"""

import importlib.metadata
import importlib.util
import os
import pathlib
import runpy
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Becomes the program, with this process's arguments. Exit status 1 and one line if that cannot be."""
    site = pathlib.Path(__file__).absolute().parent
    program = site / "sumpter" / "bin" / "sumpter"
    _check_torch(runpy.run_path(str(site / "sumpter" / "_build.py"))["TORCH_VERSION"])
    try:
        os.execve(program, [str(program), *sys.argv[1:]], _environment(site))
    except OSError as error:
        sys.exit(f"sumpter: error: {program} cannot be run: {error.strerror}. Install the package anew.")


def _check_torch(wanted: str) -> None:
    try:
        found = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        sys.exit(f"sumpter: error: built against torch {wanted}, and no torch is installed here.")
    if found.partition("+")[0] != wanted.partition("+")[0]:
        sys.exit(f"sumpter: error: built against torch {wanted}, and the installed torch is {found}. Build sumpter anew.")


def _environment(site: pathlib.Path) -> dict[str, str]:
    """This process's, and where torch's libraries lie when that is not beside the package, where the program looks."""
    environment = dict(os.environ)
    torch = importlib.util.find_spec("torch")
    if torch is not None and torch.origin is not None:
        libraries = pathlib.Path(torch.origin).resolve().parent / "lib"
        if libraries != (site / "torch" / "lib").resolve():
            paths = [str(libraries), environment.get("LD_LIBRARY_PATH", "")]
            environment["LD_LIBRARY_PATH"] = ":".join(path for path in paths if path)
    return environment


if __name__ == "__main__":
    main()
