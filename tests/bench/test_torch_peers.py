"""The peers of torch.distributed themselves, with gloo: they verify what they measure, and end together."""

import os
import signal

import pytest

import ddp
from peer import Fault, Peer
from peers import programs

LIMIT = 120


@pytest.mark.parametrize("backend", ["gloo", "none", "alone"])
def test_ddp_step(backend):
    with Peer(backend, programs.ddp_step(2, "8-6-4", 3, backend), time_limit=LIMIT) as peer:
        assert peer.round("step", 2) > 0
    assert peer.process.returncode == 0


@pytest.mark.parametrize("model", ddp.PARAMETERS)
def test_models_have_the_parameters_that_the_table_says(model, monkeypatch):
    torch = pytest.importorskip("torch")
    if model != "mlp60m":
        pytest.importorskip("torchvision")
    monkeypatch.syspath_prepend(programs.HERE)
    import ddp_step
    with torch.device("meta"):
        net, _, _ = ddp_step.build(model)
    assert sum(parameter.numel() for parameter in net.parameters()) == ddp.PARAMETERS[model]


def test_collectives_are_verified_and_timed():
    with Peer("gloo", programs.torch_collectives(2), time_limit=LIMIT) as peer:
        assert peer.round("4096", 2) > 0  # as `sumpter bench exchange` asks for an all_reduce
        for operation in ("all_reduce", "broadcast", "all_gather", "reduce_scatter"):
            assert peer.round(f"{operation} 4096", 1) > 0
            assert peer.round(f"{operation} sequence 4096", 3) > 0
        with pytest.raises(Fault, match="answered 'error ValueError: 'send' is not one of all_reduce, broadcast, "):
            peer.round("send 4096", 1)


def test_what_does_not_divide():
    with Peer("gloo", programs.torch_collectives(2), time_limit=LIMIT) as peer:
        with pytest.raises(Fault, match="error ValueError: 3 float32 are not the same number for each of 2 ranks"):
            peer.round("all_gather 12", 1)


def spoiled(tmp_path, lines):
    """Environment of a Python that runs these lines before its program."""
    (tmp_path / "sitecustomize.py").write_text("import torch.distributed as dist\n" + lines)
    return {"PYTHONPATH": str(tmp_path)}


def test_a_wrong_value_ends_the_bench(tmp_path):
    environment = spoiled(tmp_path, "dist.broadcast = lambda values, source: None\n")
    with Peer("gloo", programs.torch_collectives(2), environment, time_limit=LIMIT) as peer:
        assert peer.round("all_reduce 64", 1) > 0
        with pytest.raises(Fault, match="error ValueError: broadcast of 64 bytes in torch.empty: 16 elements are"):
            peer.round("broadcast 64", 1)


def test_wrong_gradients_end_the_bench(tmp_path):
    environment = spoiled(tmp_path, "import torch\nimport torch.nn.parallel as parallel\n"
                          "parallel.DistributedDataParallel = lambda net, **options: net\n")
    with pytest.raises(Fault, match=r"said 'error ValueError: mean of the gradients: \d+ elements are wrong'"):
        Peer("gloo", programs.ddp_step(2, "8-6-4", 3, "gloo"), environment, time_limit=LIMIT)


def test_a_rank_that_dies():
    with Peer("gloo", programs.torch_collectives(2), time_limit=LIMIT) as peer:
        number = peer.process.pid
        with open(f"/proc/{number}/task/{number}/children") as file:
            other, = map(int, file.read().split())
        os.kill(other, signal.SIGKILL)
        with pytest.raises(Fault, match="peer gloo, told '4096 1', answered 'error RuntimeError: "):
            peer.round("4096", 1)
