"""Compares Sumpter's exchange with Gloo, Open MPI and MPICH: run.py [--command PATH] [--peers a,b] [options of the bench]

Builds what has to be built and starts `sumpter bench exchange` with each of them as a peer, so that all take turns, size
by size, within one run. A peer's ratio is its time over ours: 3 means that ours is three times as fast. Other options,
such as --members, --sizes, --seconds or --json, go to the bench.
"""

import argparse
import pathlib
import shlex
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "peers"


def build_mpi(kind, compiler):
    if shutil.which(compiler) is None:
        sys.exit(f"run.py: {kind} needs {compiler}, which is not here: tools/setup peers installs it")
    BUILD.mkdir(parents=True, exist_ok=True)
    program, source = BUILD / kind, HERE / "mpi_all_reduce.cpp"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        # The C++ bindings of old MPI standards, which its headers may hold, are not used.
        subprocess.run([compiler, "-std=c++20", "-O3", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX", "-Wall", "-Wextra",
                        str(source), "-o", str(program)], check=True)
    return program


def open_mpi(members):
    program = build_mpi("open-mpi", "mpicxx.openmpi")
    return ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", members, program]


def mpich(members):
    return ["mpiexec.mpich", "-n", members, build_mpi("mpich", "mpicxx.mpich")]


def gloo(members):
    return [sys.executable, HERE / "gloo_all_reduce.py", members]


PEERS = {"gloo": gloo, "open-mpi": open_mpi, "mpich": mpich}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=ROOT / "build" / "release" / "bin" / "sumpter", help="the sumpter to measure")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"which, of {', '.join(PEERS)}")
    parser.add_argument("--members", default="2")
    options, others = parser.parse_known_args()

    command = [str(options.command), "bench", "exchange", "--members", options.members, *others]
    for name in options.peers.split(","):
        if name not in PEERS:
            parser.error(f"unknown peer '{name}'; there are {', '.join(PEERS)}")
        command += ["--peer", f"{name}={shlex.join(map(str, PEERS[name](options.members)))}"]
    sys.exit(subprocess.run(command).returncode)


if __name__ == "__main__":
    main()
