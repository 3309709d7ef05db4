"""Checkpoints: a run that goes on has the bits of one that never ended, whatever ended it."""

import json
import random
import resource
import shutil
import signal
import subprocess
import time

import pytest
from command import wait_for_steps
from safetensors.torch import load_file

RUN = ["--devices", "cpu:2", "--batch-size", "32", "--digest"]
# Row 21 of what has bitten users: state of every kind.
STATES = {
    "sgd, i8": ["--gradient-wire", "i8", "--momentum", "0.9"],
    "adam, host": ["--optimizer", "adam", "--learning-rate", "0.001", "--update", "host"],
    "adamw, bf16 with feedback, clip": ["--optimizer", "adamw", "--gradient-wire", "bf16", "--error-feedback", "on",
                                        "--clip-norm", "1", "--schedule", "step", "--schedule-every", "7"],
    "parameters in i8": ["--update", "host", "--parameter-wire", "i8", "--warmup", "50"],
    "float64, accumulate": ["--dtype", "float64", "--accumulate", "2", "--clip-norm", "0.5", "--update", "host"],
}


def steps_of(directory):
    return sorted(int(path.name.removeprefix("step-")) for path in directory.glob("step-*"))


@pytest.mark.parametrize("options", STATES.values(), ids=STATES.keys())
def test_same_bits_after_a_stop(sumpter, options):
    whole = sumpter.summary(*RUN, *options, steps=50)
    sumpter.summary(*RUN, *options, "--checkpoint", "c", steps=37)
    resumed = sumpter.summary(*RUN, *options, "--checkpoint", "c", "--resume", steps=50)
    assert resumed["first_step"] == 37
    assert resumed["digest"] == whole["digest"]


def test_another_plan_may_go_on(sumpter, tmp_path):
    whole = sumpter.summary(*RUN, steps=12)
    sumpter.summary(*RUN, "--checkpoint", "c", "--update", "host", steps=5)
    resumed = sumpter.summary(*RUN, "--checkpoint", "c", "--resume", "--chunk", "64KiB", "--reducers", "1", steps=12)
    assert resumed["digest"] == whole["digest"]


@pytest.mark.parametrize("model, data", [("resnet18", "synthetic:rows=64,test_rows=8,shape=3x32x32"),
                                         ("googlenet", "synthetic:rows=64,test_rows=8,shape=3x32x32"),
                                         ("gpt:2-32-2-16", "synthetic:rows=512,test_rows=8")])
def test_models_with_more_than_parameters(sumpter, model, data):
    run = ["--model", model, "--devices", "cpu:2", "--batch-size", "8", "--digest"]
    whole = sumpter.summary(*run, data=data, steps=5)
    sumpter.summary(*run, "--checkpoint", "c", data=data, steps=3)
    resumed = sumpter.summary(*run, "--checkpoint", "c", "--resume", data=data, steps=5)
    assert resumed["digest"] == whole["digest"]


def test_what_differs_is_named(sumpter, refused):
    sumpter.summary(*RUN, "--checkpoint", "c", steps=3)
    resume = [*RUN, "--checkpoint", "c", "--resume"]
    assert "optimizer.momentum" in refused(*resume, "--momentum", "0.8")
    assert "model.name" in refused(*resume, "--model", "mlp")
    assert "plan.replicas" in refused("--devices", "cpu:3", *resume[2:])
    assert "seed" in refused(*resume, "--seed", "1")
    assert "data." in refused(*resume, data="synthetic:rows=511,test_rows=256")
    assert "requires --checkpoint" in refused(*RUN, "--resume")
    assert "has checkpoints already" in refused(*RUN, "--checkpoint", "c")


def test_lossy_gradients_go_on_with_their_update(sumpter, refused):
    """With update=device the sum is rounded once more as it returns: the two differ."""
    sumpter.summary(*RUN, "--gradient-wire", "bf16", "--checkpoint", "c", steps=3)
    assert "plan.update" in refused(*RUN, "--gradient-wire", "bf16", "--checkpoint", "c", "--resume", "--update", "host")


def test_fewer_steps_than_done(sumpter, refused):
    sumpter.summary(*RUN, "--checkpoint", "c", steps=3)
    assert "has done 3 steps, and this run has 2" in refused(*RUN, "--checkpoint", "c", "--resume", steps=2)


def test_metrics_go_on_where_the_run_does(sumpter, tmp_path):
    run = [*RUN, "--checkpoint", "c", "--metrics", "m.jsonl"]
    sumpter.summary(*run, "--checkpoint-every", "2steps", steps=5)
    shutil.rmtree(tmp_path / "c" / "step-000000005")
    with open(tmp_path / "m.jsonl", "a") as metrics:
        metrics.write('{"event":"st')
    sumpter.summary(*run, "--resume", steps=8)
    lines = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if line["event"] == "step"] == list(range(8))
    assert lines[-1]["event"] == "end" and lines[-1]["first_step"] == 4
    assert refused_and_untouched(sumpter, tmp_path, [*run, "--resume", "--seed", "3"])


def refused_and_untouched(sumpter, tmp_path, options):
    before = (tmp_path / "m.jsonl").read_text()
    return sumpter.train(*options, steps=9).returncode == 2 and (tmp_path / "m.jsonl").read_text() == before


def test_keeps_the_newest_and_the_best(sumpter, tmp_path):
    summary = sumpter.summary(*RUN, "--checkpoint", "c", "--checkpoint-every", "5steps", "--keep", "2", steps=40)
    best = (tmp_path / "c" / "best").resolve()
    kept = steps_of(tmp_path / "c")
    assert set(kept) == {35, 40, int(best.name.removeprefix("step-"))}
    assert int(best.name.removeprefix("step-")) == summary["best"]["step"]
    assert (tmp_path / "c" / "latest").resolve().name == "step-000000040"
    assert load_file(best / "weights.safetensors")["fc2.bias"].shape == (10,)


def test_finished_run_has_nothing_to_do(sumpter):
    first = sumpter.summary(*RUN, "--checkpoint", "c", steps=6)
    again = sumpter.summary(*RUN, "--checkpoint", "c", "--resume", steps=6)
    assert (again["digest"], again["steps"], again["first_step"]) == (first["digest"], 6, 6)


def test_weights_alone_begin_a_new_run(sumpter, tmp_path, refused):
    sumpter.summary(*RUN, "--weights", "w.safetensors", steps=3)
    begun = sumpter.summary(*RUN, "--init", "w.safetensors", "--learning-rate", "0", "--weights", "v.safetensors", steps=2)
    first, second = load_file(tmp_path / "w.safetensors"), load_file(tmp_path / "v.safetensors")
    assert all((first[name] == second[name]).all() for name in first) and begun["first_step"] == 0
    assert "w.safetensors" in refused(*RUN, "--model", "mlp", "--init", "w.safetensors")


def test_stop_signal_writes_a_checkpoint(sumpter, tmp_path):
    whole = sumpter.summary(*RUN, steps=300)
    run = sumpter.start(*RUN, "--checkpoint", "c", "--metrics", "m.jsonl", steps=300, stderr=subprocess.PIPE, text=True)
    wait_for_steps(tmp_path / "m.jsonl", run, 5)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=60)
    assert run.returncode == 1 and "stopped after" in said
    resumed = sumpter.summary(*RUN, "--checkpoint", "c", "--resume", steps=300)
    assert 0 < resumed["first_step"] < 300
    assert resumed["digest"] == whole["digest"]


def test_disk_full_leaves_the_checkpoint_before(sumpter, tmp_path):
    """Files may not grow beyond a size that the second checkpoint needs."""
    whole = sumpter.summary(*RUN, "--optimizer", "adam", steps=10)
    sumpter.summary(*RUN, "--optimizer", "adam", "--checkpoint", "c", steps=4)

    def little_room():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    done = sumpter.train(*RUN, "--optimizer", "adam", "--checkpoint", "c", "--resume", "--checkpoint-every", "2steps",
                         steps=10, preexec_fn=little_room)
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert steps_of(tmp_path / "c") == [4]
    resumed = sumpter.summary(*RUN, "--optimizer", "adam", "--checkpoint", "c", "--resume", steps=10)
    assert resumed["first_step"] == 4 and resumed["digest"] == whole["digest"]


def test_failing_last_checkpoint_loses_nothing_else(sumpter, tmp_path):
    """Files may have 150,000 bytes: the weights fit, and the optimizer's state does not."""

    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))

    done = sumpter.train("--model", "mlp:784-32-10", "--optimizer", "adam", "--checkpoint", "c", "--weights", "w",
                         "--json", preexec_fn=little_room)
    assert done.returncode == 1 and "File too large" in done.stderr
    summary = json.loads(done.stdout)
    assert summary["checkpoints_failed"] >= 1 and steps_of(tmp_path / "c") == []
    assert load_file(tmp_path / "w")["fc1.weight"].shape == (32, 784)


def kill_and_resume(sumpter, tmp_path, options, steps, kills, generator):
    """Kills runs that checkpoint every 5 steps at random moments, each time going on until the end is reached."""
    whole = sumpter.summary(*options, steps=steps)
    began = time.monotonic()
    sumpter.summary(*options, "--checkpoint", "timed", "--checkpoint-every", "5steps", steps=steps)
    length = time.monotonic() - began
    done = 0
    while done < kills:
        shutil.rmtree(tmp_path / "c", ignore_errors=True)
        while True:
            run = sumpter.start(*options, "--checkpoint", "c", "--checkpoint-every", "5steps", "--resume", "--json",
                                steps=steps, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            try:
                out, said = run.communicate(timeout=generator.uniform(0.3, 1.0) * length)
                break
            except subprocess.TimeoutExpired:
                run.kill()
                run.communicate()
                done += 1
                if done >= kills:
                    run = sumpter.start(*options, "--checkpoint", "c", "--resume", "--json", steps=steps,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                    out, said = run.communicate(timeout=300)
                    break
        assert run.returncode == 0, said
        assert json.loads(out)["digest"] == whole["digest"]


KILLED = [*RUN, "--gradient-wire", "i8", "--model", "mlp"]


def test_killed_at_three_moments(sumpter, tmp_path):
    kill_and_resume(sumpter, tmp_path, KILLED, 60, 3, random.Random(1))


@pytest.mark.prove
def test_killed_at_fifty_moments(sumpter, tmp_path):
    kill_and_resume(sumpter, tmp_path, KILLED, 100, 50, random.Random(2))
