"""A training step of stock DistributedDataParallel, as a peer: ddp_step.py RANKS MODEL ROWS [BACKEND] [THREADS]

MODEL is mlp60m (3072-4096-4096-4096-3328-10), the sizes of another multilayer perceptron joined by dashes, or
torchvision's alexnet (images of 3x224x224) or resnet18 (3x32x32); ROWS are those of one rank; BACKEND is gloo unless
given, none for replicas that exchange nothing, or alone for DistributedDataParallel with a communication hook that sends
nothing: what it costs by itself; THREADS are those of one rank, 1 unless given. SGD with momentum,
gradients as views of DDP's buckets. The first gradients are compared with those that one process finds for the rows of
all ranks. A request is `step REPEATS`; bench/peer.h has the protocol.
"""

import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ranks

SIZES = {"mlp60m": "3072-4096-4096-4096-3328-10"}


def perceptron(sizes):
    *hidden, last = [nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]
    return nn.Sequential(*(module for layer in hidden for module in (layer, nn.ReLU())), last)


def build(model):
    """The model, the shape of one of its rows, and its classes."""
    if model == "alexnet":
        import torchvision
        return torchvision.models.alexnet(dropout=0.0), (3, 224, 224), 1000
    if model == "resnet18":
        import torchvision
        return torchvision.models.resnet18(num_classes=10), (3, 32, 32), 10
    sizes = [int(size) for size in SIZES.get(model, model).split("-")]
    return perceptron(sizes), (sizes[0],), sizes[-1]


def send_nothing(_, bucket):
    done = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


class Step:
    def __init__(self, model, rows, backend):
        torch.manual_seed(0)
        self.net, shape, classes = build(model)
        inputs = [torch.randn(rows, *shape) for _ in range(dist.get_world_size())]
        labels = [torch.randint(0, classes, (rows,)) for _ in inputs]
        self.inputs, self.labels = inputs[dist.get_rank()], labels[dist.get_rank()]
        self.loss = nn.CrossEntropyLoss()
        if backend != "none":
            expected = self.mean_of_gradients(inputs, labels)
            self.net = DistributedDataParallel(self.net, gradient_as_bucket_view=True)
            if backend == "alone":
                self.net.register_comm_hook(None, send_nothing)
                self.net.require_forward_param_sync = False  # nor buffers
            else:
                self.verify(expected)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)

    def backward(self, inputs, labels):
        self.loss(self.net(inputs), labels).backward()

    def mean_of_gradients(self, inputs, labels):
        for rows in zip(inputs, labels):
            self.backward(*rows)
        means = [parameter.grad / len(inputs) for parameter in self.net.parameters()]
        self.net.zero_grad()
        return means

    def verify(self, expected):
        self.backward(self.inputs, self.labels)
        wrong = 0
        for parameter, mean in zip(self.net.parameters(), expected):
            close = torch.isclose(parameter.grad, mean, rtol=1e-4, atol=1e-4 * mean.abs().max().item())
            wrong += torch.count_nonzero(~close).item()
        ranks.refuse_wrong(wrong, "mean of the gradients")

    def step(self):
        self.optimizer.zero_grad()
        self.backward(self.inputs, self.labels)
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
    count, model, rows, *others = sys.argv[1:]
    backend = others[0] if others else "gloo"
    threads = int(others[1]) if len(others) > 1 else 1
    ranks.serve(int(count), "gloo" if backend in ("none", "alone") else backend, lambda: Step(model, int(rows), backend), threads)


if __name__ == "__main__":
    main()
