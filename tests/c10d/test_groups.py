"""Several groups at once, one after the other, from several threads, with options, and of one rank."""

import gc
import json
import os
import pathlib
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import BACKEND, OURS, KeptRanks, destroy, fresh_store, group, in_threads, init
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ranks as here

only_ours = pytest.mark.skipif(not OURS, reason="asks what only Sumpter has")


def total(value, into=None, count=1000):
    tensor = torch.full((count,), float(value))
    dist.all_reduce(tensor, group=into)
    (result,) = tensor.unique().tolist()
    return result


# --- one rank ---


def alone():
    with group():
        values = [total(5), total(5, count=100_000)]
        tensor, outputs = torch.arange(6.0), [torch.zeros(6)]
        dist.all_gather(outputs, tensor)
        dist.broadcast(tensor, 0)
        scattered = torch.zeros(6)
        dist.reduce_scatter(scattered, [tensor])
        exchanged = torch.zeros(6)
        dist.all_to_all_single(exchanged, tensor)
        dist.barrier()
        average = torch.arange(6.0)
        dist.all_reduce(average, dist.ReduceOp.AVG)
        identical = all(torch.equal(found, torch.arange(6.0)) for found in (*outputs, tensor, scattered, exchanged, average))
        model = DistributedDataParallel(nn.Linear(3, 3))
        model(torch.ones(2, 3)).sum().backward()
        gradient = model.module.bias.grad.tolist()
        arena = 0
        if OURS:
            import sumpter

            status = sumpter.status()
            arena = status.arena_bytes - status.bucket_bytes
        return values, identical, gradient, arena


def test_one_rank(one):
    ((values, identical, gradient, arena),) = one.run(alone)
    assert values == [5.0, 5.0] and identical and gradient == [2.0] * 3
    assert arena <= 64 << 10  # no slots: nothing beyond the words in which members signal


# --- many groups ---


def overlapping():
    """Row by row: groups {0, 1}, {1, 2}, {2, 3} and all, and the group that a rank is not in."""
    with group():
        pairs = [dist.new_group([first, first + 1], backend=BACKEND) for first in range(3)]
        mine = [first for first in range(3) if here.RANK in (first, first + 1)]
        found = {}
        for first in mine:
            found[first] = total(10**here.RANK, pairs[first]), dist.get_rank(pairs[first])
        everyone = total(10**here.RANK)
        outside = [dist.get_rank(pairs[first]) for first in range(3) if first not in mine]
        return found, everyone, outside


def test_groups_over_some_ranks(four):
    for rank, (found, everyone, outside) in enumerate(four.run(overlapping)):
        assert everyone == 1111.0
        assert found == {first: (11.0 * 10**first, rank - first) for first in (rank - 1, rank) if 0 <= first < 3}
        assert set(outside) <= {-1}


def two_threads():
    """Two groups over overlapping ranks, each driven by a thread of its own, 200 operations of many sizes each."""
    with group():
        pair = dist.new_group([0, 1], backend=BACKEND)
        rest = dist.new_group([1, 2, 3], backend=BACKEND)

        def drive(into, offset):
            sizes = [1 + (37 * i + offset) % 9000 for i in range(200)]
            return [total(i + here.RANK, into, size) for i, size in enumerate(sizes)]

        jobs = []
        if here.RANK in (0, 1):
            jobs.append(lambda: drive(pair, 0))
        if here.RANK in (1, 2, 3):
            jobs.append(lambda: drive(rest, 5))
        return in_threads(jobs)


def test_two_groups_from_two_threads(four):
    pair, rest = ([members * i + ranks for i in range(200)] for members, ranks in ((2, 0 + 1), (3, 1 + 2 + 3)))
    found = four.run(two_threads)
    assert found == [[pair], [pair, rest], [rest], [rest]]


def one_group_many_threads():
    """A thread begins, another waits: the order of the calls is that of the one that begins."""
    with group():
        works, done = [], threading.Event()
        tensors = [torch.full((1 + 3000 * (i % 3),), float(here.RANK + i)) for i in range(100)]

        def begin():
            for tensor in tensors:
                works.append(dist.all_reduce(tensor, async_op=True))
            done.set()

        def wait():
            assert done.wait(30)
            for work in works[::2]:
                work.wait()

        def wait_too():
            assert done.wait(30)
            for work in works[1::2]:
                work.wait()

        in_threads([begin, wait, wait_too])
        return [tensor.unique().tolist() for tensor in tensors]


def test_waits_from_several_threads(two):
    for found in two.run(one_group_many_threads):
        assert found == [[2.0 * i + 1] for i in range(100)]


def several_models():
    """Two models on two groups, both trained from threads of their own, against the same one after the other."""
    def train(seed, into):
        torch_generator = torch.Generator().manual_seed(seed + here.RANK)
        layers = [nn.Linear(50, 50) for _ in range(3)]
        for layer in layers:
            nn.init.eye_(layer.weight)
            nn.init.zeros_(layer.bias)
        model = DistributedDataParallel(nn.Sequential(*layers), process_group=into, bucket_cap_mb=0.01)
        optimizer = torch.optim.SGD(model.parameters(), 0.001)
        for _ in range(20):
            optimizer.zero_grad()
            model(torch.randn(4, 50, generator=torch_generator)).square().mean().backward()
            optimizer.step()
        return [parameter.detach().tolist() for parameter in model.parameters()]

    with group():
        groups = [dist.new_group(backend=BACKEND) for _ in range(2)]
        in_turns = [train(10 * i, groups[i]) for i in range(2)]
        at_once = in_threads([lambda i=i: train(10 * i, groups[i]) for i in range(2)])
        return in_turns == at_once, in_turns


def test_models_on_two_groups_at_once(two):
    (same_here, first), (same_there, second) = two.run(several_models, limit=90)
    assert first == second
    if OURS:  # gloo's buckets may be summed in another order
        assert same_here and same_there


def many_groups():
    with group():
        groups = [dist.new_group(backend=BACKEND) for _ in range(8)]
        works = []
        tensors = [torch.full((5000,), float(here.RANK + i)) for i in range(8)]
        for tensor, into in zip(tensors, groups):
            works.append(dist.all_reduce(tensor, group=into, async_op=True))
        for work in reversed(works):
            work.wait()
        for into in groups[::2]:
            dist.destroy_process_group(into)
        rest = [total(i, into) for i, into in enumerate(groups[1::2])]
        return [tensor.unique().tolist() for tensor in tensors], rest


def test_many_groups_at_once_and_some_destroyed(two):
    for found, rest in two.run(many_groups):
        assert found == [[2.0 * i + 1] for i in range(8)]
        assert rest == [0.0, 2.0, 4.0, 6.0]


def mixed_backends():
    """Both backends in one process; and torch's own maps."""
    found = []
    for backend in ("gloo", BACKEND, "cpu:gloo", f"cpu:{BACKEND}", f"cpu:{BACKEND},cuda:gloo"):
        with group(backend):
            found.append((dist.get_backend(), total(here.RANK)))
    return found


def test_backends_in_turns_and_maps(two):
    for found in two.run(mixed_backends):
        assert [value for _, value in found] == [1.0] * 5
        assert found[0][0] == "gloo" and found[1][0] == BACKEND


# --- options ---


def with_options():
    import sumpter

    options = sumpter.Options(piece=4096, reducers=1, window=2, timeout=timedelta(seconds=17))
    with group(pg_options=options):
        value = total(here.RANK, count=100_000)
        status = sumpter.status()
        return value, status.piece, status.reducers, status.timeout, [member.rank for member in status.members], status.rank


@only_ours
def test_options_reach_the_group(two):
    for rank, found in enumerate(two.run(with_options)):
        assert found == (1.0, 4096, 1, 17.0, [0, 1], rank)


def bits_with(piece, reducers):
    import sumpter

    with group(pg_options=sumpter.Options(piece=piece, reducers=reducers)):
        tensor = torch.randn(40_013, generator=torch.Generator().manual_seed(here.RANK))
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        return tensor.view(torch.int32).tolist()


@only_ours
def test_bits_do_not_depend_on_pieces_and_reducers(two):
    found = [bits for piece, reducers in ((64, 0), (4160, 1), (131_072, 2), (1 << 20, 0)) for bits in
             two.run(bits_with, piece, reducers)]
    assert all(bits == found[0] for bits in found)


def differing_options():
    import sumpter

    try:
        init(timeout=20.0, pg_options=sumpter.Options(piece=4096 * (1 + here.RANK)))
    except RuntimeError as error:
        return type(error).__name__, str(error)
    return "nothing was raised"


@only_ours
def test_options_that_differ_are_refused():
    with KeptRanks(2) as ranks:
        for name, text in ranks.run(differing_options, limit=30):
            assert name == "DistBackendError"
            assert "4096" in text and "8192" in text and "piece" in text, text


def traced(file):
    import sumpter

    with group(pg_options=sumpter.Options(trace=str(file), reducers=1)):
        value = total(here.RANK, count=100_000)
    return value


@only_ours
def test_a_timeline_of_each_rank(two, tmp_path):
    assert two.run(traced, tmp_path / "{rank}.json") == [1.0, 1.0]
    sums = 0
    for rank in range(2):
        events = json.loads((tmp_path / f"{rank}.json").read_text())["traceEvents"]
        spans = [event for event in events if event["ph"] == "X"]
        assert {event["name"] for event in spans} <= {"sum", "copy", "wait"}
        sums += sum(event["args"]["bytes"] for event in spans if event["name"] == "sum")
    assert sums == 2 * 100_000 * 4  # every element of both ranks is read once


def rounded(wire):
    """Sums of one third and of what a wire cannot hold, rounded on both ways."""
    import sumpter

    with group(pg_options=sumpter.Options(wire=wire)):
        tensors = [torch.full((5000,), 1 / 3), torch.full((5000,), 1e6), torch.full((5000,), 1 / 3, dtype=torch.float64)]
        for tensor in tensors:
            dist.all_reduce(tensor)
        return [tensor.unique().tolist() for tensor in tensors], sumpter.status().overflows


@only_ours
def test_a_narrow_wire_rounds_float32_alone(two):
    for (third, million, double), overflows in two.run(rounded, "bf16"):
        sent = torch.tensor(1 / 3).bfloat16().float()
        assert third == [(sent + sent).bfloat16().item()] and million == [2 * torch.tensor(1e6).bfloat16().item()]
        assert double == [2 / 3] and overflows == 0
    for (third, million, double), overflows in two.run(rounded, "f16"):
        assert million == [float("inf")] and overflows == 5000


def differing_wires():
    import sumpter

    with group(pg_options=sumpter.Options(wire=("f32", "bf16")[here.RANK])):
        tensor = torch.ones(5000)
        try:
            dist.all_reduce(tensor)
        except dist.DistBackendError as error:
            return str(error), tensor.unique().tolist()
    return "nothing was raised", None


@only_ours
def test_wires_that_differ_are_refused(two):
    for text, values in two.run(differing_wires):
        assert "rank 0: all_reduce of 5000 f32, sum" in text and "rank 1: all_reduce of 5000 bf16, sum, in bf16" in text
        assert values == [1.0]  # nothing was written


# --- what nobody waits for at the moment ---


def busy_elsewhere():
    """Rank 1 waits for the other at another place than in the operation that both have begun."""
    with group():
        store = dist.distributed_c10d._get_default_store()
        tensor = torch.full((300_000,), here.RANK + 1.0)
        work = dist.all_reduce(tensor, async_op=True)
        if here.RANK == 1:
            store.wait(["summed"], timedelta(seconds=20))
        work.wait()
        if here.RANK == 0:
            store.set("summed", "")
        return tensor.unique().tolist()


def test_async_operations_go_on_while_their_caller_does_something_else(two):
    assert two.run(busy_elsewhere, limit=40) == [[3.0], [3.0]]


def nested():
    """A callback of a future waits for another operation, whose future waits for nobody else."""
    with group():
        first, second = torch.ones(1000), torch.full((1000,), 2.0)

        def then(future):
            future.value()
            dist.all_reduce(second, async_op=True).get_future().wait()
            return second

        dist.all_reduce(first, async_op=True).get_future().then(then).wait()
        return first.unique().tolist(), second.unique().tolist()


def test_a_callback_waits_for_an_operation_of_its_own(two):
    assert two.run(nested, limit=40) == [([2.0], [4.0])] * 2


def destroyed_meanwhile():
    with group():
        done = threading.Event()

        def then(future):
            time.sleep(0.1)  # long enough that the group is being destroyed; right whenever it ends
            done.set()

        dist.all_reduce(torch.ones(100_000), async_op=True).get_future().then(then)
    return done.wait(20)


def test_a_group_waits_for_callbacks_when_it_is_destroyed(two):
    assert two.run(destroyed_meanwhile, limit=40) == [True, True]


def forked():
    """What a child of the process does to its copy of the group is nothing to the group."""
    with group():
        tensor = torch.ones(100_000)
        dist.all_reduce(tensor)
        child = os.fork()
        if child == 0:
            try:
                dist.all_reduce(torch.ones(3))
                status = 1  # it is no member
            except ValueError as error:
                status = 0 if "forked from member" in str(error) else 2
            dist.destroy_process_group()
            os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        dist.all_reduce(tensor)
        return status, tensor.unique().tolist()


@only_ours
def test_a_forked_child_leaves_the_group_alone(two):
    assert two.run(forked, limit=40) == [(0, [4.0])] * 2


# --- again and again ---


def held():
    """Descriptors, threads, resident KiB, and what memory the process has mapped from descriptors without a name."""
    gc.collect()
    process = pathlib.Path("/proc/self")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    anonymous = sum("memfd" in line for line in (process / "maps").read_text().splitlines())
    return {"descriptors": len(os.listdir(process / "fd")), "threads": int(status["Threads"]),
            "resident": int(status["VmRSS"].split()[0]), "mappings": anonymous}


def cycle(count):
    for i in range(count):
        init()
        assert total(here.RANK + 1, count=20_000) == here.SIZE * (here.SIZE + 1) / 2
        if i % 10 == 9:  # the inner group is made too
            dist.gather(torch.ones(3), [torch.ones(3) for _ in range(here.SIZE)] if here.RANK == 0 else None, 0)
            model = DistributedDataParallel(nn.Linear(30, 30))
            model(torch.ones(2, 30)).sum().backward()
            del model
        destroy()


def cycles(first, more):
    """What is held after the first cycles and after more; files that were not there before."""
    before = {directory: set(os.listdir(directory)) for directory in ("/dev/shm", "/tmp")}
    cycle(first)
    early = held()
    cycle(more)
    late = held()
    # Threads that end by themselves need a moment to be gone from /proc.
    deadline = time.monotonic() + 5
    while (late["threads"], late["descriptors"]) != (early["threads"], early["descriptors"]) and time.monotonic() < deadline:
        time.sleep(0.05)
        late = held()
    names = [name for directory, old in before.items() for name in set(os.listdir(directory)) - old]
    return early, late, [name for name in names if "sumpter" in name.lower() or "gloo" in name.lower()]


def check_cycles(first, more, resident_kib):
    with KeptRanks(2) as ranks:
        for early, late, files in ranks.run(cycles, first, more, limit=600):
            print(f"\nafter {first} groups: {early}; after {more} more: {late}")
            assert files == []
            for what in ("descriptors", "threads", "mappings"):
                assert late[what] <= early[what], (what, early, late)
            assert late["resident"] <= early["resident"] + resident_kib, (early, late)


@only_ours
def test_thirty_groups_one_after_the_other_leave_nothing():
    check_cycles(10, 20, 8 << 10)


@only_ours
@pytest.mark.prove
def test_a_thousand_groups_one_after_the_other_leave_nothing():
    check_cycles(100, 900, 8 << 10)


def init_with_environment(port):
    """As torchrun's processes do it: by the address in the environment."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group(BACKEND)
    values = [total(here.RANK), total(1, dist.new_group(backend=BACKEND))]
    destroy()
    return values


def test_rendezvous_by_the_environment(two):
    assert two.run(init_with_environment, here.free_port()) == [[1.0, 2.0]] * 2


def init_again_over_one_store():
    """As under torchrun, whose store outlives the groups."""
    store = fresh_store()
    found = []
    for i in range(4):
        dist.init_process_group(BACKEND, store=store, rank=here.RANK, world_size=here.SIZE, timeout=timedelta(seconds=20))
        outputs = [torch.zeros(2) for _ in range(here.SIZE)] if here.RANK == 0 else None
        dist.gather(torch.full((2,), here.RANK + 10.0 * i), outputs, 0)
        found.append((total(i), total(i + here.RANK, dist.new_group()), outputs and [output[0].item() for output in outputs]))
        destroy()
    return found


@only_ours  # gloo finds the keys of the group before
def test_init_again_over_one_store(two):
    for rank, found in enumerate(two.run(init_again_over_one_store, limit=25)):
        assert found == [(2.0 * i, 2.0 * i + 1, [10.0 * i, 10.0 * i + 1] if rank == 0 else None) for i in range(4)]


def upper_case_and_defaults():
    """The name in capitals; a group that inherits the default group's backend; an explicit device."""
    dist.init_process_group(BACKEND.upper(), store=fresh_store(), rank=here.RANK, world_size=here.SIZE,
                            device_id=None)
    inherited = dist.new_group()
    values = dist.get_backend(inherited), total(here.RANK, inherited)
    destroy()
    return values


def test_names_and_inheritance(two):
    assert two.run(upper_case_and_defaults) == [(BACKEND, 1.0)] * 2
