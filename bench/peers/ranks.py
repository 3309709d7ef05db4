"""The ranks of a torch.distributed peer, and the protocol that bench/peer.h describes.

Rank 0 is the program that is told to do rounds; it starts the others and passes every request on to them. All sleep in a
read between rounds.
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
    """Starts ranks 1 to ranks-1 of this very program; returns the streams that they read requests from."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()), GLOO_SOCKET_IFNAME="lo",
                      RANK="0", WORLD_SIZE=str(ranks))
    others = []
    for rank in range(1, ranks):
        process = subprocess.Popen([sys.executable, *sys.argv], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                   env=os.environ | {"RANK": str(rank)}, text=True)
        others.append(process.stdin)
    return others


def slowest(starts, ends):
    """Seconds of all runs together, each from the first rank's start to the last rank's end. perf_counter is one clock
    for all processes of a machine."""
    first, last = torch.tensor(starts, dtype=torch.float64), torch.tensor(ends, dtype=torch.float64)
    if dist.is_initialized():
        dist.all_reduce(first, op=dist.ReduceOp.MIN)
        dist.all_reduce(last, op=dist.ReduceOp.MAX)
    return (last - first).sum().item()


def serve(ranks, backend, make):
    """Runs this program as a peer of so many ranks. `make()`, called with the process group up, returns a function that
    does the request, given as a list of words, and returns its seconds, the same on every rank."""
    others = start_others(ranks) if "RANK" not in os.environ else []
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    do_request = make()
    dist.barrier()
    if rank == 0:
        print("ready", flush=True)
    for line in sys.stdin:
        for other in others:
            print(line, end="", file=other, flush=True)
        try:
            answer = f"{do_request(line.split()):.9f}"
        except (RuntimeError, ValueError) as error:
            answer = f"error {error}".replace("\n", " ")
        if rank == 0:
            print(answer, flush=True)
    for other in others:
        other.close()
    dist.destroy_process_group()
