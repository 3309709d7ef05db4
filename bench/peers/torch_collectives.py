"""Collectives of torch.distributed on float32, as a peer: torch_collectives.py RANKS [BACKEND]

A request is `[OPERATION] [arena] [sequence] BYTES REPEATS` (bench/peer.h has the protocol). OPERATION is all_reduce
unless given, broadcast, all_gather or reduce_scatter; BYTES are those of the larger tensor, which all_gather writes and
reduce_scatter reads. `arena`: the tensors come from the backend's own allocator. Each operation is timed for itself,
its input rewritten before it as a backward pass does; in a `sequence` they follow each other, and nothing lies between.
"""

import sys
import time

import torch
import torch.distributed as dist

import ranks

# As newer versions of torch call them; the old names warn there.
all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def pattern(count, factor):
    return (torch.arange(count) % 7 + 1).float() * factor


class Collective:
    """One operation on tensors of its own. `input` is what is rewritten, `result` what is verified."""

    def __init__(self, empty, count):
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.count = count
        self.make(empty)

    def share(self):
        if self.count % self.ranks:
            raise ValueError(f"{self.count} float32 are not the same number for each of {self.ranks} ranks")
        return self.count // self.ranks

    def make(self, empty):
        self.input = self.result = empty(self.count)

    def sum(self):
        return pattern(self.count, self.ranks * (self.ranks + 1) // 2)

    def verify(self, what):
        self.input.copy_(pattern(self.input.numel(), self.rank + 1))
        self.run()
        ranks.refuse_wrong(torch.count_nonzero(self.result != self.expected()).item(), what)


class AllReduce(Collective):
    def run(self):
        dist.all_reduce(self.input)

    def expected(self):
        return self.sum()


class Broadcast(Collective):
    def run(self):
        dist.broadcast(self.input, 0)

    def expected(self):
        return pattern(self.count, 1)


class AllGather(Collective):
    def make(self, empty):
        self.input, self.result = empty(self.share()), empty(self.count)

    def run(self):
        all_gather(self.result, self.input)

    def expected(self):
        return torch.cat([pattern(self.share(), rank + 1) for rank in range(self.ranks)])


class ReduceScatter(Collective):
    def make(self, empty):
        self.input, self.result = empty(self.count), empty(self.share())

    def run(self):
        reduce_scatter(self.result, self.input)

    def expected(self):
        return self.sum()[self.rank * self.share():(self.rank + 1) * self.share()]


OPERATIONS = {"all_reduce": AllReduce, "broadcast": Broadcast, "all_gather": AllGather, "reduce_scatter": ReduceScatter}


def empty_in_arena(count):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    return backend.allocate_tensor(count, dtype=torch.float32, device=torch.device("cpu"))


class Collectives:
    """Does requests; keeps the tensors of one operation and size, which its contenders take turns with."""

    def __init__(self):
        self.size, self.collectives = None, {}

    def __call__(self, words):
        *options, size, repeats = words
        collective = self.collective(options, int(size))
        run_all = self.sequence if "sequence" in options else self.one_by_one
        return ranks.slowest(*run_all(collective, int(repeats)))

    def collective(self, options, size):
        names = [option for option in options if option not in ("arena", "sequence")] or ["all_reduce"]
        if len(names) > 1 or names[0] not in OPERATIONS:
            raise ValueError(f"'{' '.join(names)}' is not one of {', '.join(OPERATIONS)}")
        if self.size != (names[0], size):
            self.size, self.collectives = (names[0], size), {}
        memory = "arena" if "arena" in options else "torch.empty"
        if memory not in self.collectives:
            empty = empty_in_arena if memory == "arena" else torch.empty
            self.collectives[memory] = OPERATIONS[names[0]](empty, size // 4)
            self.collectives[memory].verify(f"{names[0]} of {size} bytes in {memory}")
        return self.collectives[memory]

    def one_by_one(self, collective, repeats):
        starts, ends = [], []
        for _ in range(repeats):
            collective.input.fill_(collective.rank + 1)
            dist.barrier()
            starts.append(time.perf_counter())
            collective.run()
            ends.append(time.perf_counter())
        return starts, ends

    def sequence(self, collective, repeats):
        collective.input.zero_()  # whose sums stay what they are
        dist.barrier()
        start = time.perf_counter()
        for _ in range(repeats):
            collective.run()
        return [start], [time.perf_counter()]


if __name__ == "__main__":
    ranks.serve(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "gloo", Collectives)
