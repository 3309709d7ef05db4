"""Two ranks: where status() says that buckets lie, and the hook's mean, sum error included."""

import subprocess
import sys
import textwrap

import pytest
from scripts import environment_of

START = """
    import sys
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    file, rank, backend = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    dist.init_process_group(backend, store=dist.FileStore(file, 2), rank=rank, world_size=2)
    import sumpter
"""


def run_ranks(tmp_path, script, backend="sumpter", **variables):
    """What both ranks print. Each is given the time that a slow machine needs, and no more."""
    line = [sys.executable, "-c", textwrap.dedent(START) + textwrap.dedent(script), tmp_path / "store"]
    ranks = [
        subprocess.Popen(
            [*line, str(rank), backend], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment_of(**variables)
        )
        for rank in range(2)
    ]
    try:
        printed = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], printed
    return [out for out, _ in printed]


BUCKETS = """
    before = sumpter.status()
    print(before.buckets, "|", before.reason)
    ddp = DistributedDataParallel(torch.nn.Linear(1000, 3), gradient_as_bucket_view=True)
    for _ in range(2):
        ddp(torch.full((1, 1000), float(rank))).sum().backward()
    after = sumpter.status()
    print(after.buckets, "|", after.reason, "|", ddp.module.weight.grad.unique().tolist(), "|", after.bucket_bytes >= 4 * 3003)
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("backend", ["sumpter", "cpu:sumpter"])
def test_buckets_in_place(extension, tmp_path, backend):
    for out in run_ranks(tmp_path, BUCKETS, backend):
        before, after = out.splitlines()
        assert before == "none yet | no DDP has asked for memory so far"
        where, why, gradients, held = after.split(" | ")
        assert where == "in place"
        assert why.startswith("DDP has taken ") and why.endswith(" from the arena")
        assert (gradients, held) == ("[1.0]", "True")  # two steps of a mean of 0.5


def test_buckets_staged_where_the_user_wants_that(extension, tmp_path):
    why = "DDP_DISABLE_COMM_MEM is '1' in the environment: DDP does not ask for the arena's memory"
    for out in run_ranks(tmp_path, BUCKETS, DDP_DISABLE_COMM_MEM="1"):
        assert out.splitlines() == [f"staged | {why}", f"staged | {why} | [1.0] | False"]


HOOK = """
    from sumpter import hooks

    def rounded(values):
        return values.to(torch.bfloat16).float()

    class Given(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(700))

        def forward(self, gradient):
            return (self.weight * gradient).sum()

    ddp = DistributedDataParallel(Given())
    parameter = ddp.module.weight
    state = hooks.CompressState(ddp.parameters(), wire="bf16")
    ddp.register_comm_hook(state, hooks.compress)

    def given(of_rank, step):
        return torch.rand(700, generator=torch.Generator().manual_seed(10 * step + of_rank))

    errors, sum_error = [torch.zeros(700), torch.zeros(700)], torch.zeros(700)
    for step in range(4):
        parameter.grad = None
        ddp(given(rank, step)).backward()
        sent = []
        for of_rank in range(2):
            exact = given(of_rank, step) + errors[of_rank]
            sent.append(rounded(exact))
            errors[of_rank] = exact - sent[-1]
        exact = (sent[0] + sent[1]) / 2 + sum_error
        wanted = rounded(exact)
        sum_error = exact - wanted
        saved = state.state_dict()
        print(
            torch.equal(parameter.grad, wanted),
            torch.equal(saved["errors"][0], errors[rank]),
            torch.equal(saved["sum_errors"][0], sum_error),
            bool(sum_error.any()),
        )
    dist.destroy_process_group()
"""


def test_the_hook_rounds_twice_and_keeps_both_errors(extension, tmp_path):
    assert run_ranks(tmp_path, HOOK) == ["True True True True\n" * 4] * 2
