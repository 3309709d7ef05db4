"""Gloo and the backend are asked the same, in the same processes, on two groups.

Where Gloo answers rightly the backend gives the same; where Gloo raises it raises too, or gives the right answer; where Gloo
is wrong without a word (strides that it ignores), it is right in the tensor that was passed.
"""

import collections
import itertools
import math

import pytest
import torch
import torch.distributed as dist
from collective_cases import COLLECTIVES, FLOATS, INTEGERS, MOVED, REDUCED, REDUCTIONS, SHAPES, Case, MustRaise
from ranks import BACKEND, OURS, KeptRanks, destroy, init

import ranks as here

# Where Gloo ignores strides, sizes or what a bool is. Elsewhere its answers must be the expected ones too.
GLOO_IS_WRONG = {"strided", "transposed", "channels_last", "expanded", "by_rank"}
# What Gloo cannot be asked. Where it raises for strides, and only one rank has them, the other waits for ever or is ended;
# after an empty message from any source the next one is never received.
UNASKED = {name: {"by_rank"} for name in ("send_recv", "isend_irecv", "batch_isend_irecv", "all_to_all_single",
                                          "all_to_all_single_with_splits")}
UNASKED["recv_any_source"] = {"by_rank", "empty"}
THEIRS = OUR_GROUP = None


def make_groups():
    global THEIRS, OUR_GROUP
    init("gloo")
    THEIRS = dist.new_group(backend="gloo")
    OUR_GROUP = dist.new_group(backend=BACKEND)


@pytest.fixture(scope="module", params=[1, 2, 4], ids=lambda size: f"{size}ranks")
def groups(request):
    with KeptRanks(request.param, make_groups) as kept:
        yield kept
        kept.run(destroy)


def ask(call, case, group, **options):
    """The tensors that come back, or the error."""
    try:
        return call(case, group, **options)
    except (RuntimeError, ValueError, TypeError, IndexError, MustRaise) as error:
        # torch's coalescing manager does not end when its block raises: later calls would be queued for ever.
        dist.distributed_c10d._world.pg_coalesce_state.pop(group, None)
        return error


def same(found, expected):
    """Whether tensors hold the same numbers; a bool that is neither 0 nor 1 is not one."""
    if len(found) != len(expected):
        return False
    for a, b in zip(found, expected):
        if a.dtype != b.dtype or a.shape != b.shape:
            return False
        if a.dtype == torch.bool:
            a, b = (t.contiguous().view(torch.uint8) for t in (a, b))
        if not torch.equal(a, b):
            return False
    return True


def shown(answer):
    if isinstance(answer, Exception):
        return f"{type(answer).__name__}: {str(answer).splitlines()[0] if str(answer) else ''}"
    return ", ".join(str(tensor.flatten()[:8].tolist()) for tensor in answer)


def compare(names, dtypes, reductions, layouts, sizes, asynchronous):
    """Asks all combinations; returns how often who was what, and a line for each wrong answer."""
    counts = collections.Counter()
    wrong = []
    for name, dtype, layout, reduction in itertools.product(names, dtypes, layouts, reductions):
        call, expect, takes_reduction = COLLECTIVES[name]
        if not takes_reduction and reduction != reductions[0] or layout in UNASKED.get(name, ()):
            continue
        for shape in SHAPES[layout][sizes]:
            case = Case(here.RANK, here.SIZE, dtype, layout, shape, reduction)
            try:
                expected = expect(case)
            except MustRaise as error:
                expected = error
            theirs = ask(call, case, THEIRS, asynchronous=asynchronous)
            ours = ask(call, case, OUR_GROUP, asynchronous=asynchronous)
            problem = judge(expected, theirs, ours, layout, counts)
            if problem:
                what = f"{name} {reduction if takes_reduction else ''} {dtype} {layout} {shape}".replace("torch.", "")
                wrong.append(f"{what}: {problem}; expected {shown(expected)}, gloo {shown(theirs)}, {BACKEND} {shown(ours)}")
    return counts, wrong


def judge(expected, theirs, ours, layout, counts):
    """What is wrong with the answers, or None."""
    no_answer = isinstance(expected, MustRaise)
    if isinstance(theirs, Exception):
        counts["gloo raised"] += 1
    elif no_answer or not same(theirs, expected):
        counts["gloo was wrong"] += 1
        strange = layout not in GLOO_IS_WRONG and not no_answer and not theirs[0].dtype == torch.bool
        if strange:
            return "gloo gives something else"
    if isinstance(ours, Exception):
        counts["raised"] += 1
        return None if no_answer or isinstance(theirs, Exception) else "raised"
    counts["right"] += 1
    if not OURS and not isinstance(theirs, Exception) and not same(theirs, expected if not no_answer else []):
        return None  # gloo against gloo
    if no_answer:
        return "answered"
    return None if same(ours, expected) else "wrong"


def check(groups, names, dtypes, reductions=("SUM",), layouts=("contiguous",), sizes=slice(0, 2), asynchronous=False):
    found = groups.run(compare, names, dtypes, list(reductions), list(layouts), sizes, asynchronous, limit=120)
    wrong = [f"rank {rank}: {line}" for rank, (_, lines) in enumerate(found) for line in lines]
    shown = [line for name in names for line in [line for line in wrong if f": {name} " in line][:3]]
    assert not wrong, f"{len(wrong)} wrong answers, of each collective the first:\n" + "\n".join(shown)
    assert found[0][0]["right"] > 0
    return found[0][0]


def reducing():
    return [name for name, (_, _, takes_reduction) in COLLECTIVES.items() if takes_reduction]


def test_every_collective_moves_every_type(groups):
    check(groups, list(COLLECTIVES), MOVED if groups.size < 4 else [torch.float32, torch.uint8])


def test_every_reduction_of_every_type(groups):
    names = reducing() if groups.size == 2 else ["all_reduce", "reduce_scatter_tensor"]
    counts = check(groups, names, [*REDUCED, torch.int16, torch.complex64], REDUCTIONS)
    assert counts["gloo raised"] > 0


def test_every_layout(groups):
    layouts = [layout for layout in SHAPES if layout != "contiguous"]
    dtypes = [torch.float32, torch.bfloat16, torch.int64, torch.bool] if groups.size == 2 else [torch.float32]
    counts = check(groups, list(COLLECTIVES), dtypes, ["SUM", "AVG"] if groups.size == 2 else ["SUM"], layouts)
    assert groups.size == 1 or counts["gloo was wrong"] > 0


def test_large_tensors(groups):
    """More than a megabyte, contiguous or not."""
    if groups.size == 4:  # more than there are cores
        names = ["all_reduce", "broadcast", "all_gather", "reduce_scatter_tensor", "all_to_all_single"]
        check(groups, names, [torch.float32], ["AVG"], ["contiguous", "transposed"], slice(2, 3))
    else:
        layouts = ["contiguous", "offset", "transposed"]
        check(groups, list(COLLECTIVES), [torch.float32, torch.float16], ["AVG"], layouts, slice(2, 3))


def test_async_op(groups):
    check(groups, list(COLLECTIVES), [torch.float32, torch.int32], ["SUM"], ["contiguous", "transposed"], asynchronous=True)


# --- numbers that are not small integers ---


def averages():
    """AVG against float64 arithmetic: the error, in units of the type's precision times the largest magnitude."""
    found = {}
    for dtype in FLOATS:
        for count in (7, 10_007):
            every = [torch.randn(count, generator=torch.Generator().manual_seed(rank)).to(dtype) for rank in range(here.SIZE)]
            tensor = every[here.RANK].clone()
            dist.all_reduce(tensor, dist.ReduceOp.AVG, OUR_GROUP)
            wide = torch.stack(every).to(torch.float64)
            error = (tensor.to(torch.float64) - wide.mean(0)).abs() / (torch.finfo(dtype).eps * wide.abs().amax(0))
            found[str(dtype), count] = error.max().item()
    return found


def test_averages_are_those_of_float64(groups):
    for found in groups.run(averages):
        assert max(found.values()) <= (0.51 * groups.size if OURS else 8), found


def same_bits():
    """Sums of arbitrary numbers: a digest that all ranks must share, for tensors alone and in one operation."""
    count = 10_007
    tensor = torch.randn(count, generator=torch.Generator().manual_seed(here.RANK))
    whole, halves = tensor.clone(), [tensor[:4001].clone(), tensor[4001:].clone()]
    dist.all_reduce(whole, group=OUR_GROUP)
    for half in halves:
        dist.all_reduce(half, group=OUR_GROUP)
    return whole.view(torch.int32).tolist(), torch.cat(halves).view(torch.int32).tolist()


def test_sums_have_the_same_bits_everywhere(groups):
    found = groups.run(same_bits)
    assert all(whole == found[0][0] for whole, _ in found)
    if OURS:  # gloo's depend on how an array is cut
        every = [torch.randn(10_007, generator=torch.Generator().manual_seed(rank)) for rank in range(groups.size)]
        in_rank_order = every[0].clone()
        for other in every[1:]:
            in_rank_order += other
        assert found[0][0] == in_rank_order.view(torch.int32).tolist()
        assert all(pieces == found[0][0] for _, pieces in found)


def average_of(value, dtype, count):
    tensor = torch.full((count,), value, dtype=dtype)
    dist.all_reduce(tensor, dist.ReduceOp.AVG, OUR_GROUP)
    return tensor.unique().tolist()


def test_float16_average_does_not_overflow(groups):
    for count in (3, 20_001):
        found = groups.run(average_of, 60000.0, torch.float16, count)
        if OURS:
            assert found == [[60000.0]] * groups.size


def spread(value, dtype, count, name):
    tensor = torch.ones(count, dtype=dtype)
    if here.RANK == here.SIZE - 1:
        tensor[count // 2] = value
    dist.all_reduce(tensor, getattr(dist.ReduceOp, name), OUR_GROUP)
    odd = tensor[count // 2].item()
    tensor[count // 2] = tensor[0]
    return str(odd), tensor.unique().tolist()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_nan_and_infinity_reach_every_rank(groups, value):
    for dtype, count, name in itertools.product(FLOATS, (3, 20_001), ("SUM", "AVG")):
        ordinary = float(groups.size if name == "SUM" else 1)
        found = groups.run(spread, value, dtype, count, name)
        assert found == [(str(value), [ordinary])] * groups.size, (dtype, count, name)


# --- what is more than a tensor in and a tensor out ---


def objects():
    rank, size = here.RANK, here.SIZE
    mine = {"rank": rank, "text": "x" * (10 + 1000 * rank), "tensor": torch.arange(rank + 2)}
    every = [None] * size
    dist.all_gather_object(every, mine, OUR_GROUP)
    gathered = [None] * size if rank == 0 else None
    dist.gather_object(mine, gathered, 0, OUR_GROUP)
    shared = [mine, rank] if rank == size - 1 else [None, None]
    dist.broadcast_object_list(shared, size - 1, OUR_GROUP)
    dealt = [None]
    dist.scatter_object_list(dealt, [f"for {i}" for i in range(size)] if rank == 0 else None, 0, OUR_GROUP)
    passed = [None]
    if size > 1 and rank == 0:
        dist.send_object_list([mine], 1, OUR_GROUP)
    elif rank == 1:
        dist.recv_object_list(passed, 0, OUR_GROUP)
    return ([(item["rank"], len(item["text"]), item["tensor"].tolist()) for item in every],
            gathered and [item["rank"] for item in gathered], shared[0]["rank"], shared[1], dealt, passed[0] and passed[0]["rank"])


def test_objects(groups):
    size = groups.size
    for rank, found in enumerate(groups.run(objects)):
        every = [(i, 10 + 1000 * i, list(range(i + 2))) for i in range(size)]
        assert found == (every, list(range(size)) if rank == 0 else None, size - 1, size - 1, [f"for {rank}"],
                         0 if rank == 1 else None)


def futures():
    """Work by its future: done, with the tensors in it, and `then` runs after them."""
    tensor = torch.full((1000,), float(here.RANK + 1))
    work = dist.all_reduce(tensor, group=OUR_GROUP, async_op=True)
    doubled = work.get_future().then(lambda future: future.value()[0] * 2)
    result = doubled.wait().unique().tolist()
    work.wait()
    return result, work.is_completed(), work.is_success(), tensor.unique().tolist()


def test_futures(groups):
    total = float(sum(range(1, groups.size + 1)))
    assert groups.run(futures) == [([2 * total], True, True, [total])] * groups.size


def many_at_once():
    """Operations begun before any is waited for, and waited for out of order."""
    tensors = [torch.full((100 * (i + 1),), float(here.RANK + i)) for i in range(200)]
    works = [dist.all_reduce(tensor, group=OUR_GROUP, async_op=True) for tensor in tensors]
    for work in reversed(works):
        work.wait()
    return [tensor.unique().tolist() for tensor in tensors]


def test_many_operations_at_once(groups):
    ranks = sum(range(groups.size))
    for found in groups.run(many_at_once):
        assert found == [[float(ranks + groups.size * i)] for i in range(200)]


def mixed():
    """Operations of the backend's own and those that Gloo serves, in one order, none waited for before all are begun."""
    rank, size = here.RANK, here.SIZE
    summed, copied = torch.full((500,), rank + 1.0), torch.full((500,), float(rank))
    outputs = [torch.zeros(3) for _ in range(size)] if rank == 0 else None
    works = [dist.all_reduce(summed, group=OUR_GROUP, async_op=True),
             dist.gather(torch.full((3,), float(rank)), outputs, 0, OUR_GROUP, True),
             dist.broadcast(copied, 0, OUR_GROUP, True), dist.barrier(OUR_GROUP, True)]
    for work in works:
        work.wait()
    return summed.unique().tolist(), copied.unique().tolist(), outputs and [output.tolist() for output in outputs]


def test_operations_of_both_kinds_keep_their_order(groups):
    size = groups.size
    for rank, found in enumerate(groups.run(mixed)):
        assert found == ([size * (size + 1) / 2], [0.0], [[float(i)] * 3 for i in range(size)] if rank == 0 else None)


def barriers():
    backend = OUR_GROUP._get_backend(torch.device("cpu"))
    for _ in range(3):
        dist.barrier(OUR_GROUP)
        backend.monitored_barrier()
        backend.monitored_barrier(wait_all_ranks=True)
    return backend.name(), dist.get_backend(OUR_GROUP), dist.get_rank(OUR_GROUP), dist.get_world_size(OUR_GROUP)


def test_barriers(groups):
    for rank, found in enumerate(groups.run(barriers)):
        assert found == (BACKEND, BACKEND, rank, groups.size)


def refusals():
    """Requests that no backend can do: the errors, and that the group goes on."""
    texts = []

    def refused(function):
        try:
            function()
        except (RuntimeError, ValueError) as error:
            texts.append(str(error))
        else:
            texts.append(None)

    refused(lambda: dist.all_reduce(torch.ones(3, dtype=torch.int32), dist.ReduceOp.AVG, OUR_GROUP))
    refused(lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BXOR, OUR_GROUP))
    refused(lambda: dist.all_reduce(torch.ones(3).to_sparse(), dist.ReduceOp.MAX, OUR_GROUP))
    refused(lambda: dist.broadcast(torch.ones(3), here.SIZE + 3, OUR_GROUP))
    refused(lambda: dist.all_gather([torch.ones(3)] * (here.SIZE + 1), torch.ones(3), OUR_GROUP))
    refused(lambda: dist.all_gather([torch.ones(4)] * here.SIZE, torch.ones(3), OUR_GROUP))
    refused(lambda: dist.all_gather_into_tensor(torch.ones(3 * here.SIZE + 1), torch.ones(3), OUR_GROUP))
    refused(lambda: dist.reduce_scatter_tensor(torch.ones(3), torch.ones(3 * here.SIZE + 1), group=OUR_GROUP))
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=OUR_GROUP)
    return texts, tensor.tolist()


def test_wrong_requests_are_refused_and_the_group_goes_on(groups):
    for texts, after in groups.run(refusals):
        assert None not in texts, texts
        assert after == [float(groups.size)] * 3
        if OURS:
            average, bits = texts[:2]
            assert "AVG" in average and ("int32" in average or "Int" in average), average
            assert "BXOR" in bits and ("float32" in bits or "Float" in bits), bits


def test_integers_are_exact(groups):
    """Beyond what a double holds."""
    assert groups.run(large_integers) == [[(1 << 60) * groups.size + groups.size * (groups.size - 1) // 2]] * groups.size


def large_integers():
    tensor = torch.full((3000,), (1 << 60) + here.RANK, dtype=torch.int64)
    dist.all_reduce(tensor, group=OUR_GROUP)
    return tensor.unique().tolist()


def test_every_integer_type_wraps_or_holds_alike(groups):
    for dtype in INTEGERS:
        found = groups.run(largest, dtype)
        assert found == [found[0]] * groups.size
        info = torch.iinfo(dtype)
        wide = (info.max * groups.size - info.min) % (info.max - info.min + 1) + info.min
        assert found[0] == ([wide], [wide]), dtype


def largest(dtype):
    answers = []
    for group in (THEIRS, OUR_GROUP):
        tensor = torch.full((17,), torch.iinfo(dtype).max, dtype=dtype)
        dist.all_reduce(tensor, group=group)
        answers.append(tensor.unique().tolist())
    return tuple(answers)
