"""Real clients of torch.distributed, unchanged but for the backend's name: they train as with Gloo."""

import json
import pathlib
import re

import pytest
import torch
from ranks import BACKEND, OURS, torchrun

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "ddp_fashion_mnist.py"
LENGTH = ["--rows", 1920, "--batch-size", 32]
CLIENTS = pathlib.Path(__file__).resolve().parent / "clients"


def run_example(backend, checkpoint):
    """Loss, accuracy and the checkpoint after one epoch: 30 steps."""
    output = torchrun(EXAMPLE, "--backend", backend, *LENGTH, "--checkpoint", checkpoint)
    line = re.fullmatch(r"epoch 1: loss ([\d.]+), accuracy ([\d.]+)%, ([\d.]+) ms a step \((\w+), 2 ranks\)\n", output)
    assert line and line[4] == backend, output
    return float(line[1]), float(line[2]), torch.load(checkpoint, weights_only=True)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return run_example(BACKEND, tmp_path_factory.mktemp("trained") / "checkpoint.pt")


def test_the_example(trained, tmp_path):
    loss, accuracy, state = trained
    other_loss, other_accuracy, other_state = run_example("gloo", tmp_path / "checkpoint.pt")
    assert accuracy > 50
    assert loss == pytest.approx(other_loss, abs=1e-3) and accuracy == pytest.approx(other_accuracy, abs=0.1)
    for name, tensor in other_state["model"].items():
        torch.testing.assert_close(state["model"][name], tensor, rtol=1e-4, atol=1e-5)


KILLS_ITSELF = """
import os, pathlib, runpy, signal, sys, torch
mark, limit = pathlib.Path(sys.argv.pop(1)), int(sys.argv.pop(1))
steps, step = 0, torch.optim.SGD.step
def counted(*arguments, **kwargs):
    global steps
    steps += 1
    if steps == limit and os.environ["RANK"] == "1" and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return step(*arguments, **kwargs)
torch.optim.SGD.step = counted
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.skipif(not OURS, reason="Gloo does not promise that the others notice")
def test_torchrun_restarts_and_the_example_goes_on(trained, tmp_path):
    """Rank 1 kills itself in step 12, the checkpoint is of step 10: the end is that of a run without a fault."""
    (tmp_path / "kills_itself.py").write_text(KILLS_ITSELF)
    mark, checkpoint = tmp_path / "was killed", tmp_path / "checkpoint.pt"
    output = torchrun("--max-restarts", 1, tmp_path / "kills_itself.py", mark, 12, EXAMPLE, "--backend", BACKEND, *LENGTH,
                      "--checkpoint-every", 5, "--checkpoint", checkpoint, "--resume")
    assert mark.exists()
    assert "resumed at epoch 1, step 10" in output
    state = torch.load(checkpoint, weights_only=True)
    assert all(torch.equal(state["model"][name], tensor) for name, tensor in trained[2]["model"].items())
    assert (state["epoch"], state["step"]) == (1, 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.pt", "kills_itself.py", "was killed"]


def check_client(name):
    # Gloo cannot be made twice over the store of one torchrun.
    output = torchrun(CLIENTS / f"{name}_client.py", *dict.fromkeys(["gloo", BACKEND]))
    found = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    gloo, ours = found[0], found[-1]
    assert len(found) == (2 if OURS else 1)
    assert (gloo["backend"], ours["backend"]) == ("gloo", BACKEND)
    assert len(gloo["losses"]) == 8 and gloo["losses"][-1] < gloo["losses"][0]
    assert ours["losses"] == pytest.approx(gloo["losses"], rel=1e-6)
    return gloo, ours


def test_lightning():
    gloo, ours = check_client("lightning")
    assert ours["mean"] == pytest.approx(gloo["mean"], rel=1e-6)


def test_accelerate():
    _, ours = check_client("accelerate")
    assert (ours["ranks"], ours["wrapped"]) == (2, "DistributedDataParallel")


@pytest.mark.skipif(not OURS, reason="asks what only Sumpter has")
@pytest.mark.prove
def test_the_example_learns(tmp_path):
    """The whole set, with both backends: the accuracy of one is that of the other."""
    found = {}
    for backend in ("gloo", BACKEND):
        output = torchrun(EXAMPLE, "--backend", backend, "--epochs", 2, limit=900)
        print("\n" + output)
        found[backend] = float(re.findall(r"accuracy ([\d.]+)%", output)[-1])
    assert found[BACKEND] > 87
    assert found[BACKEND] == pytest.approx(found["gloo"], abs=0.5)
