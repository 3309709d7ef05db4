"""What goes wrong in a run says so."""

import json
import resource
import subprocess

import pytest
import torch
from safetensors.torch import load_file


def test_loss_that_is_not_finite(sumpter, tmp_path):
    done = sumpter.train("--learning-rate", "1e30", "--checkpoint", "c", "--checkpoint-every", "1steps", steps=50)
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if "error" in line]
    assert len(errors) == 1 and "the loss of step" in errors[0] and "learning rate" in errors[0]
    for checkpoint in (tmp_path / "c").glob("step-*"):
        assert all(value.isfinite().all() for value in load_file(checkpoint / "weights.safetensors").values())
    goes_on = sumpter.summary("--learning-rate", "1e30", "--allow-nonfinite", steps=8)
    assert goes_on["steps"] == 8


def test_little_memory_may_be_locked(sumpter):
    """Row 17 of what has bitten users: nothing that is needed is locked."""

    def limit():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))

    assert sumpter.train("--devices", "cpu:2", preexec_fn=limit).returncode == 0


def test_timeline_has_a_row_for_each_thread(sumpter, tmp_path):
    sumpter.summary("--devices", "cpu:2", "--reducers", "1", "--trace", "t.json", "--trace-first", "1", "--trace-steps",
                    "3", "--chunk", "1layers", steps=8)
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    rows = {event["args"]["name"] for event in events if event.get("name") == "thread_name"}
    assert {"replica 0", "replica 1"} <= rows
    names = {event["name"] for event in events}
    assert {"forward", "backward", "sum", "update"} <= names
    steps = {event["args"]["step"] for event in events if event["name"] == "backward"}
    assert steps == {1, 2, 3}


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (torch.nn.Linear(784, 784), torch.nn.Linear(784, 784), torch.nn.Linear(784, 10))
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.c(torch.relu(self.b(torch.relu(self.a(x.flatten(1))))))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("update", ["device", "host"])
def test_torchscript_with_tied_parameters_resumes(sumpter, tmp_path, update):
    torch.jit.script(Tied()).save(str(tmp_path / "m.pt"))
    run = ["--model", "m.pt", "--digest", "--devices", "cpu:2", "--batch-size", "16", "--optimizer", "adam", "--update", update]
    data = "synthetic:rows=200,test_rows=16,shape=1x28x28"
    whole = sumpter.summary(*run, data=data, steps=9)
    # Written while the next step's forward has begun.
    sumpter.summary(*run, "--checkpoint", "c", "--checkpoint-every", "5steps", "--keep", "9", data=data, steps=8)
    for step in ["step-000000008", "latest"]:
        subprocess.run(["rm", "-r", tmp_path / "c" / step], check=True)
    resumed = sumpter.summary(*run, "--checkpoint", "c", "--resume", data=data, steps=9)
    assert (resumed["first_step"], resumed["digest"]) == (5, whole["digest"])
    weights = load_file(tmp_path / "c" / "latest" / "weights.safetensors")
    assert (weights["a.weight"] == weights["b.weight"]).all()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("model", ["script", "script with dropout"])
def test_torchscript(sumpter, tmp_path, refused, model):
    layers = [torch.nn.Flatten(), torch.nn.Linear(784, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)]
    if model != "script":
        layers.insert(3, torch.nn.Dropout(0.5))
    torch.jit.script(torch.nn.Sequential(*layers)).save(str(tmp_path / "m.pt"))
    data = "synthetic:rows=512,test_rows=256,shape=1x28x28"
    run = ["--model", "m.pt", "--digest"]
    if model == "script":
        device = sumpter.summary(*run, "--devices", "cpu:3", data=data, steps=12)
        host = sumpter.summary(*run, "--devices", "cpu:3", "--update", "host", data=data, steps=12)
        assert device["digest"] == host["digest"]
        return
    assert "draws random numbers" in refused(*run, "--devices", "cpu:2", data=data)
    assert sumpter.summary(*run, "--devices", "cpu:2", "--allow-nondeterministic", data=data)["steps"] == 4
    whole = sumpter.summary(*run, data=data, steps=9)
    sumpter.summary(*run, "--checkpoint", "c", data=data, steps=4)
    assert sumpter.summary(*run, "--checkpoint", "c", "--resume", data=data, steps=9)["digest"] == whole["digest"]
