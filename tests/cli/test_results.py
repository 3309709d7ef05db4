"""What a run leaves behind: its summary, metrics, digest and weights."""

import json
import re
import struct

import pytest

STEP_KEYS = ["event", "step", "epoch", "rows", "loss", "learning_rate", "gradient_norm", "seconds", "seconds_exchange", "seconds_input"]


def read_lines(path):
    text = path.read_text()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text), "control characters"
    return [json.loads(line) for line in text.splitlines()]


def test_summary_for_people(sumpter):
    done = sumpter.train("--devices", "cpu:2", "--digest")
    assert done.returncode == 0, done.stderr
    for pattern in [r"lenet, 431080 parameters", r"4 steps, 512 rows in all, on cpu:2, update=device", r"% of the step",
                    r"top-1 \d+\.\d+%.* on 256 rows", r"digest +[0-9a-f]{32}\n"]:
        assert re.search(pattern, done.stdout), pattern
    assert "\x1b" not in done.stdout + done.stderr and "\r" not in done.stdout + done.stderr


def test_quiet_says_nothing_but_the_result(sumpter):
    done = sumpter.train("--quiet", "--json")
    assert done.stderr == "" and len(done.stdout.splitlines()) == 1


def test_metrics(sumpter, tmp_path):
    # 300 rows: batches of 128, 128 and 44.
    summary = sumpter.summary("--metrics", "m.jsonl", "--epochs", 2, "--devices", "cpu:2", "--chunk", "1layers",
                              steps=None, data="synthetic:rows=300,test_rows=50")
    lines = read_lines(tmp_path / "m.jsonl")
    assert [line["event"] for line in lines] == ["step"] * 3 + ["evaluation"] + ["step"] * 3 + ["evaluation", "end"]
    steps = [line for line in lines if line["event"] == "step"]
    assert all(list(step) == STEP_KEYS for step in steps)
    assert [step["step"] for step in steps] == list(range(6))
    assert [step["epoch"] for step in steps] == [0, 0, 0, 1, 1, 1]
    assert [step["rows"] for step in steps] == [128, 128, 44] * 2
    assert all(0 <= step["seconds_exchange"] <= step["seconds"] for step in steps)
    assert all(0 <= step["seconds_input"] <= step["seconds"] for step in steps)
    end = lines[-1]
    assert {key: value for key, value in end.items() if key != "event"} == summary
    assert end["rows"] == 600 and end["steps"] == 6 and end["loss"] == steps[-1]["loss"]
    assert end["chunks_per_step"] == 4 and end["chunks"] == 24
    assert end["pieces"] == sum(end["pieces_of_replicas"]) + sum(end["pieces_of_reducers"]) > 0
    assert end["bytes"] >= 6 * 2 * 431080 * 4, "both replicas' gradients are read in every step"
    assert end["evaluation"]["rows"] == 50


def test_metrics_of_a_full_disk(sumpter):
    done = sumpter.train("--metrics", "/dev/full")
    assert done.returncode == 1
    assert done.stderr.count("--metrics /dev/full: cannot be written: No space left on device") == 1
    assert "top-1" in done.stdout, "the training itself went on"


def test_weights_load_in_python(sumpter, tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    sumpter.summary("--weights", "w.safetensors", "--devices", "cpu:2", "--update", "host")
    weights = safetensors.load_file(tmp_path / "w.safetensors")
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == {
        "conv1.weight": (20, 1, 5, 5), "conv1.bias": (20,), "conv2.weight": (50, 20, 5, 5), "conv2.bias": (50,),
        "fc1.weight": (500, 800), "fc1.bias": (500,), "fc2.weight": (10, 500), "fc2.bias": (10,)}
    assert all(tensor.isfinite().all() and tensor.abs().sum() > 0 for tensor in weights.values())
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"], "no temporary file is left"


def test_weights_give_the_evaluation_of_the_run(sumpter, tmp_path):
    """The model, run by torch in Python on the file's weights, has the loss that the run ended with."""
    torch = pytest.importorskip("torch")
    safetensors = pytest.importorskip("safetensors.torch")
    write_idx(tmp_path)
    summary = sumpter.summary("--weights", "w.safetensors", "--devices", "cpu:2", "--batch-size", 16, data=tmp_path)
    weights = safetensors.load_file(tmp_path / "w.safetensors")
    pixels, labels = idx_values(40)
    x = (torch.frombuffer(pixels, dtype=torch.uint8).view(40, 1, 28, 28) / 255 - 0.5) / 0.5
    x = torch.max_pool2d(torch.conv2d(x, weights["conv1.weight"], weights["conv1.bias"]), 2)
    x = torch.max_pool2d(torch.conv2d(x, weights["conv2.weight"], weights["conv2.bias"]), 2)
    x = torch.relu(x.flatten(1) @ weights["fc1.weight"].T + weights["fc1.bias"])
    x = x @ weights["fc2.weight"].T + weights["fc2.bias"]
    loss = torch.nn.functional.cross_entropy(x, torch.tensor(list(labels)))
    assert summary["evaluation"]["loss"] == pytest.approx(loss.item(), abs=1e-4)


def idx_values(rows):
    return bytearray((i * i // 7 + i) % 256 for i in range(rows * 784)), bytes(i * 3 % 10 for i in range(rows))


def write_idx(directory):
    """Data sets as MNIST's, of 40 rows each."""
    pixels, labels = idx_values(40)
    for prefix in ["train", "t10k"]:
        (directory / f"{prefix}-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, 40, 28, 28) + pixels)
        (directory / f"{prefix}-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, 40) + labels)


def test_damaged_data_fails_with_its_file(sumpter, tmp_path):
    write_idx(tmp_path)
    images = tmp_path / "train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-100])
    done = sumpter.train(data=tmp_path)
    assert done.returncode == 1 and "train-images-idx3-ubyte" in done.stderr


def test_loss_that_is_not_finite(sumpter, tmp_path):
    done = sumpter.train("--learning-rate", "1e30", "--weights", "w.safetensors", "--metrics", "m.jsonl", "--devices",
                         "cpu:3", steps=50)
    assert done.returncode == 1
    assert done.stderr.count("the loss of step") == 1 and "smaller learning rate" in done.stderr
    assert not (tmp_path / "w.safetensors").exists()
    assert len(read_lines(tmp_path / "m.jsonl")) < 50
