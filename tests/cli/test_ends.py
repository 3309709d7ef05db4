"""How a run ends when it is not left in peace: signals, readers that go away, terminals of all kinds."""

import json
import os
import pty
import re
import signal
import subprocess
import time

import pytest
from command import wait_for_steps

LONG = 1_000_000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_ends_cleanly(sumpter, tmp_path, number):
    process = sumpter.start("--devices", "cpu:2", "--metrics", "m.jsonl", "--weights", "w.safetensors", "--json",
                            steps=LONG, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_steps(tmp_path / "m.jsonl", process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "stopped after" in err
    summary = json.loads(out)
    assert summary["stopped"] and 2 <= summary["steps"] < LONG and "evaluation" not in summary
    assert (tmp_path / "w.safetensors").stat().st_size > 431080 * 4
    last = json.loads((tmp_path / "m.jsonl").read_text().splitlines()[-1])
    assert last["event"] == "end" and last["steps"] == summary["steps"]


def test_second_signal_ends_at_once(sumpter, tmp_path):
    # Steps of 10,000 rows: the one that the first signal lets finish takes seconds.
    process = sumpter.start("--batch-size", 10_000, "--metrics", "m.jsonl", "--weights", "w.safetensors", steps=LONG,
                            data="synthetic:rows=10000,test_rows=0", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            text=True)
    while not (tmp_path / "m.jsonl").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert "once more ends at once" in next(line for line in process.stderr if line.strip())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert not (tmp_path / "w.safetensors").exists()


def test_results_piped_to_head(sumpter, tmp_path):
    command = " ".join(sumpter.train_line("--digest", "--metrics", "/dev/stdout"))
    done = subprocess.run(["bash", "-c", f"{command} | head -n 1; echo status ${{PIPESTATUS[0]}}"], capture_output=True,
                          text=True, cwd=tmp_path, timeout=120)
    assert "status 0" in done.stdout, done


def test_closed_standard_output(sumpter):
    """The reader is gone before the first line."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = sumpter.start("--digest", stdout=write_end, stderr=subprocess.PIPE)
    os.close(write_end)
    assert b"error" not in process.communicate(timeout=120)[1]
    assert process.returncode == 0


def test_full_standard_output(sumpter):
    with open("/dev/full", "w") as full:
        process = sumpter.start("--digest", stdout=full, stderr=subprocess.PIPE, text=True)
        assert "standard output cannot be written: No space left on device" in process.communicate(timeout=120)[1]
        assert process.returncode == 1


def test_closed_standard_error(sumpter):
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = sumpter.start("--digest", stdout=subprocess.PIPE, stderr=write_end, text=True)
    os.close(write_end)
    assert "digest" in process.communicate(timeout=120)[0]
    assert process.returncode == 0


@pytest.mark.parametrize("columns", [1, 20, 200])
def test_terminal(sumpter, columns):
    """The progress line is rewritten in place and never reaches the last column."""
    ours, theirs = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, columns, 0, 0))
    process = sumpter.start(steps=20, stdout=subprocess.PIPE, stderr=theirs, env=os.environ | {"COLUMNS": str(columns)})
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 4096):
            shown += data
    except OSError:  # the other end was closed
        pass
    os.close(ours)
    assert b"top-1" in process.communicate(timeout=120)[0]
    assert process.returncode == 0
    lines = re.findall(rb"\r\x1b\[K([^\r\n]*)", shown)
    assert lines and all(len(line) < max(columns, 2) for line in lines if not line.startswith(b"sumpter:")), shown


def test_no_progress(sumpter):
    ours, theirs = pty.openpty()
    process = sumpter.start("--no-progress", steps=4, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    assert b"top-1" in process.communicate(timeout=120)[0]
    with pytest.raises(OSError):
        os.read(ours, 1)
    os.close(ours)


def test_no_terminal_no_control_characters(sumpter):
    done = sumpter.train(steps=20, env=os.environ | {"COLUMNS": "20", "TERM": "dumb"}, stdin=subprocess.DEVNULL)
    assert done.returncode == 0
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", done.stdout + done.stderr)


@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-"])
def test_closed_standard_error_reaches_no_other_file(sumpter, tmp_path, closed):
    line = sumpter.train_line("--metrics", "m.jsonl", "--devices", "cpu:2")
    done = subprocess.run(["bash", "-c", f'"$@" {closed}', "bash", *line], cwd=tmp_path, stdout=subprocess.PIPE, text=True,
                          timeout=120)
    assert done.returncode == 0 and "trained    4 steps" in done.stdout
    assert [json.loads(line)["event"] for line in (tmp_path / "m.jsonl").read_text().splitlines()][-1] == "end"


def test_closed_standard_output_is_an_error(sumpter, tmp_path):
    done = subprocess.run(["bash", "-c", '"$@" >&-', "bash", *sumpter.train_line()], cwd=tmp_path, stderr=subprocess.PIPE,
                          text=True, timeout=120)
    assert done.returncode == 1 and "standard output cannot be written" in done.stderr


def test_a_limit_on_file_sizes_is_an_error_with_its_reason(sumpter, tmp_path):
    done = subprocess.run(["bash", "-c", 'ulimit -f 8; "$@"', "bash", *sumpter.train_line()], cwd=tmp_path,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    assert done.returncode == 1 and "File too large" in done.stderr
