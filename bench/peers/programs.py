"""The command lines of the peers, for those who start them; builds what has to be built.

Each function returns a list of words. `ranks` is a number or its text.
"""

import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "peers"
COMMAND = ROOT / "build" / "release" / "bin" / "sumpter"
PACKAGE = ROOT / "build" / "release" / "python"  # where the build leaves the Python package


class Missing(Exception):
    """Something that a peer needs is not here; the message says what to do."""


def build_mpi(kind, compiler):
    if shutil.which(compiler) is None:
        raise Missing(f"{kind} needs {compiler}, which is not here: tools/setup peers installs it")
    BUILD.mkdir(parents=True, exist_ok=True)
    program, source = BUILD / kind, HERE / "mpi_all_reduce.cpp"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        # The C++ bindings of old MPI standards, which its headers may hold, are not used.
        subprocess.run([compiler, "-std=c++20", "-O3", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", "-Wall", "-Wextra",
                        str(source), "-o", str(program)], check=True)
    return program


def open_mpi(ranks):
    program = build_mpi("open-mpi", "mpicxx.openmpi")
    return ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), program]


def mpich(ranks):
    return ["mpiexec.mpich", "-n", str(ranks), build_mpi("mpich", "mpicxx.mpich")]


def torch_collectives(ranks, backend="gloo"):
    return [sys.executable, HERE / "torch_collectives.py", str(ranks), backend]


def ddp_step(ranks, model, rows, backend, threads=1):
    return [sys.executable, HERE / "ddp_step.py", str(ranks), model, str(rows), backend, str(threads)]


def ping(command=COMMAND):
    return [command, "bench", "ping"]


def with_package(folder):
    """Environment in which torch finds the backend sumpter in this folder; what is installed, where it is None."""
    if folder is None:
        return {}
    if not (pathlib.Path(folder) / "sumpter").is_dir():
        raise Missing(f"{folder} has no package sumpter: run make build, or name another folder by --package")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH", "")]))}
