"""The program under test, and what its tests share. Not in conftest.py: folders have their own, and only one can be imported."""

import json
import os
import pathlib
import signal
import struct
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BINARY = pathlib.Path(os.environ.get("SUMPTER_BIN", ROOT / "build" / "release" / "bin" / "sumpter"))
DATA = "synthetic:rows=512,test_rows=256"


class Command:
    """The program under test. Every call gets lenet on a small synthetic set, unless it says otherwise."""

    def __init__(self, directory):
        self.directory = directory

    def line(self, *arguments):
        return [str(BINARY), *map(str, arguments)]

    def __call__(self, *arguments, **kwargs):
        kwargs.setdefault("timeout", 120)
        kwargs.setdefault("cwd", self.directory)
        return subprocess.run(self.line(*arguments), capture_output=True, text=True, **kwargs)

    def train_line(self, *arguments, data=DATA, steps=4):
        length = [] if steps is None else ["--steps", steps]
        return self.line("train", "--data", data, *length, *arguments)

    def train(self, *arguments, data=DATA, steps=4, **kwargs):
        kwargs.setdefault("timeout", 120)
        kwargs.setdefault("cwd", self.directory)
        return subprocess.run(self.train_line(*arguments, data=data, steps=steps), capture_output=True, text=True, **kwargs)

    def start(self, *arguments, data=DATA, steps=4, **kwargs):
        # A shell's job in the background ignores SIGINT, and so would what it starts.
        kwargs.setdefault("preexec_fn", lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        return subprocess.Popen(self.train_line(*arguments, data=data, steps=steps), cwd=self.directory, **kwargs)

    def summary(self, *arguments, **kwargs):
        done = self.train("--json", *arguments, **kwargs)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def write_idx(directory, prefix, images, labels):
    """An IDX set of uint8 arrays: images [rows, height, width] and labels [rows]."""
    directory.mkdir(exist_ok=True)
    images_head, labels_head = struct.pack(">IIII", 0x803, *images.shape), struct.pack(">II", 0x801, len(labels))
    (directory / f"{prefix}-images-idx3-ubyte").write_bytes(images_head + images.tobytes())
    (directory / f"{prefix}-labels-idx1-ubyte").write_bytes(labels_head + labels.tobytes())


def wait_for_steps(metrics, process, steps=2):
    """Blocks until the run has written so many steps."""
    deadline = time.monotonic() + 60
    while not metrics.exists() or metrics.read_text().count('"step","step"') < steps:
        assert process.poll() is None, "ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.01)
