"""Compares Sumpter's exchange with Gloo, Open MPI and MPICH: run.py [--command PATH] [--peers a,b] [bench's options]

Builds what has to be built and starts `sumpter bench exchange` with each of them as a peer, so that all take turns,
size by size, within one run. A peer's ratio is its time over ours: 3 means that ours is three times as fast. Other
options, such as --members, --sizes, --seconds or --json, go to the bench.
"""

import argparse
import shlex
import subprocess
import sys

import programs

PEERS = {"gloo": programs.torch_collectives, "open-mpi": programs.open_mpi, "mpich": programs.mpich}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", default=programs.COMMAND, help="the sumpter to measure")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"which, of {', '.join(PEERS)}")
    parser.add_argument("--members", default="2")
    options, others = parser.parse_known_args()

    command = [str(options.command), "bench", "exchange", "--members", options.members, *others]
    for name in options.peers.split(","):
        if name not in PEERS:
            parser.error(f"unknown peer '{name}'; there are {', '.join(PEERS)}")
        try:
            command += ["--peer", f"{name}={shlex.join(map(str, PEERS[name](options.members)))}"]
        except programs.Missing as error:
            sys.exit(f"run.py: {error}")
    sys.exit(subprocess.run(command).returncode)


if __name__ == "__main__":
    main()
