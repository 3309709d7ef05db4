"""What is printed of made-up figures, and which goals they reach."""

import io
import json

import pytest

import collectives
import ddp
from peers import programs
from report import Goal, Report, describe_bytes, describe_seconds, parse_bytes
from turns import Figure

MIB = 2**20


def figure(name, size=MIB, against=None, ratio=None, seconds=0.002):
    return Figure(name, size, seconds, 0.0123, against, ratio, None, 7)


def test_a_table_and_its_goals():
    out = io.StringIO()
    report = Report(columns=[("adds", ddp.added)], out=out)
    report.add("mlp60m", [figure("no-exchange")])
    report.add("mlp60m", [figure("gloo", against="no-exchange", ratio=1.456)])
    report.add_goals([Goal("so fast", "3.1", True), Goal("so small", "7", False)])
    assert [line.split() for line in out.getvalue().splitlines()] == [
        ["name", "bytes", "seconds", "spread", "against", "ratio", "ping", "rounds", "adds"],
        ["mlp60m", "no-exchange", "1.00", "MiB", "2.00", "ms", "1.2", "%", "7"],
        ["mlp60m", "gloo", "1.00", "MiB", "2.00", "ms", "1.2", "%", "no-exchange", "1.456", "7", "45.6", "%"],
        ["goal", "met", "so", "fast:", "3.1"], ["goal", "missed", "so", "small:", "7"]]
    rows = out.getvalue().splitlines()[:3]
    assert {len(row) for row in rows} == {24 + 8 * 13}


def test_json_lines():
    out = io.StringIO()
    report = Report(as_json=True, out=out)
    report.add("broadcast", [figure("gloo", against="sumpter", ratio=2.0)])
    report.add_goals([Goal("so fast", "3.1", True)])
    assert [json.loads(line) for line in out.getvalue().splitlines()] == [
        {"of": "broadcast", "name": "gloo", "bytes": MIB, "seconds": 0.002, "spread": 0.0123, "against": "sumpter",
         "ratio": 2.0, "ping": None, "rounds": 7},
        {"goal": "so fast", "measured": "3.1", "met": True}]


def test_units():
    assert [describe_seconds(s) for s in (8.12e-7, 1.432e-3, 3.2, 0.25)] == ["812 ns", "1.43 ms", "3.20 s", "250 ms"]
    assert [describe_bytes(b) for b in (812, 4096, 12 * MIB, 3 * 2**29)] == [
        "812 B", "4.00 KiB", "12.0 MiB", "1.50 GiB"]
    assert [parse_bytes(text) for text in ("4096", "64KiB", "1 mib", "10MB")] == [4096, 65536, MIB, 10**7]
    for wrong in ("", "KiB", "4 parsecs", "-4", "0", "6", "1.5MiB"):
        with pytest.raises(ValueError):
            parse_bytes(wrong)


@pytest.mark.parametrize("gloo, ours, met, measured", [
    (1.75, 1.25, True, "gloo 75.0 %, sumpter 25.0 %, 0.33 of it"),
    (1.75, 1.26, False, "gloo 75.0 %, sumpter 26.0 %, 0.35 of it"),
    (1.04, 1.029, True, "gloo 4.0 %, sumpter 2.9 %, 0.72 of it"),  # not a third, but less than 3 % of the step
    (1.04, 1.031, False, "gloo 4.0 %, sumpter 3.1 %, 0.77 of it"),
    (0.99, 0.98, True, "gloo -1.0 %, sumpter -2.0 %"),
])
def test_goal_of_what_the_exchange_adds(gloo, ours, met, measured):
    goal, = ddp.goals("alexnet", gloo, ours, 1.0)
    assert (goal.met, goal.measured) == (met, measured)


def test_goal_counted_from_ddp_alone():
    both = ddp.goals("resnet18", 1.5, 1.25, 1.2, 1.125)
    assert [(goal.met, goal.measured) for goal in both] == [
        (False, "gloo 50.0 %, sumpter 25.0 %, 0.50 of it"), (True, "gloo 37.5 %, sumpter 12.5 %, 0.33 of it")]


def test_goal_of_the_whole_step():
    assert [goal.met for goal in ddp.goals("mlp60m", 2.0, 1.0, 1.25)] == [True, True]
    assert [goal.met for goal in ddp.goals("mlp60m", 2.0, 1.0, 1.24)] == [True, False]


def test_models_and_their_rows():
    assert ddp.parse_models("mlp60m,alexnet:4") == [("mlp60m", 16), ("alexnet", 4)]
    for wrong in ("lenet", "alexnet:0", "alexnet:x", ""):
        with pytest.raises(Exception, match="is not one of mlp60m, alexnet, resnet18"):
            ddp.parse_models(wrong)


def all_reduce(size, in_place, staged):
    """gloo's figures of a size, by its time over ours."""
    return [("all_reduce", figure("gloo", size, "in-place", in_place)),
            ("all_reduce", figure("gloo", size, "staged", staged)),
            ("all_reduce", figure("mpich", size, "in-place", 0.1))]


def of(measured):
    return {goal.text: (goal.measured, goal.met) for goal in collectives.goals(measured)}


def test_goals_of_all_reduce_are_those_of_the_worst_size():
    assert of(all_reduce(4096, 10, 9.99) + all_reduce(MIB, 0.5, 0.5) + all_reduce(16 * MIB, 3.5, 1.5)
              + all_reduce(64 * MIB, 3, 1.49) + all_reduce(256 * MIB, 8, 2)) == {
        "all_reduce in-place, 4.00 KiB: at least 10 times as fast as gloo": ("10.00 at 4.00 KiB", True),
        "all_reduce staged, 4.00 KiB: at least 10 times as fast as gloo": ("9.99 at 4.00 KiB", False),
        "all_reduce in-place, 16.0 MiB and more: at least 3 times as fast as gloo": ("3.00 at 64.0 MiB", True),
        "all_reduce staged, 16.0 MiB and more: at least 1.5 times as fast as gloo": ("1.49 at 64.0 MiB", False)}


def test_goals_of_the_others_are_for_every_size_and_of_what_was_measured():
    assert of([("broadcast", figure("gloo", 4096, "sumpter", 1.0)), ("broadcast", figure("gloo", MIB, "sumpter", 5.0)),
               ("broadcast", figure("sumpter", MIB)), ("all_gather", figure("gloo", MIB, "sumpter", 0.9))]) == {
        "broadcast sumpter, every size: at least as fast as gloo": ("1.00 at 4.00 KiB", True),
        "all_gather sumpter, every size: at least as fast as gloo": ("0.90 at 1.00 MiB", False)}


class Requests:
    def __init__(self, name):
        self.name = name

    def job(self, request):
        return lambda repeats: (self.name, request, repeats)


def test_who_is_asked_for_what():
    asked = collectives.contenders_of("all_reduce", 4096, Requests("sumpter"), Requests("gloo"), [Requests("mpich")])
    assert [(c.name, c.round(2), c.against) for c in asked] == [
        ("in-place", ("sumpter", "all_reduce arena sequence 4096", 2), ()),
        ("staged", ("sumpter", "all_reduce sequence 4096", 2), ()),
        ("gloo", ("gloo", "all_reduce sequence 4096", 2), ("in-place", "staged")),
        ("mpich", ("mpich", "sequence 4096", 2), ("in-place", "staged"))]
    asked = collectives.contenders_of("broadcast", MIB, Requests("sumpter"), Requests("gloo"), [Requests("mpich")])
    assert [(c.name, c.round(1), c.against) for c in asked] == [
        ("sumpter", ("sumpter", "broadcast 1048576", 1), ()), ("gloo", ("gloo", "broadcast 1048576", 1), ("sumpter",))]


def test_a_compiler_that_is_not_there():
    with pytest.raises(programs.Missing, match="^mpi needs no-such-mpicxx, which is not here: tools/setup peers"):
        programs.build_mpi("mpi", "no-such-mpicxx")
