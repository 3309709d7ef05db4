"""The ranks of a torch.distributed peer, and the protocol that bench/peer.h describes.

Rank 0 is the program that is told to do rounds; it starts the others and passes every request on to them. All sleep in
a read between rounds. The first fault ends all of them.
"""

import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_others(ranks):
    """Starts ranks 1 to ranks-1 of this very program, which read requests from their standard input."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), GLOO_SOCKET_IFNAME="lo",
                      RANK="0", WORLD_SIZE=str(ranks))
    return [subprocess.Popen([sys.executable, *sys.argv], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                             env=os.environ | {"RANK": str(rank)}, text=True) for rank in range(1, ranks)]


def slowest(starts, ends):
    """Seconds of all runs together, each from the first rank's start to the last rank's end. perf_counter is one clock
    for all processes of a machine."""
    first, last = torch.tensor(starts, dtype=torch.float64), torch.tensor(ends, dtype=torch.float64)
    dist.all_reduce(first, op=dist.ReduceOp.MIN)
    dist.all_reduce(last, op=dist.ReduceOp.MAX)
    return (last - first).sum().item()


def refuse_wrong(wrong, what):
    """Raises ValueError on every rank where any of them has found wrong elements."""
    count = torch.tensor([wrong])
    dist.all_reduce(count)
    if count.item():
        raise ValueError(f"{what}: {count.item()} elements are wrong")


def one_line(error):
    return f"error {type(error).__name__}: {error}".replace("\n", " ")


def show_status():
    """What the backend says of itself, for people; it is asked only where that is sumpter."""
    import sumpter
    print(sumpter.status(), file=sys.stderr, flush=True)


def serve(ranks, backend, make, threads=1):
    """Runs this program as a peer of so many ranks with so many threads each. `make()`, called with the process group
    up, returns a function that does the request, given as a list of words, and returns its seconds, the same on every
    rank. The request `status 1` prints what the backend sumpter says of itself."""
    others = start_others(ranks) if "RANK" not in os.environ else []
    rank = int(os.environ["RANK"])

    def answer(text):
        if rank == 0:
            print(text, flush=True)

    def handle(line):
        for number, other in enumerate(others, start=1):
            try:
                print(line, end="", file=other.stdin, flush=True)
            except BrokenPipeError:
                raise RuntimeError(f"rank {number} has ended") from None
        words = line.split()
        if words[0] != "status":
            return do_request(words)
        if rank == 0:
            show_status()
        return 0.0

    try:
        torch.set_num_threads(threads)
        dist.init_process_group(backend)
        do_request = make()
        dist.barrier()
        answer("ready")
        for line in sys.stdin:
            answer(f"{handle(line):.9f}")
    except Exception as error:  # whatever it is, it is what this peer has to say
        answer(one_line(error))
        if rank != 0:
            print(f"rank {rank}: {one_line(error)}", file=sys.stderr)
        sys.exit(1)
    for other in others:
        other.stdin.close()
    dist.destroy_process_group()
    for other in others:
        other.wait(timeout=60)
