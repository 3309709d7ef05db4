"""Four replicas of eight rows against one replica and against the same loop in Python's torch."""

import itertools

import numpy
import pytest
import torch
from command import write_idx
from safetensors.torch import load_file, save_file
from torch import nn

ROWS, STEPS = 32, 50  # a batch is the whole data set, so the order of rows does not matter

# Rates at which two runs of torch that add up the rows in another order stay together: at larger ones a tie between two
# pixels of a maximum, or Adam's step for a gradient of nearly zero, goes the other way and parts them by 1e-3.
OPTIMIZERS = {
    "sgd": (["--optimizer", "sgd", "--momentum", "0.9", "--weight-decay", "0.01"],
            lambda p: torch.optim.SGD(p, lr=0.005, momentum=0.9, weight_decay=0.01)),
    "nesterov": (["--optimizer", "sgd", "--learning-rate", "0.001", "--momentum", "0.9", "--nesterov"],
                 lambda p: torch.optim.SGD(p, lr=0.001, momentum=0.9, nesterov=True)),
    "adam": (["--optimizer", "adam", "--learning-rate", "0.000002", "--weight-decay", "0.01"],
             lambda p: torch.optim.Adam(p, lr=0.000002, weight_decay=0.01)),
    "adamw": (["--optimizer", "adamw", "--learning-rate", "0.000002", "--weight-decay", "0.1"],
              lambda p: torch.optim.AdamW(p, lr=0.000002, weight_decay=0.1)),
}
CLIP = 0.5
TYPES = {"float32": torch.float32, "float64": torch.float64}
# Every optimizer, model, type and both ways of clipping in what `make test` runs; all of their combinations are long.
SAMPLE = [("mlp", "sgd", "float32", True), ("lenet", "nesterov", "float64", False), ("lenet", "adam", "float32", False),
          ("mlp", "adamw", "float64", True)]
REST = [case for case in itertools.product(("lenet", "mlp"), OPTIMIZERS, TYPES, (False, True)) if case not in SAMPLE]


class Lenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 20, 5), nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = nn.Linear(800, 500), nn.Linear(500, 10)

    def forward(self, x):
        x = nn.functional.max_pool2d(self.conv1(x), 2)
        x = nn.functional.max_pool2d(self.conv2(x), 2).flatten(1)
        return self.fc2(torch.relu(self.fc1(x)))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 512), nn.Linear(512, 512), nn.Linear(512, 10)

    def forward(self, x):
        x = torch.relu(self.fc1(x.flatten(1)))
        return self.fc3(torch.relu(self.fc2(x)))


MODELS = {"lenet": Lenet, "mlp": Mlp}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    random = numpy.random.default_rng(3)
    images = random.integers(0, 256, (ROWS, 28, 28), dtype=numpy.uint8)
    labels = random.integers(0, 10, ROWS, dtype=numpy.uint8)
    directory = tmp_path_factory.mktemp("reference") / "data"
    write_idx(directory, "train", images, labels)
    return directory, images, labels


@pytest.fixture(scope="module")
def reference(data):
    """Initial and final parameters of the loop in torch, made once for each case."""
    made = {}

    def get(model, optimizer, dtype, clip):
        key = (model, optimizer, dtype, clip)
        if key not in made:
            made[key] = run_torch(*key, *data[1:])
        return made[key]

    return get


def run_torch(model, optimizer, dtype, clip, images, labels):
    torch.manual_seed(5)
    network = MODELS[model]().to(dtype)
    initial = {name: value.clone() for name, value in network.state_dict().items()}
    inputs = torch.from_numpy(images)[:, None].to(dtype).div(255).sub(0.5).div(0.5)
    targets = torch.from_numpy(labels).long()
    optimizing = OPTIMIZERS[optimizer][1](network.parameters())
    for _ in range(STEPS):
        optimizing.zero_grad()
        nn.functional.cross_entropy(network(inputs), targets).backward()
        if clip:
            nn.utils.clip_grad_norm_(network.parameters(), CLIP)
        optimizing.step()
    return initial, network.state_dict()


def distance(found, expected, optimizer):
    """Of SGD the largest over the tensors, of Adam that of all together."""
    if optimizer in ("sgd", "nesterov"):
        return max(((found[n] - expected[n]).norm() / expected[n].norm()).item() for n in expected)
    flat = [torch.cat([values[n].flatten() for n in expected]) for values in (found, expected)]
    return ((flat[0] - flat[1]).norm() / flat[1].norm()).item()


@pytest.mark.parametrize("model, optimizer, dtype, clip",
                         SAMPLE + [pytest.param(*case, marks=pytest.mark.prove) for case in REST])
def test_trains_as_torch_does(sumpter, tmp_path, data, reference, model, optimizer, dtype, clip):
    initial, expected = reference(model, optimizer, TYPES[dtype], clip)
    save_file(initial, tmp_path / "initial.safetensors")

    def train(devices, *options):
        summary = sumpter.summary(
            "--model", model, "--devices", devices, "--batch-size", ROWS, "--init", "initial.safetensors",
            "--dtype", dtype, *OPTIMIZERS[optimizer][0],
            *(["--clip-norm", CLIP] if clip else []), "--weights", "w.safetensors", "--digest", *options,
            data=data[0], steps=STEPS)
        return load_file(tmp_path / "w.safetensors"), summary["digest"]

    limit = 1e-5 if dtype == "float32" else 1e-10
    device, device_digest = train("cpu:4")
    assert distance(device, expected, optimizer) <= limit
    one, _ = train("cpu:1", "--update", "host")
    assert distance(device, one, optimizer) <= limit
    _, host_digest = train("cpu:4", "--update", "host", "--reducers", "2")
    assert host_digest == device_digest
    accumulated, _ = train("cpu:2", "--accumulate", "3", "--update", "host")
    assert distance(accumulated, expected, optimizer) <= limit
