"""Every collective of torch.distributed as a case: what a rank passes, what it calls, and what must come out.

A case is asked of one group and answers with tensors. What they must hold is computed here, on plain tensors, for all ranks,
so that neither backend is believed. Values are small integers: sums, products and means of them are exact in every type.
"""

import dataclasses
import functools
import math
import operator

import torch
import torch.distributed as dist

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int64, torch.int32, torch.uint8, torch.int8]
REDUCED = [*FLOATS, *INTEGERS, torch.bool]
MOVED = [*REDUCED, torch.int16, torch.complex64]
REDUCTIONS = ["SUM", "AVG", "MIN", "MAX", "PRODUCT", "BAND", "BOR", "BXOR"]
# Shapes by layout: a few elements; more than 16 KiB of float32, a multiple of nothing; more than 1 MiB.
SHAPES = {
    "contiguous": [(5,), (6007,), (300_007,)],
    "offset": [(5,), (6007,), (300_007,)],
    "strided": [(5,), (6007,), (300_007,)],
    "transposed": [(3, 2), (77, 79), (577, 523)],
    "channels_last": [(2, 3, 2, 2), (2, 3, 33, 31), (2, 3, 251, 239)],
    "expanded": [(3, 2), (77, 79), (577, 523)],
    "by_rank": [(3, 2), (77, 79), (577, 523)],  # contiguous on even ranks, transposed on odd ones
    "empty": [(0,), (0, 3), (2, 0, 5)],
    "scalar": [()],
}


class MustRaise(Exception):
    """There is no right answer: the type has no such reduction, or the shapes do not fit."""


@dataclasses.dataclass
class Case:
    rank: int
    size: int
    dtype: torch.dtype
    layout: str
    shape: tuple
    reduction: str = "SUM"

    def values(self, rank, salt=0, shape=None):
        """What a rank passes, as a plain tensor; `salt` tells the tensors of a list apart."""
        shape = self.shape if shape is None else shape
        count = math.prod(shape)
        row = count // shape[0] if self.layout == "expanded" and count else count
        index = torch.arange(row)
        if self.dtype == torch.bool:
            plain = ((index + salt) // (rank + 1)) % 2 == 0
        else:
            lowest = 0 if self.dtype == torch.uint8 else -2
            plain = ((index * 7 + rank * 3 + salt) % 5 + lowest).to(self.dtype)
            if self.dtype.is_complex:
                plain = plain * (1 + 2j)
        return plain.expand(shape[0], row).reshape(shape) if row != count else plain.view(shape)

    def place(self, plain):
        """A tensor of the case's layout with these values. A backend that ignores strides stays within its storage."""
        storage = torch.zeros(2 * plain.numel() + 16, dtype=plain.dtype)
        if self.layout == "offset":
            placed = storage[3 : 3 + plain.numel()].view(plain.shape)
        elif self.layout == "strided":
            placed = storage[: 2 * plain.numel()].view(*plain.shape, 2)[..., 0]
        elif self.layout == "transposed" or self.layout == "by_rank" and self.rank % 2:
            dimensions = range(plain.dim())
            placed = torch.empty(plain.shape[::-1], dtype=plain.dtype).permute(*reversed(dimensions))
        elif self.layout == "channels_last" and plain.dim() == 4:
            placed = torch.empty(plain.shape, dtype=plain.dtype, memory_format=torch.channels_last)
        elif self.layout == "expanded":
            row = storage[: plain.shape[1]].copy_(plain[0])
            return row.expand(plain.shape)
        else:
            placed = torch.empty(plain.shape, dtype=plain.dtype)
        return placed.copy_(plain)

    def blank(self, shape=None):
        """An output of the case's layout, filled with something that no result is."""
        shape = self.shape if shape is None else shape
        return self.place(torch.full(shape, True if self.dtype == torch.bool else 77, dtype=self.dtype))

    def joint_blank(self, shape):
        """An output that holds what several ranks sent: not expanded, which would be one place for many values."""
        return self.blank(shape) if self.layout != "expanded" else torch.full(shape, 77, dtype=torch.int64).to(self.dtype)

    def mine(self, salt=0, shape=None):
        return self.place(self.values(self.rank, salt, shape))

    def all(self, salt=0, shape=None):
        return [self.values(rank, salt, shape) for rank in range(self.size)]

    @property
    def op(self):
        return getattr(dist.ReduceOp, self.reduction)

    def reduced(self, tensors):
        return reduced(tensors, self.reduction)


def reduced(tensors, reduction):
    """Tensors of all ranks reduced as torch defines it: exactly, then brought into their type."""
    dtype = tensors[0].dtype
    if reduction == "AVG":
        if not (dtype.is_floating_point or dtype.is_complex):
            raise MustRaise
        wide = torch.complex128 if dtype.is_complex else torch.float64
        return (torch.stack(tensors).to(wide).sum(0) / len(tensors)).to(dtype)
    if dtype == torch.bool:
        name = {"SUM": "or_", "MAX": "or_", "BOR": "or_", "BXOR": "xor"}.get(reduction, "and_")
        return functools.reduce(getattr(operator, name), tensors)
    if reduction in ("BAND", "BOR", "BXOR"):
        if dtype.is_floating_point or dtype.is_complex:
            raise MustRaise
        name = {"BAND": "and_", "BOR": "or_", "BXOR": "xor"}[reduction]
        return functools.reduce(getattr(operator, name), tensors)
    if dtype.is_complex and reduction != "SUM":
        raise MustRaise
    wide = torch.stack(tensors).to(torch.float64 if dtype.is_floating_point else dtype if dtype.is_complex else torch.int64)
    result = {"SUM": lambda: wide.sum(0), "MIN": lambda: wide.amin(0), "MAX": lambda: wide.amax(0),
              "PRODUCT": lambda: wide.prod(0)}[reduction]()
    return result.to(dtype)


# --- the collectives: each is (what to call, what must come out), as two functions of a case ---

COLLECTIVES = {}


def collective(expected, takes_reduction=False):
    def keep(function):
        COLLECTIVES[function.__name__] = (function, expected, takes_reduction)
        return function

    return keep


def last(case):
    return case.size - 1


def first_dimension(case, factor):
    """The case's shape with a first dimension that all ranks can share."""
    if not case.shape:
        raise MustRaise
    return (case.shape[0] * factor, *case.shape[1:])


def finish(work, asynchronous):
    if asynchronous and work is not None:
        work.wait()


@collective(lambda case: [case.reduced(case.all())], takes_reduction=True)
def all_reduce(case, group, asynchronous=False):
    tensor = case.mine()
    finish(dist.all_reduce(tensor, case.op, group, asynchronous), asynchronous)
    return [tensor]


@collective(lambda case: [case.reduced(case.all()), case.reduced(case.all(1))], takes_reduction=True)
def all_reduce_coalesced(case, group, asynchronous=False):
    tensors = [case.mine(), case.mine(1)]
    options = dist.AllreduceCoalescedOptions()
    options.reduceOp = case.op
    group.allreduce_coalesced(tensors, options).wait()
    return tensors


@collective(lambda case: [case.reduced(case.all()), case.reduced(case.all(1))], takes_reduction=True)
def all_reduce_in_coalescing_manager(case, group, asynchronous=False):
    tensors = [case.mine(), case.mine(1)]
    with dist._coalescing_manager(group, async_ops=asynchronous) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, case.op, group)
    if asynchronous:
        manager.wait()
    return tensors


@collective(lambda case: [case.values(last(case))])
def broadcast(case, group, asynchronous=False):
    tensor = case.mine()
    finish(dist.broadcast(tensor, last(case), group, asynchronous), asynchronous)
    return [tensor]


@collective(lambda case: [case.reduced(case.all())] if case.rank == last(case) else [], takes_reduction=True)
def reduce(case, group, asynchronous=False):
    tensor = case.mine()
    finish(dist.reduce(tensor, last(case), case.op, group, asynchronous), asynchronous)
    return [tensor] if case.rank == last(case) else []


@collective(lambda case: case.all())
def all_gather(case, group, asynchronous=False):
    outputs = [case.blank() for _ in range(case.size)]
    finish(dist.all_gather(outputs, case.mine(), group, asynchronous), asynchronous)
    return outputs


@collective(lambda case: case.all() + case.all(1))
def all_gather_coalesced(case, group, asynchronous=False):
    outputs = [[case.blank() for _ in range(case.size)] for _ in range(2)]
    # The Backend's order: a list for each tensor.
    group.allgather_coalesced([[outputs[i][rank] for i in range(2)] for rank in range(case.size)],
                              [case.mine(), case.mine(1)]).wait()
    return outputs[0] + outputs[1]


@collective(lambda case: [torch.stack(case.all()) if not case.shape else torch.cat(case.all())])
def all_gather_into_tensor(case, group, asynchronous=False):
    shape = first_dimension(case, case.size) if case.shape else (case.size,)
    output = case.joint_blank(shape)
    finish(group_call("all_gather_into_tensor")(output, case.mine(), group, asynchronous), asynchronous)
    return [output]


@collective(lambda case: [torch.stack(case.all())])
def all_gather_into_stacked_tensor(case, group, asynchronous=False):
    output = case.joint_blank((case.size, *case.shape))
    finish(group_call("all_gather_into_tensor")(output, case.mine(), group, asynchronous), asynchronous)
    return [output]


@collective(lambda case: [torch.cat(case.all()), torch.cat(case.all(1))] if case.shape else must_raise())
def all_gather_into_tensor_in_coalescing_manager(case, group, asynchronous=False):
    outputs = [case.joint_blank(first_dimension(case, case.size)) for _ in range(2)]
    with dist._coalescing_manager(group, async_ops=asynchronous) as manager:
        for salt, output in enumerate(outputs):
            group_call("all_gather_into_tensor")(output, case.mine(salt), group)
    if asynchronous:
        manager.wait()
    return outputs


@collective(lambda case: case.all() if case.rank == 0 else [])
def gather(case, group, asynchronous=False):
    outputs = [case.blank() for _ in range(case.size)] if case.rank == 0 else None
    finish(dist.gather(case.mine(), outputs, 0, group, asynchronous), asynchronous)
    return outputs or []


@collective(lambda case: [case.values(last(case), case.rank)])
def scatter(case, group, asynchronous=False):
    inputs = [case.mine(rank) for rank in range(case.size)] if case.rank == last(case) else None
    output = case.blank()
    finish(dist.scatter(output, inputs, last(case), group, asynchronous), asynchronous)
    return [output]


@collective(lambda case: [case.reduced(case.all(case.rank))], takes_reduction=True)
def reduce_scatter(case, group, asynchronous=False):
    inputs = [case.mine(rank) for rank in range(case.size)]
    output = case.blank()
    finish(dist.reduce_scatter(output, inputs, case.op, group, asynchronous), asynchronous)
    return [output]


@collective(lambda case: [torch.chunk(case.reduced(case.all(0, first_dimension(case, case.size))), case.size)[case.rank]],
            takes_reduction=True)
def reduce_scatter_tensor(case, group, asynchronous=False):
    tensor = case.mine(0, first_dimension(case, case.size))
    output = case.blank()
    finish(group_call("reduce_scatter_tensor")(output, tensor, case.op, group, asynchronous), asynchronous)
    return [output]


@collective(lambda case: [torch.chunk(case.reduced(case.all(salt, first_dimension(case, case.size))), case.size)[case.rank]
                          for salt in range(2)], takes_reduction=True)
def reduce_scatter_tensor_in_coalescing_manager(case, group, asynchronous=False):
    tensors = [case.mine(salt, first_dimension(case, case.size)) for salt in range(2)]
    outputs = [case.blank() for _ in range(2)]
    with dist._coalescing_manager(group, async_ops=asynchronous) as manager:
        for tensor, output in zip(tensors, outputs):
            group_call("reduce_scatter_tensor")(output, tensor, case.op, group)
    if asynchronous:
        manager.wait()
    return outputs


@collective(lambda case: [case.values(rank, case.rank) for rank in range(case.size)])
def all_to_all(case, group, asynchronous=False):
    outputs = [case.blank() for _ in range(case.size)]
    finish(dist.all_to_all(outputs, [case.mine(rank) for rank in range(case.size)], group, asynchronous), asynchronous)
    return outputs


def exchanged(case, rows_to):
    """all_to_all_single in closed form: `rows_to(a, b)` rows go from a to b."""
    pieces = []
    for rank in range(case.size):
        rows = [rows_to(rank, to) for to in range(case.size)]
        whole = case.values(rank, 0, (sum(rows), *case.shape[1:]))
        pieces.append(torch.split(whole, rows)[case.rank])
    return [torch.cat(pieces)]


@collective(lambda case: exchanged(case, lambda _, __: first_dimension(case, 1)[0]))
def all_to_all_single(case, group, asynchronous=False):
    shape = first_dimension(case, case.size)
    output = case.joint_blank(shape)
    finish(dist.all_to_all_single(output, case.mine(0, shape), group=group, async_op=asynchronous), asynchronous)
    return [output]


@collective(lambda case: exchanged(case, lambda a, b: first_dimension(case, 1)[0] * (a + 2 * b)))
def all_to_all_single_with_splits(case, group, asynchronous=False):
    rows = first_dimension(case, 1)[0]
    sent = [rows * (case.rank + 2 * to) for to in range(case.size)]
    received = [rows * (rank + 2 * case.rank) for rank in range(case.size)]
    output = case.joint_blank((sum(received), *case.shape[1:]))
    tensor = case.mine(0, (sum(sent), *case.shape[1:]))
    finish(dist.all_to_all_single(output, tensor, received, sent, group, asynchronous), asynchronous)
    return [output]


def left(case):
    return (case.rank - 1) % case.size


def right(case):
    return (case.rank + 1) % case.size


def ring_answer(case):
    return [case.values(left(case))] if case.size > 1 else []


@collective(ring_answer)
def send_recv(case, group, asynchronous=False):
    if case.size == 1:
        return []
    output = case.blank()
    tensor = case.mine()
    for turn in range(2):
        if case.rank % 2 == turn:
            dist.send(tensor, right(case), group)
        else:
            dist.recv(output, left(case), group)
    return [output]


@collective(lambda case: ring_answer(case) * 2)
def isend_irecv(case, group, asynchronous=False):
    """Two messages that cross, told apart by their tags."""
    if case.size == 1:
        return []
    outputs = [case.blank(), case.blank()]
    tensor = case.mine()
    works = [dist.irecv(outputs[tag], left(case), group, tag) for tag in (1, 0)]
    works += [dist.isend(tensor, right(case), group, tag) for tag in (0, 1)]
    for work in works:
        work.wait()
    return outputs


@collective(ring_answer)
def recv_any_source(case, group, asynchronous=False):
    if case.size == 1:
        return []
    output = case.blank()
    work = dist.isend(case.mine(), right(case), group)
    source = dist.recv(output, None, group)
    work.wait()
    assert source == left(case), source
    return [output]


@collective(ring_answer)
def batch_isend_irecv(case, group, asynchronous=False):
    if case.size == 1:
        return []
    output = case.blank()
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, case.mine(), right(case), group),
                                        dist.P2POp(dist.irecv, output, left(case), group)]):
        work.wait()
    return [output]


def must_raise():
    raise MustRaise


def group_call(name):
    """torch's function of this name: newer ones call it `..._single` and warn about the old name."""
    return getattr(dist, {"all_gather_into_tensor": "all_gather_single",
                          "reduce_scatter_tensor": "reduce_scatter_single"}[name], None) or getattr(dist, name)
