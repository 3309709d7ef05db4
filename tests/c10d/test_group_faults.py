"""A rank that dies, stops or disagrees: every other rank raises DistBackendError, soon, and says who and what."""

import os
import re
import signal
import subprocess
import sys
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from ranks import BACKEND, OURS, Ranks, destroy, group, init, tell
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ranks as here

pytestmark = pytest.mark.skipif(not OURS, reason="Gloo promises none of this")
ERROR = "DistBackendError"


def reduce_for_ever(count, said_first=3):
    """Sums until something happens; tells the test when it is under way."""
    tensor = torch.ones(count)
    for i in range(100_000_000):
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        if i == said_first:
            tell("under way")


def serve(count, timeout):
    init(timeout=timeout)
    reduce_for_ever(count)


def again():
    """A new group in the same processes, after the fault."""
    destroy()
    with group():
        tensor = torch.full((10,), here.RANK + 1.0)
        dist.all_reduce(tensor)
        return tensor.tolist()


def fault(ranks, culprit, number, count, timeout=300.0):
    """The outcomes of the other ranks after a signal to one, and the seconds since."""
    ranks.start(serve, count, timeout)
    for rank in range(ranks.size):
        assert ranks.message(rank) == "under way"
    ranks.kill(culprit, number)
    began = time.monotonic()
    outcomes = ranks.outcomes(30, [rank for rank in range(ranks.size) if rank != culprit])
    return outcomes, time.monotonic() - began


@pytest.mark.parametrize("count", [100, 4_000_000], ids=["small", "large"])
def test_a_killed_rank_is_named_within_seconds(count):
    with Ranks(3) as ranks:
        outcomes, seconds = fault(ranks, 1, signal.SIGKILL, count)
        for outcome in outcomes:
            assert outcome.error == ERROR, outcome
            assert re.search(rf"\brank 1\b.*{ranks.pid(1)}", outcome.text), outcome.text
            assert "all_reduce" in outcome.text or outcome.text.endswith(" died"), outcome.text  # between two of them
            assert "\n" not in outcome.text.strip()
        assert seconds < 5


def test_a_stopped_rank_is_named_at_the_time_limit():
    with Ranks(3) as ranks:
        outcomes, seconds = fault(ranks, 2, signal.SIGSTOP, 4_000_000, timeout=2.0)
        for outcome in outcomes:
            assert outcome.error == ERROR, outcome
            assert "after 2.0 s rank 2 (" in outcome.text, outcome.text
        assert 1.9 < seconds < 10


def gather_for_ever(timeout):
    """An operation that the inner Gloo group serves."""
    init(timeout=timeout)
    for i in range(100_000_000):
        gather(10_000)
        if i == 3:
            tell("under way")


@pytest.mark.parametrize(("number", "timeout"), [(signal.SIGKILL, 300.0), (signal.SIGSTOP, 2.0)], ids=["killed", "stopped"])
@pytest.mark.parametrize("culprit", [0, 1], ids=["root", "other"])
def test_faults_in_an_operation_that_gloo_serves(culprit, number, timeout):
    with Ranks(3) as ranks:
        ranks.start(gather_for_ever, timeout)
        for rank in range(3):
            assert ranks.message(rank) == "under way"
        ranks.kill(culprit, number)
        for outcome in ranks.outcomes(30, [rank for rank in range(3) if rank != culprit]):
            assert outcome.error == ERROR, outcome
            assert re.search(rf"\brank {culprit}\b", outcome.text), outcome.text
            assert number == signal.SIGKILL or "gather" in outcome.text, outcome.text  # killed: perhaps between two of them


def leave(how):
    """Rank 1 goes while the others sum."""
    init(timeout=300.0)
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
    if here.RANK == 1:
        if how == "exit":
            os._exit(3)
        destroy()
        return
    dist.all_reduce(tensor)


@pytest.mark.parametrize("how", ["exit", "destroy"])
def test_a_rank_that_leaves(how):
    with Ranks(3) as ranks:
        ranks.start(leave, how)
        outcomes = ranks.outcomes(30)
        for outcome in (outcomes[0], outcomes[2]):
            assert outcome.error == ERROR and re.search(r"\brank 1\b", outcome.text), outcome


def never_alone():
    init(timeout=2.0)


def test_a_rank_that_never_comes():
    with Ranks(3) as ranks:
        ranks.start(never_alone, ranks=[0, 1])
        for outcome in ranks.outcomes(30, [0, 1]):
            assert outcome.failed and re.search(r"\b2\b", outcome.text), outcome
            assert 1.5 < outcome.seconds < 15


# --- ranks that disagree ---


def disagree(which):
    """Each rank makes its own of two calls; the error comes at once, and again from the next call."""
    first, second = DISAGREEMENTS[which]
    began = time.monotonic()
    with group():
        try:
            (second if here.RANK == 1 else first)()
            return "nothing was raised", "", 0
        except dist.DistBackendError as error:
            text = str(error)
        seconds = time.monotonic() - began
        try:
            dist.all_reduce(torch.ones(3))
            return text, "a call after the fault succeeds", seconds
        except dist.DistBackendError as error:
            return text, str(error), seconds


def gather(count=3):
    outputs = [torch.zeros(count) for _ in range(here.SIZE)] if here.RANK == 0 else None
    dist.gather(torch.ones(count), outputs, 0)


DISAGREEMENTS = {
    "operations": (lambda: dist.all_reduce(torch.ones(5)), lambda: dist.broadcast(torch.ones(5), 0)),
    "large operations": (lambda: dist.all_reduce(torch.ones(500_000)), lambda: dist.broadcast(torch.ones(500_000), 0)),
    "sizes": (lambda: dist.all_reduce(torch.ones(5)), lambda: dist.all_reduce(torch.ones(6))),
    "large sizes": (lambda: dist.all_reduce(torch.ones(500_000)), lambda: dist.all_reduce(torch.ones(500_001))),
    "types": (lambda: dist.all_reduce(torch.ones(5)), lambda: dist.all_reduce(torch.ones(5, dtype=torch.int32))),
    "reductions": (lambda: dist.all_reduce(torch.ones(5)), lambda: dist.all_reduce(torch.ones(5), dist.ReduceOp.MAX)),
    "roots": (lambda: dist.broadcast(torch.ones(5), 0), lambda: dist.broadcast(torch.ones(5), 1)),
    "gather and all_reduce": (gather, lambda: dist.all_reduce(torch.ones(5))),
    "all_reduce and gather": (lambda: dist.all_reduce(torch.ones(5)), gather),
    "barrier and all_reduce": (dist.barrier, lambda: dist.all_reduce(torch.ones(5))),
    "barrier and scatter": (dist.barrier, lambda: dist.scatter(torch.ones(2), None, 0)),
    "waits of async operations": (lambda: dist.all_reduce(torch.ones(5), async_op=True).wait(),
                                  lambda: dist.all_reduce(torch.ones(7), async_op=True).wait()),
}
# What both sides' texts must hold: of the one, and of the other.
SHOWN = {
    "operations": ("all_reduce", "broadcast"), "large operations": ("all_reduce", "broadcast"), "sizes": ("5", "6"),
    "large sizes": ("500000", "500001"), "types": ("f32", "i32"), "reductions": ("sum", "maximum"), "roots": ("0", "1"),
    "gather and all_reduce": ("gather", "all_reduce"), "all_reduce and gather": ("gather", "all_reduce"),
    "barrier and all_reduce": ("barrier", "all_reduce"), "barrier and scatter": ("barrier", "scatter"),
    "waits of async operations": ("5", "7"),
}


@pytest.mark.parametrize("which", DISAGREEMENTS)
def test_disagreements_show_both_sides_at_once(three, which):
    """Rank 1 calls something else than ranks 0 and 2."""
    for text, after, seconds in three.run(disagree, which, limit=30):
        for shown in SHOWN[which]:
            assert re.search(rf"(?<!\w){shown}(?!\w)", text, re.IGNORECASE), text
        assert re.search(r"rank [02]\b", text) and "rank 1" in text, text
        assert text.splitlines()[0] == text.strip()
        assert after and after != "a call after the fault succeeds", after
        assert seconds < 5


# --- errors come out where the user waits ---


def begin_and_wait():
    """Begins several, tells the test, and says where the error came out."""
    init(timeout=300.0)
    dist.barrier()
    tensors = [torch.ones(1_000_000) for _ in range(4)]
    if here.RANK == 1:
        tell("ready")
        signal.pause()
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    future = works[3].get_future()
    tell("begun")
    found = []
    for call in (*(work.wait for work in works), future.wait, lambda: dist.all_reduce(tensors[0])):
        try:
            call()
            found.append("done")
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    return found, torch.isnan(tensors[0]).all().item()


def test_async_operations_raise_where_they_are_waited_for():
    with Ranks(2) as ranks:
        ranks.start(begin_and_wait)
        assert (ranks.message(1), ranks.message(0)) == ("ready", "begun")
        ranks.kill(1)
        (outcome,) = ranks.outcomes(30, [0])
        assert not outcome.failed, outcome
        found, filled_with_nan = outcome.value
        assert len(found) == 6
        for what in found:
            assert what != "done" and "rank 1" in what[1], found
        # A future that raises in Python carries no more than the text.
        assert [kind for kind, _ in found[:4] + found[5:]] == [ERROR] * 5
        assert filled_with_nan


def wait_for_a_moment():
    """A wait with a limit of its own raises, and the group goes on when the other comes."""
    with group(timeout=60.0):
        tensor = torch.full((1000,), here.RANK + 1.0)
        raised = None
        if here.RANK == 0:
            work = dist.all_reduce(tensor, async_op=True)
            try:
                work.wait(timedelta(milliseconds=200))
            except RuntimeError as error:
                raised = type(error).__name__, str(error)
            tell("has raised")
            work.wait()
        else:
            here.hear()
            dist.all_reduce(tensor)
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        return raised, tensor.unique().tolist()


def test_a_wait_with_a_limit_leaves_the_group_whole():
    with Ranks(2) as ranks:
        ranks.start(wait_for_a_moment)
        assert ranks.message(0) == "has raised"
        ranks.say(1, "now")
        outcomes = ranks.outcomes(30)
    assert not any(outcome.failed for outcome in outcomes), outcomes
    raised, values = outcomes[0].value
    assert raised is not None and "rank 1" in raised[1] and "after 0.2 s" in raised[1], raised
    assert values == outcomes[1].value[1] == [3.0]


def train_until_the_end(view):
    init(timeout=300.0)
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(300, 300), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=0.3, gradient_as_bucket_view=view)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    inputs = torch.randn(8, 300)
    for step in range(100_000_000):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        if step == 4:
            tell("under way")


@pytest.mark.parametrize("view", [True, False], ids=["views", "copies"])
def test_a_fault_under_backward(view):
    with Ranks(3) as ranks:
        ranks.start(train_until_the_end, view)
        for rank in range(3):
            assert ranks.message(rank) == "under way"
        ranks.kill(0)
        for outcome in ranks.outcomes(30, [1, 2]):
            assert outcome.error in (ERROR, "RuntimeError") and "rank 0" in outcome.text, outcome


def test_a_new_group_after_a_fault(two):
    """In the same processes: after a disagreement, and after that once more."""
    for which in ("sizes", "gather and all_reduce"):
        two.run(disagree, which)
        two.run(init)
        assert two.run(again) == [[3.0] * 10] * 2


def survive():
    """The two that are left go on without the third."""
    destroy()
    store = dist.FileStore(os.path.join(here.DIRECTORY, "of the survivors"), 2)
    dist.init_process_group(BACKEND, store=store, rank=here.RANK, world_size=2, timeout=timedelta(seconds=60))
    tensor = torch.full((100_000,), here.RANK + 1.0)
    dist.all_reduce(tensor)
    destroy()
    return tensor.unique().tolist()


def test_survivors_make_a_group_of_their_own():
    with Ranks(3) as ranks:
        outcomes, _ = fault(ranks, 2, signal.SIGKILL, 1_000_000)
        assert [outcome.error for outcome in outcomes] == [ERROR] * 2
        ranks.start(survive, ranks=[0, 1])
        outcomes = ranks.outcomes(30, [0, 1])
        assert [outcome.value for outcome in outcomes] == [[3.0], [3.0]], outcomes


# --- whole programs ---

DIES = """
import os, signal, sys, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group(sys.argv[1])
tensor = torch.ones(1_000_000)
for i in range(100_000):
    dist.all_reduce(tensor)
    if i == 20 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_programs_end_with_a_status_that_is_not_zero(tmp_path):
    """Without torchrun, which would end the others itself."""
    script = tmp_path / "dies.py"
    script.write_text(DIES)
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(here.free_port()), "WORLD_SIZE": "2"}
    programs = [subprocess.Popen([sys.executable, script, BACKEND], env=environment | {"RANK": str(rank)},
                                 stderr=subprocess.PIPE, text=True) for rank in range(2)]
    try:
        texts = [program.communicate(timeout=60)[1] for program in programs]
    finally:
        for program in programs:
            program.kill()
    assert programs[1].returncode == -signal.SIGKILL
    assert programs[0].returncode == 1, texts[0]
    assert re.search(r"DistBackendError: .*rank 1\b", texts[0]), texts[0]
