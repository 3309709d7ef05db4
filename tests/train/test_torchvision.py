"""The vision models are torchvision's: names and shapes of what they hold, losses, gradients, buffers, scores."""

import os
import pathlib
import subprocess

import pytest
import torch
from command import write_idx

torchvision = pytest.importorskip("torchvision")
from safetensors.torch import load_file, save_file  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROBE = pathlib.Path(os.environ.get("SUMPTER_MODEL_PROBE", ROOT / "build" / "release" / "tests" / "model_probe"))
CLASSES = 10
# Sides of the images and rows: small, and with more than one value a channel wherever batches are normalized.
MODELS = {
    "alexnet": (96, 3),
    "googlenet": (64, 4),
    "vgg16": (64, 2),
    "resnet18": (64, 4),
    "resnet50": (64, 4),
    "resnet152": (64, 2),
}
TOLERANCE = 1e-4


def torchvision_model(name):
    torch.manual_seed(5)
    options = {"init_weights": True} if name == "googlenet" else {}
    model = getattr(torchvision.models, name)(weights=None, num_classes=CLASSES, **options)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        # Away from what they are at first, where an exchange of two of them would not be seen.
        if isinstance(module, torch.nn.BatchNorm2d):
            for tensor in (module.weight, module.bias, module.running_mean):
                torch.nn.init.normal_(tensor, float(tensor is module.weight), 0.1)
            torch.nn.init.uniform_(module.running_var, 0.5, 1.5)
    # googlenet's own would make all gradients vanish but the last layers'.
    if name == "googlenet":
        for module in model.modules():
            if isinstance(module, torch.nn.Conv2d | torch.nn.Linear):
                torch.nn.init.kaiming_normal_(module.weight)
    return model


def training_loss(model, values, labels):
    model.train()
    outputs = model(values)
    loss = torch.nn.functional.cross_entropy
    if isinstance(outputs, torch.Tensor):
        return loss(outputs, labels)
    return loss(outputs.logits, labels) + 0.3 * (loss(outputs.aux_logits1, labels) + loss(outputs.aux_logits2, labels))


def distance(a, b):
    """Relative to b, in the 2-norm."""
    a, b = a.double(), b.double()
    return float((a - b).norm() / b.norm().clamp_min(1e-30))


@pytest.mark.parametrize("name", MODELS)
def test_same_as_torchvision(name, tmp_path):
    if not PROBE.exists():
        pytest.fail(f"{PROBE} is not there: build it, or name another by SUMPTER_MODEL_PROBE")
    side, rows = MODELS[name]
    model = torchvision_model(name)
    values = torch.randn(rows, 3, side, side)
    labels = torch.randint(CLASSES, (rows,))
    state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    save_file({**state, "values": values, "labels": labels}, tmp_path / "in.safetensors")
    command = [PROBE, name, str(CLASSES), tmp_path / "in.safetensors", tmp_path / "out.safetensors"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = load_file(tmp_path / "out.safetensors")

    keys = done.stdout.split()
    assert keys == list(state)
    model.eval()
    with torch.no_grad():
        assert distance(found["scores"], model(values)) < TOLERANCE
    loss = training_loss(model, values, labels)
    loss.backward()
    assert distance(found["loss"], loss.detach()) < TOLERANCE
    for key, tensor in model.state_dict().items():
        got = found[f"state.{key}"]
        assert got.shape == tensor.shape, key
        if tensor.is_floating_point():
            assert distance(got, tensor) < TOLERANCE, key
        else:
            assert torch.equal(got, tensor), key
    for key, parameter in model.named_parameters():
        assert parameter.grad.norm() > 0, key
        assert distance(found[f"gradient.{key}"], parameter.grad) < TOLERANCE, key
    assert len(found) == len(state) + len(list(model.parameters())) + 2


def test_what_is_evaluated_is_what_is_saved(sumpter, tmp_path):
    """With batch norm every replica has running statistics of its own: rank 0's are evaluated, and saved."""
    torch.manual_seed(3)
    images = torch.randint(0, 256, (40, 32, 32), dtype=torch.uint8)
    labels = torch.arange(40, dtype=torch.uint8) % CLASSES
    for prefix in ("train", "t10k"):
        write_idx(tmp_path / "data", prefix, images.numpy(), labels.numpy())
    summary = sumpter.summary("--model", "resnet18", "--devices", "cpu:3", "--batch-size", "12", "--weights", "w", data="data",
                              steps=3)
    model = torchvision.models.resnet18(num_classes=CLASSES)
    model.load_state_dict(load_file(tmp_path / "w"))
    with torch.no_grad():
        values = (images[:, None].float() / 127.5 - 1).repeat(1, 3, 1, 1)
        loss = torch.nn.functional.cross_entropy(model.eval()(values), labels.long()).item()
    assert summary["evaluation"]["loss"] == pytest.approx(loss, rel=1e-4)
