"""What the tests share: the program and ways to run it, and the Python package for this process and those it starts."""

import os
import pathlib
import sys

import pytest
from command import BINARY, ROOT, Command

PACKAGE = pathlib.Path(os.environ.get("SUMPTER_PYTHONPATH", ROOT / "build" / "release" / "python"))

# Before any test imports torch, which then finds the backend.
if str(PACKAGE) not in sys.path:
    sys.path.insert(0, str(PACKAGE))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PACKAGE), os.environ.get("PYTHONPATH", "")]))


def pytest_configure(config):
    config.addinivalue_line("markers", "prove: long checks, which `make prove` runs")


@pytest.fixture
def sumpter(tmp_path):
    if not BINARY.exists():
        pytest.fail(f"{BINARY} is not there: build it, or name another by SUMPTER_BIN")
    return Command(tmp_path)


@pytest.fixture
def refused(sumpter):
    """Runs a wrong request and returns the one line that it answers with."""

    def run(*arguments, **kwargs):
        done = sumpter.train(*arguments, **kwargs)
        assert done.returncode == 2, (done.returncode, done.stderr)
        assert done.stdout == ""
        lines = done.stderr.splitlines()
        assert len(lines) == 1, lines
        assert lines[0].startswith("sumpter: error: ")
        return lines[0]

    return run


@pytest.fixture
def extension():
    """The Python package with its extension; a test that needs it fails, and is not left out, where it was not built."""
    if not any(file.suffix != ".pyi" for file in (PACKAGE / "sumpter").glob("_C.*")):
        pytest.fail(f"{PACKAGE}/sumpter has no extension: build the target sumpter_python, or name a package by SUMPTER_PYTHONPATH")
    import sumpter

    return sumpter
