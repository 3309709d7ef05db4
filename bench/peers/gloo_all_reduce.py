"""Gloo's in-place float32 all-reduce, by way of torch, as a peer of `sumpter bench exchange`: gloo_all_reduce.py RANKS

A request is BYTES REPEATS; bench/peer.h has the protocol.
"""

import sys
import time

import torch
import torch.distributed as dist

import ranks


class AllReduce:
    def __init__(self):
        self.values = torch.empty(0)

    def __call__(self, words):
        count, repeats = int(words[0]) // 4, int(words[1])
        if self.values.numel() != count:
            self.values = torch.empty(count)
            self.verify()
        starts, ends = [], []
        for _ in range(repeats):
            self.values.fill_(dist.get_rank() + 1)  # as a backward pass rewrites gradients
            dist.barrier()
            starts.append(time.perf_counter())
            dist.all_reduce(self.values)
            ends.append(time.perf_counter())
        return ranks.slowest(starts, ends)

    def verify(self):
        pattern = (torch.arange(self.values.numel()) % 7 + 1).float()
        self.values.copy_(pattern * (dist.get_rank() + 1))
        dist.all_reduce(self.values)
        size = dist.get_world_size()
        if not torch.equal(self.values, pattern * (size * (size + 1) // 2)):
            raise ValueError("the sum is wrong")


if __name__ == "__main__":
    ranks.serve(int(sys.argv[1]), "gloo", AllReduce)
