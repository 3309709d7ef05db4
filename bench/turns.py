"""What bench/harness.h does, for benches that are written in Python.

What is compared takes turns, many rounds in one run, so that a machine that slows down slows all of them. Figures are
medians over the rounds, and ratios are paired: each round's times are divided by each other and the median of these
quotients is given.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable

MAXIMUM_REPEATS = 1000


@dataclasses.dataclass
class Contender:
    """One of the things that are compared. round(repeats): seconds of so many runs together, preparations left out.
    against: names of others of the same comparison; each gives one ratio."""

    name: str
    round: Callable[[int], float]
    bytes: int = 0
    against: tuple[str, ...] = ()


@dataclasses.dataclass
class Options:
    seconds: float = 3.0  # for a whole comparison, preparations included; at least minimum_rounds are done
    warm_up: int = 2  # rounds that are dropped
    minimum_rounds: int = 5
    maximum_rounds: int = 201
    turn_seconds: float = 2e-3  # what is shorter is repeated within its turn until it takes about as long
    now: Callable[[], float] = time.perf_counter
    ping: Callable[[], float] | None = None  # called before every turn: seconds of a cache line's one-way trip


@dataclasses.dataclass
class Figure:
    """A contender's result against one other, or on its own (`against` None)."""

    name: str
    bytes: int
    seconds: float  # median over the rounds of the seconds of one run
    spread: float  # half the interquartile range of those, over their median
    against: str | None
    ratio: float | None  # median over the rounds of this contender's seconds over the other's
    ping: float | None  # median of the pings measured before this contender's turns
    rounds: int


def turns_of(round_number, count):
    """Indices in the order of a round's turns: every other round goes backwards, and after two rounds another one is
    first, so that nobody always follows the same one."""
    turns = [(i + round_number // 2) % count for i in range(count)]
    return turns[::-1] if round_number % 2 else turns


def repeats_for(seconds, turn_seconds):
    if seconds <= 0:
        return MAXIMUM_REPEATS
    return int(min(max(turn_seconds / seconds, 1), MAXIMUM_REPEATS))


def quantile(values, fraction):
    """The value below which the fraction lies, interpolated between neighbours."""
    values = sorted(values)
    place = fraction * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


def relative_spread(values):
    middle = statistics.median(values)
    return 0.0 if middle == 0 else 0.5 * (quantile(values, 0.75) - quantile(values, 0.25)) / middle


def paired_ratio(seconds, others):
    """The median of the quotients of the same round."""
    return statistics.median(a / b for a, b in zip(seconds, others, strict=True))


def compare(contenders, options):
    """Runs all contenders in turns and returns one Figure for each and each entry of its `against`, in order. Blocks
    for about options.seconds."""
    names = [contender.name for contender in contenders]
    if len(set(names)) < len(names):
        raise ValueError(f"two contenders have one name, of {', '.join(names)}")
    if options.minimum_rounds < 1 or options.maximum_rounds < options.minimum_rounds:
        raise ValueError(f"{options.minimum_rounds} to {options.maximum_rounds} rounds were asked for; "
                         "at least 1, and no more at least than at most")
    seconds, pings = _measure(contenders, options)

    figures = []
    for contender in contenders:
        times = seconds[contender.name]
        for other in contender.against or (None,):
            figures.append(Figure(
                contender.name, contender.bytes, statistics.median(times), relative_spread(times), other,
                None if other is None else paired_ratio(times, seconds[other]),
                statistics.median(pings[contender.name]) if options.ping else None, len(times)))
    return figures


def _measure(contenders, options):
    repeats = [1] * len(contenders)
    seconds = {contender.name: [] for contender in contenders}
    pings = {contender.name: [] for contender in contenders}
    start = options.now()
    for round_number in range(options.warm_up):
        for i in turns_of(round_number, len(contenders)):
            repeats[i] = repeats_for(contenders[i].round(repeats[i]) / repeats[i], options.turn_seconds)
    for round_number in range(options.maximum_rounds):
        if round_number >= options.minimum_rounds and options.now() - start >= options.seconds:
            break
        for i in turns_of(round_number, len(contenders)):
            if options.ping:
                pings[contenders[i].name].append(options.ping())
            seconds[contenders[i].name].append(contenders[i].round(repeats[i]) / repeats[i])
    return seconds, pings


def ratio_of(figures, name, other):
    """The ratio that is there of two contenders' times."""
    return next(figure.ratio for figure in figures if (figure.name, figure.against) == (name, other))
