"""A training step of stock DistributedDataParallel, as a peer of `sumpter bench train`: ddp_step.py RANKS MODEL ROWS [BACKEND]

MODEL is mlp60m (3072-4096-4096-4096-3328-10) or the sizes of another multilayer perceptron, joined by dashes; ROWS are
those of one rank; BACKEND is gloo unless given, or none for replicas that exchange nothing. One thread per rank, SGD with
momentum, gradients as views of DDP's buckets. A request is `step REPEATS`; bench/peer.h has the protocol.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ranks

MODELS = {"mlp60m": "3072-4096-4096-4096-3328-10"}


def perceptron(sizes):
    *hidden, last = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]
    return nn.Sequential(*(module for layer in hidden for module in (layer, nn.ReLU())), last)


class Step:
    def __init__(self, model, rows, backend):
        torch.manual_seed(0)
        sizes = [int(size) for size in MODELS.get(model, model).split("-")]
        net = perceptron(sizes)
        self.net = net if backend == "none" else DistributedDataParallel(net, gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
        self.loss = nn.CrossEntropyLoss()
        self.inputs = torch.randn(rows, sizes[0])
        self.labels = torch.randint(0, sizes[-1], (rows,))

    def step(self):
        self.optimizer.zero_grad()
        self.loss(self.net(self.inputs), self.labels).backward()
        self.optimizer.step()

    def __call__(self, words):
        starts, ends = [], []
        for _ in range(int(words[-1])):
            dist.barrier()
            starts.append(time.perf_counter())
            self.step()
            ends.append(time.perf_counter())
        return ranks.slowest(starts, ends)


def main():
    count, model, rows, *backend = sys.argv[1:]
    backend = backend[0] if backend else "gloo"
    ranks.serve(int(count), "gloo" if backend == "none" else backend, lambda: Step(model, int(rows), backend))


if __name__ == "__main__":
    main()
