"""Figures and goals as a table for people or as JSON lines: what bench/report.cpp does, for benches in Python."""

import dataclasses
import json
import sys

NAME_WIDTH, CELL_WIDTH = 24, 12
TITLES = ("name", "bytes", "seconds", "spread", "against", "ratio", "ping", "rounds")
BYTES = {"": 1, "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "kb": 10**3, "mb": 10**6, "gb": 10**9}


@dataclasses.dataclass
class Goal:
    """What was to be reached, what was, and whether that is enough."""

    text: str
    measured: str
    met: bool


class Report:
    """Prints figures as they come, with the name of what they are about. columns: (title, text of a figure) of further
    columns for people."""

    def __init__(self, as_json=False, columns=(), out=None):
        self.as_json, self.columns, self.out = as_json, columns, out or sys.stdout
        self.begun = False

    def add(self, subject, figures):
        if not self.as_json and not self.begun:
            self._row([*TITLES, *(title for title, _ in self.columns)])
            self.begun = True
        for figure in figures:
            if self.as_json:
                self._line({"of": subject} | {title: getattr(figure, title) for title in TITLES})
            else:
                self._row([
                    f"{subject} {figure.name}", describe_bytes(figure.bytes), describe_seconds(figure.seconds),
                    f"{100 * figure.spread:.1f} %", figure.against or "",
                    "" if figure.ratio is None else f"{figure.ratio:.3f}",
                    "" if figure.ping is None else describe_seconds(figure.ping), str(figure.rounds),
                    *(text(figure) for _, text in self.columns)])

    def add_goals(self, goals):
        for goal in goals:
            if self.as_json:
                self._line({"goal": goal.text, "measured": goal.measured, "met": goal.met})
            else:
                print(f"goal {'met   ' if goal.met else 'missed'}  {goal.text}: {goal.measured}", file=self.out,
                      flush=True)

    def _row(self, cells):
        print(f"{cells[0]:<{NAME_WIDTH}}", *(f"{cell:>{CELL_WIDTH}}" for cell in cells[1:]), file=self.out, flush=True)

    def _line(self, values):
        print(json.dumps(values), file=self.out, flush=True)


def three_digits(value):
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f}"


def describe_bytes(count):
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{three_digits(count / size)} {unit}"
    return f"{count} B"


def describe_seconds(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{three_digits(seconds / size)} {unit}"
    return f"{three_digits(seconds * 1e9)} ns"


def parse_bytes(text):
    """Bytes of "4096", "64KiB" or "10MB". Raises ValueError where it is no positive multiple of a float32's four."""
    word = text.lower().replace(" ", "")
    digits = word.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = word[len(digits):]
    if not digits.isdecimal() or unit not in BYTES:
        raise ValueError(f"'{text}' is not a size; write for example 65536, 64KiB or 1MiB")
    count = int(digits) * BYTES[unit]
    if count == 0 or count % 4:
        raise ValueError(f"'{text}': a size is a positive multiple of the 4 bytes of a float32")
    return count
