"""Long checks: convergence with lossy wires, a text model, and a run of 20,000 steps."""

import json
import pathlib
import statistics
import subprocess
import time

import pytest

FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
LICENSES = pathlib.Path("/usr/share/common-licenses")
pytestmark = pytest.mark.prove

WIRES = {
    "f32": [],
    "bf16": ["--gradient-wire", "bf16"],
    "bf16 with feedback": ["--gradient-wire", "bf16", "--error-feedback", "on"],
    "i8 with feedback": ["--gradient-wire", "i8"],
    "i8": ["--gradient-wire", "i8", "--error-feedback", "off"],
}


def test_lossy_gradients_learn_as_well(sumpter):
    """Within half a point of the accuracy with f32, the mean of three seeds; i8 without feedback is shown only."""
    found = {}
    for name, options in WIRES.items():
        runs = [sumpter.summary("--model", "lenet", "--devices", "cpu:2", "--learning-rate", "0.05", "--epochs", "2",
                                "--seed", seed, *options, data=FASHION, steps=None, timeout=600) for seed in range(3)]
        found[name] = [100 * run["evaluation"]["top1"] for run in runs]
    print("\nlenet on Fashion-MNIST, 2 epochs, 2 replicas: top-1 for seeds 0, 1, 2, and their mean")
    for name, values in found.items():
        print(f"{name:<20}", *(f"{value:6.2f}" for value in values), f"  {statistics.mean(values):6.2f}")
    for name in ("bf16 with feedback", "i8 with feedback"):
        assert abs(statistics.mean(found[name]) - statistics.mean(found["f32"])) <= 0.5, name


def test_gpt_learns_a_text_and_resumes(sumpter):
    run = ["--model", "gpt", "--devices", "cpu:2", "--batch-size", "32", "--optimizer", "adamw", "--learning-rate",
           "0.002", "--weight-decay", "0.1", "--decay-weights-only", "--clip-norm", "1", "--warmup", "20", "--digest"]
    began = time.monotonic()
    whole = sumpter.summary(*run, data=LICENSES, steps=600, timeout=1200)
    print(f"\ngpt on {LICENSES}: loss {whole['loss']:.3f} in training, {whole['evaluation']['loss']:.3f} on the test "
          f"text after {whole['steps']} steps, {time.monotonic() - began:.0f} s")
    assert whole["loss"] < 2.0
    sumpter.summary(*run, "--checkpoint", "c", data=LICENSES, steps=123, timeout=1200)
    resumed = sumpter.summary(*run, "--checkpoint", "c", "--resume", data=LICENSES, steps=600, timeout=1200)
    assert (resumed["first_step"], resumed["digest"]) == (123, whole["digest"])


def held_by(process):
    """Resident KiB, threads and descriptors."""
    directory = pathlib.Path(f"/proc/{process.pid}")
    status = dict(line.split(":", 1) for line in (directory / "status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]), int(status["Threads"]), len(list((directory / "fd").iterdir()))


def test_twenty_thousand_steps_hold_no_more_than_the_first_hundred(sumpter, tmp_path):
    """An epoch has 32 steps, so that the first hundred have evaluations and checkpoints too."""
    process = sumpter.start("--model", "mlp", "--devices", "cpu:2", "--batch-size", "32", "--metrics", "m.jsonl",
                            "--checkpoint", "c", "--checkpoint-every", "40steps", "--reducers", "1", "--quiet",
                            data="synthetic:rows=1024,test_rows=256", steps=20_000, stdout=subprocess.DEVNULL)
    held = {}
    metrics = tmp_path / "m.jsonl"
    done = 0
    while process.poll() is None:
        time.sleep(0.02)
        lines = metrics.read_bytes()[-2000:].splitlines() if metrics.exists() else []
        steps = [line for line in lines[1:] if line.startswith(b'{"event":"step"') and line.endswith(b"}")]
        done = json.loads(steps[-1])["step"] if steps else done
        if 100 <= done and "first" not in held:
            held["first"] = held_by(process)
        if done >= 19_500 and "last" not in held:
            held["last"] = held_by(process)
    assert process.returncode == 0
    print("\nresident KiB, threads, descriptors:", held)
    assert held["last"][1:] == held["first"][1:]
    assert held["last"][0] <= 1.02 * held["first"][0] + 2048
