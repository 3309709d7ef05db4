"""What is wrong with a request is said in one line that names the option, what was given and what is possible."""

import json

import pytest

PLAN = {
    "format": 1, "replicas": 2, "route": "host", "chunk": "64KiB", "piece": "4KiB", "gradient_wire": "f32",
    "parameter_wire": "f32", "error_feedback": False, "update": "host", "preload": 1, "reducers": 1, "accumulate": 1,
    "clip": False,
}


@pytest.mark.parametrize("devices", ["cuda:2", "cpu:0", "cpu:-1", "cpu:65", "cpu", "cpu:two", "emulated:2"])
def test_devices(refused, devices):
    line = refused("--devices", devices)
    assert f"--devices: '{devices}'" in line and "cpu:N" in line and "64" in line


@pytest.mark.parametrize("option, value, possible", [
    ("--batch-size", "0", "from 1 to"),
    ("--batch-size", "-3", "from 1 to"),
    ("--batch-size", "many", "from 1 to"),
    ("--steps", "0", "from 1 to"),
    ("--threads-per-replica", "0", "from 1 to"),
    ("--seed", "-1", "from 0 to"),
    ("--reducers", "65", "from 0 to 64"),
    ("--preload", "-1", "from 0 to"),
    ("--learning-rate", "-0.1", "from 0 to"),
    ("--learning-rate", "nan", "from 0 to"),
    ("--momentum", "x", "from 0 to"),
    ("--weight-decay", "-1", "from 0 to"),
])
def test_numbers(refused, option, value, possible):
    line = refused(option, value, steps=None if option == "--steps" else 4)
    assert f"{option}: '{value}'" in line and possible in line


@pytest.mark.parametrize("option, value, words", [
    ("--route", "scenic", ["scenic", "host"]),
    ("--update", "never", ["never", "device", "host"]),
    ("--chunk", "0", ["0"]),
    ("--chunk", "3bananas", ["3bananas", "64KiB"]),
    ("--piece", "big", ["big"]),
    ("--model", "alexnot", ["alexnot", "lenet", "mlp60m"]),
    ("--model", "mlp:784", ["mlp:784-512-10"]),
    ("--data", "/nowhere", ["/nowhere", "synthetic"]),
    ("--data", "synthetic:colour=red", ["colour", "shape"]),
    ("--weights", "/nowhere/w.safetensors", ["/nowhere", "does not exist"]),
    ("--metrics", "/nowhere/m.jsonl", ["/nowhere/m.jsonl"]),
    ("--plan", "/nowhere/plan.json", ["/nowhere/plan.json"]),
])
def test_words(refused, option, value, words):
    line = refused(option, value) if option != "--data" else refused(data=value)
    assert option in line
    for word in words:
        assert word in line


def test_piece_that_no_exchange_takes(refused):
    assert "piece" in refused("--piece", "100")


def test_steps_and_epochs(refused):
    assert "--epochs or --steps" in refused("--epochs", 1)
    assert "--epochs or --steps" in refused(steps=None)


def test_data_is_needed(sumpter):
    done = sumpter("train", "--steps", 1)
    assert done.returncode == 2 and "--data" in done.stderr


def test_data_that_the_model_does_not_take(refused):
    assert "takes 3072 values" in refused("--model", "mlp60m", data="synthetic:shape=1x28x28")
    assert "tells 3 classes apart and the data has 5" in refused("--model", "mlp:784-3", data="synthetic:classes=5")


def test_unknown_options(refused):
    for option in ["--gradient_wire", "--nonsense"]:
        assert option in refused(option, "x")


@pytest.mark.parametrize("option", ["--weights", "--checkpoint", "--metrics", "--devices", "--gradient-wire", "--augment"])
def test_empty_values(refused, option):
    """As of a variable of the shell that is not set."""
    assert option in refused(option, "")


@pytest.mark.parametrize("options, words", [
    (["--parameter-wire", "bf16"], ["parameter_wire", "update"]),
    (["--gradient-wire", "i4"], ["--gradient-wire", "i8"]),
    (["--error-feedback", "on"], ["error_feedback"]),
    (["--error-feedback", "maybe"], ["maybe", "on"]),
    (["--dtype", "float64", "--gradient-wire", "bf16"], ["float64", "f32"]),
    (["--dtype", "float16"], ["--dtype", "float16"]),
    (["--optimizer", "lion"], ["--optimizer", "adamw"]),
    (["--optimizer", "adam", "--nesterov"], ["nesterov"]),
    (["--schedule", "step"], ["--schedule-every"]),
    (["--accumulate", "0"], ["--accumulate", "1024"]),
    (["--checkpoint-every", "5steps"], ["--checkpoint-every", "--checkpoint"]),
    (["--checkpoint", "c", "--checkpoint-every", "5"], ["'5'", "500steps", "10min"]),
    (["--trace-steps", "5"], ["--trace"]),
    (["--augment", "flop"], ["flop", "flip"]),
    (["--model", "gpt", "--augment", "flip"], ["--augment", "no images"]),
    (["--classes", "5"], ["--classes", "lenet"]),
    (["--init", "nowhere"], ["nowhere"]),
    (["--model", "nowhere.pt"], ["nowhere.pt"]),
])
def test_what_does_not_go_together(refused, options, words):
    line = refused(*options)
    for word in words:
        assert word in line


@pytest.mark.parametrize("change, words", [
    ({"gradient_wire": "i9"}, ["gradient_wire", "i9"]),
    ({"clip": True}, ["clip", "the plan says true"]),
    ({"accumulate": 2000}, ["accumulate", "1024"]),
    ({"replicas": 0}, ["replicas"]),
    ({"piece": "big"}, ["piece"]),
    ({"color": "red"}, ["color"]),
    ({"format": 99}, ["format"]),
])
def test_plans(refused, tmp_path, change, words):
    (tmp_path / "plan.json").write_text(json.dumps(PLAN | change))
    line = refused("--plan", "plan.json")
    for word in words:
        assert word in line


def test_plan_that_is_no_json(refused, tmp_path):
    (tmp_path / "plan.json").write_text("")
    assert "plan.json" in refused("--plan", "plan.json")


def test_plan_is_taken_and_options_override_it(sumpter, tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps(PLAN))
    assert sumpter.summary("--plan", "plan.json")["plan"] == PLAN
    changed = sumpter.summary("--plan", "plan.json", "--devices", "cpu:3", "--piece", "8KiB", "--update", "device")
    assert changed["plan"] == PLAN | {"replicas": 3, "piece": "8KiB", "update": "device"}


def test_help_and_version(sumpter):
    assert sumpter("--version").stdout.startswith("sumpter 0.")
    for arguments in [["--help"], ["train", "--help"], ["models", "--help"], ["bench", "--help"]]:
        done = sumpter(*arguments)
        assert done.returncode == 0 and done.stderr == ""
    assert "--batch-size" in sumpter("train", "--help").stdout


def test_subcommands(sumpter):
    for arguments in [[], ["teach"], ["bench"], ["bench", "nothing"]]:
        assert sumpter(*arguments).returncode == 2, arguments


def test_models(sumpter):
    assert "lenet" in sumpter("models").stdout
    models = {m["name"]: m for m in map(json.loads, sumpter("models", "--json").stdout.splitlines())}
    assert models["lenet"]["parameters"] == 431080
    assert models["mlp60m"]["parameters"] == 59817738


def test_more_steps_than_can_be_counted(refused):
    assert "more steps than can be counted" in refused("--epochs", 2**40, "--batch-size", 1, data="synthetic:rows=16777216", steps=None)


def test_two_results_in_one_file(refused):
    assert "--weights and --metrics" in refused("--weights", "same", "--metrics", "./same")
    assert "--weights and --checkpoint" in refused("--weights", "same", "--checkpoint", "same")


def test_a_directory_is_no_plan(refused, tmp_path):
    assert "is a directory" in refused("--plan", tmp_path)
