"""Trains a small network on Fashion-MNIST with DistributedDataParallel, on the CPU.

    torchrun --nproc-per-node 2 examples/ddp_fashion_mnist.py --backend sumpter
    torchrun --nproc-per-node 2 examples/ddp_fashion_mnist.py --backend gloo

An ordinary script: all that it knows of Sumpter is the backend's name. With --checkpoint FILE it writes one after every epoch
(and every --checkpoint-every steps); with --resume it goes on from there, with the same result as without the stop. Under
`torchrun --max-restarts 3` that is what becomes of a rank that dies.
"""

import argparse
import gzip
import os
import pathlib
import statistics
import time

import numpy
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="sumpter", choices=["sumpter", "gloo"])
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64, help="rows of one rank")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--rows", type=int, help="take only so many rows of each set")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=pathlib.Path)
    parser.add_argument("--checkpoint-every", type=int, help="steps; otherwise after each epoch")
    parser.add_argument("--resume", action="store_true", help="go on from --checkpoint, where it exists")
    return parser.parse_args()


def read_set(directory, prefix, rows):
    """Images scaled to [-1, 1] and labels, from the IDX files of the data set."""
    with gzip.open(directory / f"{prefix}-images-idx3-ubyte.gz") as file:
        images = numpy.frombuffer(file.read(), numpy.uint8, offset=16).reshape(-1, 1, 28, 28)[:rows]
    with gzip.open(directory / f"{prefix}-labels-idx1-ubyte.gz") as file:
        labels = numpy.frombuffer(file.read(), numpy.uint8, offset=8)[:rows]
    return TensorDataset(torch.from_numpy(images.astype(numpy.float32) / 127.5 - 1), torch.from_numpy(labels.astype(numpy.int64)))


def network():
    return nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
                         nn.Flatten(), nn.Linear(32 * 7 * 7, 256), nn.ReLU(), nn.Linear(256, 10))


def save(path, state):
    """Whole or not at all: a reader never sees half a checkpoint, even if this process is killed here."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def evaluate(model, data, rank, world_size):
    """Accuracy over the whole set; each rank takes every world_size-th row."""
    model.eval()
    images, labels = (tensor[rank::world_size] for tensor in data.tensors)
    correct = torch.zeros((), dtype=torch.int64)
    with torch.no_grad():
        for part, expected in zip(images.split(1000), labels.split(1000)):
            correct += (model(part).argmax(1) == expected).sum()
    dist.all_reduce(correct)
    model.train()
    return correct.item() / len(data)


def main():
    options = arguments()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group(options.backend)
    rank, world_size = dist.get_rank(), dist.get_world_size()

    training, test = (read_set(options.data, prefix, options.rows) for prefix in ("train", "t10k"))
    sampler = DistributedSampler(training, shuffle=True, seed=options.seed, drop_last=True)
    loader = DataLoader(training, options.batch_size, sampler=sampler, drop_last=True)
    torch.manual_seed(options.seed)
    model = DistributedDataParallel(network(), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), options.learning_rate, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    first_epoch, steps_done = 0, 0
    if options.resume and options.checkpoint and options.checkpoint.exists():
        state = torch.load(options.checkpoint, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first_epoch, steps_done = state["epoch"], state["step"]
        if rank == 0:
            print(f"resumed at epoch {first_epoch + 1}, step {steps_done}", flush=True)

    def checkpoint(epoch, step):
        if rank == 0 and options.checkpoint:
            save(options.checkpoint, {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(),
                                      "epoch": epoch, "step": step})

    for epoch in range(first_epoch, options.epochs):
        sampler.set_epoch(epoch)
        times, losses = [], []
        began = time.perf_counter()
        for step, (images, labels) in enumerate(loader):
            if step < steps_done:  # of this epoch, before the checkpoint
                continue
            optimizer.zero_grad()
            loss = loss_of(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if options.checkpoint_every and (step + 1) % options.checkpoint_every == 0:
                checkpoint(epoch, step + 1)
            times.append(time.perf_counter() - began)
            began = time.perf_counter()
        steps_done = 0
        checkpoint(epoch + 1, 0)
        accuracy = evaluate(model, test, rank, world_size)
        if rank == 0 and times:
            print(f"epoch {epoch + 1}: loss {statistics.mean(losses[-50:]):.4f}, accuracy {accuracy:.2%}, "
                  f"{1000 * statistics.median(times):.2f} ms a step ({options.backend}, {world_size} ranks)", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
