"""The protocol, with shell scripts for peers, and what becomes of a bench whose peer dies."""

import os
import select
import sys

import pytest

import collectives
import ddp
from peer import Fault, Peer
from peers import programs

# Answers a tenth of a second for each byte and repeat.
CALCULATOR = ["sh", "-c", "echo ready; while read bytes repeats; do "
              "echo $((bytes * repeats / 10)).$((bytes * repeats % 10)); done"]
SECOND = ["sh", "-c", "echo ready; while read line; do echo 1; done"]
DIES = ["sh", "-c", "echo ready; read line; exit 3"]


def script(text):
    return ["sh", "-c", text]


def test_a_round_at_a_time():
    with Peer("calculator", CALCULATOR) as peer:
        assert peer.round("4", 3) == 1.2
        assert peer.job("100")(2) == 20
    assert peer.process.returncode == 0


def test_its_environment_is_ours_and_its_own(monkeypatch):
    monkeypatch.setenv("BENCH_OURS", "1")
    with Peer("reader", script('echo ready; read line; echo $BENCH_OURS.$BENCH_ITS'), {"BENCH_ITS": "5"}) as peer:
        assert peer.round("x", 1) == 1.5


def test_complaints_name_it_and_show_what_it_said():
    with Peer("strange", script("echo ready; read line; echo error no such size")) as peer:
        with pytest.raises(Fault, match=r"^peer strange, told '4096 1', answered 'error no such size'$"):
            peer.round("4096", 1)
        with pytest.raises(Fault, match="^peer strange "):  # it has ended
            peer.round("4096", 1)


@pytest.mark.parametrize("answer", ["-1", "nan", "inf", "''"])
def test_no_seconds(answer):
    with Peer("odd", script(f"echo ready; read line; echo {answer}; read line")) as peer:
        with pytest.raises(Fault, match="^peer odd, told 'x 1', answered "):
            peer.round("x", 1)


def test_it_starts_only_when_it_is_ready():
    with pytest.raises(Fault, match="peer early: 'echo hello' said 'hello' instead of 'ready'"):
        Peer("early", ["echo", "hello"])
    with pytest.raises(Fault, match="peer nobody ended without an answer"):
        Peer("nobody", ["true"])
    with pytest.raises(Fault, match="peer none: './no-such-program' could not be started: No such file"):
        Peer("none", ["./no-such-program"])


def test_silence_ends():
    with pytest.raises(Fault, match="peer silent has said nothing for 0 s"):
        Peer("silent", ["cat"], time_limit=0)


def test_what_stays_behind_is_killed(tmp_path):
    """A child that does not read, of a peer that has ended, and a peer that does not listen."""
    numbers = tmp_path / "numbers"
    with Peer("parent", script(f"sleep 600 & echo $! >{numbers}; echo ready; read line")) as peer:
        child = os.pidfd_open(int(numbers.read_text()))
    assert select.select([child], [], [], 60)[0] == [child]  # it has ended
    os.close(child)

    peer = Peer("deaf", script("trap '' TERM; echo ready; exec sleep 600"))
    peer.close(patience=0)
    assert peer.process.returncode == -9


def run_main(monkeypatch, module, *arguments):
    """The bench's exit message, whose peers are commands() by name."""
    monkeypatch.setattr(sys, "argv", [module.__name__, *arguments])
    with pytest.raises(SystemExit) as ended:
        module.main()
    return ended.value.code


def test_ddp_with_a_peer_that_dies(monkeypatch, tmp_path, capsys):
    (tmp_path / "sumpter").mkdir()
    commands = {"none": SECOND, "alone": SECOND, "gloo": SECOND, "sumpter": DIES}
    monkeypatch.setattr(programs, "ddp_step", lambda ranks, model, rows, backend, threads: commands[backend])
    message = run_main(monkeypatch, ddp, "--models", "mlp60m", "--package", str(tmp_path))
    assert message.startswith("bench/ddp.py: peer sumpter ")
    assert "\n" not in message
    assert capsys.readouterr().out == ""


def test_collectives_with_a_peer_that_dies(monkeypatch, tmp_path, capsys):
    (tmp_path / "sumpter").mkdir()
    commands = {"sumpter": SECOND, "gloo": DIES}
    monkeypatch.setattr(programs, "torch_collectives", lambda ranks, backend: commands[backend])
    monkeypatch.setattr(programs, "ping", lambda command: SECOND)
    message = run_main(monkeypatch, collectives, "--no-mpi", "--package", str(tmp_path))
    assert message.startswith("bench/collectives.py: peer gloo ")
    assert "\n" not in message
    assert capsys.readouterr().out == ""


def test_without_the_package(monkeypatch, tmp_path):
    message = run_main(monkeypatch, ddp, "--package", str(tmp_path))
    assert message == (f"bench/ddp.py: {tmp_path} has no package sumpter: run make build, "
                       "or name another folder by --package")


def test_the_package_goes_before_what_is_there(monkeypatch, tmp_path):
    (tmp_path / "sumpter").mkdir()
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    assert programs.with_package(tmp_path) == {"PYTHONPATH": f"{tmp_path}{os.pathsep}elsewhere"}
    monkeypatch.delenv("PYTHONPATH")
    assert programs.with_package(tmp_path) == {"PYTHONPATH": str(tmp_path)}
