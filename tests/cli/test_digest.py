"""How a run is cut up and who does what never changes its bits."""

import pytest

VARIANTS = {
    "chunk=64KiB": ["--chunk", "64KiB"],
    "chunk=1MiB": ["--chunk", "1MiB"],
    "chunk=2layers": ["--chunk", "2layers"],
    "chunk=all": ["--chunk", "all"],
    "piece=4KiB": ["--piece", "4KiB"],
    "piece=1MiB": ["--piece", "1MiB"],
    "reducers=1": ["--reducers", "1"],
    "reducers=3": ["--reducers", "3"],
    "preload=0": ["--preload", "0"],
    "preload=3": ["--preload", "3"],
    "update=host": ["--update", "host"],
    "corner 1": ["--chunk", "64KiB", "--piece", "4KiB", "--reducers", "3", "--preload", "0", "--update", "host"],
    "corner 2": ["--chunk", "all", "--piece", "1MiB", "--reducers", "1", "--preload", "3", "--update", "device"],
    "corner 3": ["--chunk", "2layers", "--piece", "4KiB", "--reducers", "0", "--preload", "3", "--update", "host"],
    "corner 4": ["--chunk", "1MiB", "--piece", "1MiB", "--reducers", "3", "--preload", "0", "--update", "device"],
}
CHUNKS_PER_STEP = {"64KiB": 3, "1MiB": 2, "2layers": 2, "all": 1}
RUN = ["--model", "lenet", "--devices", "cpu:4", "--batch-size", "128", "--digest"]
STEPS = 8


@pytest.fixture(scope="module")
def usual():
    return {}


def value_of(options, name, default):
    return options[options.index(name) + 1] if name in options else default


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())
def test_same_digest_and_the_option_acted(sumpter, usual, options):
    if not usual:
        usual.update(sumpter.summary(*RUN, steps=STEPS))
    summary = sumpter.summary(*RUN, *options, steps=STEPS)
    assert summary["digest"] == usual["digest"]
    assert summary["evaluation"] == usual["evaluation"]

    assert summary["chunks_per_step"] == CHUNKS_PER_STEP[value_of(options, "--chunk", "1MiB")]
    assert summary["chunks"] == STEPS * summary["chunks_per_step"]
    assert len(summary["pieces_of_reducers"]) == int(value_of(options, "--reducers", "0"))
    assert summary["most_batches_ready"] <= int(value_of(options, "--preload", "2"))
    assert summary["update"] == value_of(options, "--update", "device")
    gradient_bytes = STEPS * 431080 * 4
    piece = {"4KiB": 4096, "128KiB": 131072, "1MiB": 1 << 20}[value_of(options, "--piece", "128KiB")]
    assert gradient_bytes / piece <= summary["pieces"] <= gradient_bytes / piece + STEPS * 10


def test_same_digest_ten_times(sumpter):
    assert len({sumpter.summary(*RUN, steps=3)["digest"] for _ in range(10)}) == 1


def test_one_replica_has_the_same_losses(sumpter, tmp_path):
    import json

    losses = {}
    for replicas in [1, 4]:
        sumpter.summary("--devices", f"cpu:{replicas}", "--metrics", "m.jsonl", steps=12)
        lines = map(json.loads, (tmp_path / "m.jsonl").read_text().splitlines())
        losses[replicas] = [line["loss"] for line in lines if line["event"] == "step"]
    assert losses[4] == pytest.approx(losses[1], abs=1e-4)
