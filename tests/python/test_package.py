"""The package in the build tree is what a wheel of it would be, and its command is the program."""

import importlib.metadata
import subprocess
import sys

import pytest
from command import BINARY, ROOT
from scripts import PACKAGE, run_script

from sumpter_command import _check_torch

VERSION = "0.1.0"


def test_metadata_is_that_of_a_wheel():
    tomllib = pytest.importorskip("tomllib")  # Python 3.11
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tree = importlib.metadata.Distribution.at(PACKAGE / f"sumpter-{VERSION}.dist-info")
    assert (tree.metadata["Name"], tree.version) == (project["name"], VERSION)
    found = {(point.group, point.name, point.value) for point in tree.entry_points}
    wanted = {("console_scripts", *item) for item in project["scripts"].items()}
    wanted |= {(group, *item) for group, points in project["entry-points"].items() for item in points.items()}
    assert found == wanted


def test_versions(extension):
    from sumpter import _build, _C

    assert extension.__version__ == VERSION
    assert _C.TORCH_VERSION == _build.TORCH_VERSION


def test_the_stub_names_what_the_extension_has(extension):
    import ast

    from sumpter import _C

    stub = ast.parse((PACKAGE / "sumpter" / "_C.pyi").read_text())
    names = {node.name for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))} | {"TORCH_VERSION"}
    assert names == {
        "Options", "Choice", "create", "choice", "status", "compressed_all_reduce", "TORCH_VERSION",
    }
    assert all(hasattr(_C, name) for name in names)
    options = next(node for node in stub.body if getattr(node, "name", "") == "Options")
    options.body = [node for node in options.body if isinstance(node, ast.FunctionDef)]
    fields = {node.name for node in options.body} - {"__init__"}
    assert fields == {arg.arg for node in options.body if node.name == "__init__" for arg in node.args.kwonlyargs}
    assert all(hasattr(_C.Options(), field) for field in fields), fields


def test_public_names(extension):
    assert sorted(extension.__all__) == ["Member", "Options", "Status", "__version__", "hooks", "status"]
    assert all(hasattr(extension, name) for name in extension.__all__)


def run_command(*line):
    return subprocess.run([sys.executable, *line], capture_output=True, text=True, timeout=120)


def test_the_command_is_the_program(sumpter):
    program = sumpter("models")
    assert program.returncode == 0
    command = run_command("-m", "sumpter_command", "models")
    assert (command.returncode, command.stdout, command.stderr) == (0, program.stdout, program.stderr)


def test_the_command_passes_the_exit_status_on(sumpter):
    assert run_command("-m", "sumpter_command", "train", "--replicas").returncode == 2


def test_python_m_is_the_command(sumpter, extension):
    assert run_command("-m", "sumpter", "--version").stdout == f"sumpter {VERSION}\n"


def test_the_command_loads_no_torch():
    script = "import sys, sumpter_command; print([name for name in ('torch', 'sumpter') if name in sys.modules])"
    assert run_script(script).stdout == "[]\n"


def test_the_command_refuses_another_torch(capsys):
    found = importlib.metadata.version("torch")
    with pytest.raises(SystemExit) as ended:
        _check_torch("1.2.3+cpu")
    assert ended.value.code == (
        f"sumpter: error: built against torch 1.2.3+cpu, and the installed torch is {found}. Build sumpter anew."
    )


def test_a_program_that_is_not_there(tmp_path):
    for name in ("sumpter_command.py", "sumpter/_build.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((PACKAGE / name).read_bytes())
    done = run_script("import sumpter_command; sumpter_command.main()", path=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"sumpter: error: {tmp_path}/sumpter/bin/sumpter cannot be run: No such file or directory. Install the package anew.\n"
    )


def test_a_build_without_torch_says_so(tmp_path):
    # What pip's build isolation is to CMake: a Python that has no torch.
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} -S -I \"$@\"\n")
    python.chmod(0o755)
    line = ["cmake", "-S", ROOT, "-B", tmp_path / "build", "-G", "Ninja", "-DSKBUILD=2", f"-DPython_EXECUTABLE={python}"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    words = " ".join(done.stderr.split())
    assert (
        "torch is not there: sumpter is built against the torch of the environment that it is installed into. Install torch "
        "2.11 to 2.15 and scikit-build-core there, then: pip install --no-build-isolation . (without the option pip builds "
        "where that torch is not seen)"
    ) in words
