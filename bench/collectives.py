"""Collectives of float32 through torch.distributed: sumpter in turns with gloo and MPI (`make bench-collectives`).

all_reduce is measured in place (a tensor from the backend's own allocator) and staged (any other tensor), against gloo,
Open MPI and MPICH, the others on any tensor against gloo. A peer's ratio is its time over ours: 3 means that ours is
three times as fast. Small sizes are timed as a sequence of operations between two looks at the clock, large ones one by
one, each on rewritten input; column `timed` says which. Times contain what a call through torch's Python costs, the
same on both sides; MPI is called from C++.
"""

import argparse
import contextlib
import sys

from options import make_parser, turns_of
from peer import Fault, Peer
from peers import programs
from report import Goal, Report, describe_bytes, parse_bytes
from turns import Contender, compare

SIZES = "4KiB,64KiB,1MiB,4MiB,16MiB,64MiB,256MiB"
OPERATIONS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter")
SEQUENCE_BELOW = 2**20  # bytes: below, a barrier before each operation would cost as much as the operation
SMALL, LARGE = 2**12, 2**24  # where the goals of all_reduce lie
TRIPS = 400  # of a cache line, before each turn
TURN = 0.01  # seconds: hundreds of small operations
IN_PLACE, STAGED, OURS, GLOO = "in-place", "staged", "sumpter", "gloo"


def is_sequence(size):
    return size < SEQUENCE_BELOW


def request(size, *words):
    return " ".join([*words, *(["sequence"] if is_sequence(size) else []), str(size)])


def contenders_of(operation, size, ours, gloo, others):
    """ours, gloo: peers; others: those of MPI, which know all_reduce only."""
    def contender(name, peer, words, against=()):
        return Contender(name, peer.job(request(size, *words)), size, against)

    if operation != "all_reduce":
        return [contender(OURS, ours, (operation,)), contender(GLOO, gloo, (operation,), (OURS,))]
    both = (IN_PLACE, STAGED)
    return [contender(IN_PLACE, ours, (operation, "arena")), contender(STAGED, ours, (operation,)),
            contender(GLOO, gloo, (operation,), both), *(contender(peer.name, peer, (), both) for peer in others)]


def goals(measured):
    """What is asked of what was measured: pairs of an operation and one of its figures."""
    ratios = {}  # times as fast as gloo: {(operation, ours): {bytes: ratio}}
    for operation, figure in measured:
        if figure.name == GLOO:
            ratios.setdefault((operation, figure.against), {})[figure.bytes] = figure.ratio

    found = []

    def ask(operation, ours, least, counts, where):
        counted = {size: ratio for size, ratio in ratios.get((operation, ours), {}).items() if counts(size)}
        if counted:
            worst = min(counted, key=counted.get)
            times = "" if least == 1 else f"{least} times "
            found.append(Goal(f"{operation} {ours}, {where}: at least {times}as fast as gloo",
                              f"{counted[worst]:.2f} at {describe_bytes(worst)}", counted[worst] >= least))

    for ours in (IN_PLACE, STAGED):
        ask("all_reduce", ours, 10, lambda size: size == SMALL, describe_bytes(SMALL))
    ask("all_reduce", IN_PLACE, 3, lambda size: size >= LARGE, f"{describe_bytes(LARGE)} and more")
    ask("all_reduce", STAGED, 1.5, lambda size: size >= LARGE, f"{describe_bytes(LARGE)} and more")
    for operation in OPERATIONS[1:]:
        ask(operation, OURS, 1, lambda size: True, "every size")
    return found


def bench(options, report):
    """Prints the figures and returns them, in pairs with their operations."""
    commands = {OURS: (programs.torch_collectives(options.ranks, "sumpter"), programs.with_package(options.package)),
                GLOO: (programs.torch_collectives(options.ranks, "gloo"), {})}
    if options.mpi and "all_reduce" in options.operations:
        commands |= {"open-mpi": (programs.open_mpi(options.ranks), {}), "mpich": (programs.mpich(options.ranks), {})}
    commands["ping"] = programs.ping(options.command), {}

    measured = []
    with contextlib.ExitStack() as stack:
        peers = {name: stack.enter_context(Peer(name, *how)) for name, how in commands.items()}
        ours, gloo, ping = (peers.pop(name) for name in (OURS, GLOO, "ping"))
        turns = turns_of(options, turn_seconds=TURN, ping=lambda: ping.round("trip", TRIPS) / TRIPS)
        for operation in options.operations:
            for size in options.sizes:
                figures = compare(contenders_of(operation, size, ours, gloo, peers.values()), turns)
                report.add(operation, figures)
                measured += [(operation, figure) for figure in figures]
        if options.status:
            ours.round("status", 1)
    return measured


def parse_sizes(text):
    try:
        return [parse_bytes(size) for size in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def parse_operations(text):
    if unknown := [name for name in text.split(",") if name not in OPERATIONS]:
        raise argparse.ArgumentTypeError(f"'{unknown[0]}' is not one of {', '.join(OPERATIONS)}")
    return text.split(",")


def main():
    parser = make_parser("collectives", __doc__, seconds=3)
    parser.add_argument("--operations", type=parse_operations, default=",".join(OPERATIONS), help="%(default)s")
    parser.add_argument("--sizes", type=parse_sizes, default=SIZES, help="bytes of the larger tensor: %(default)s")
    parser.add_argument("--no-mpi", dest="mpi", action="store_false", help="without Open MPI and MPICH")
    parser.add_argument("--command", default=programs.COMMAND, help="the sumpter that measures the cache line's trips")
    options = parser.parse_args()

    report = Report(options.json, [
        ("timed", lambda figure: "sequence" if is_sequence(figure.bytes) else "one by one"),
        ("algbw", lambda figure: f"{1e-9 * figure.bytes / figure.seconds:.2f} GB/s")])
    try:
        measured = bench(options, report)
    except (Fault, programs.Missing) as error:
        sys.exit(f"bench/collectives.py: {error}")
    report.add_goals(goals(measured))


if __name__ == "__main__":
    main()
