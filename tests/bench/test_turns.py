"""Turns and their arithmetic, on made-up times."""

import pytest

from turns import Contender, Figure, Options, compare, quantile, ratio_of, relative_spread, repeats_for, turns_of


class Clock:
    """Stands still unless somebody takes time."""

    def __init__(self):
        self.now = 0.0

    def contender(self, name, times, log=None, **others):
        """One whose runs take what the list says, round after round."""
        left = iter(times)

        def work(repeats):
            seconds = next(left) * repeats
            self.now += seconds
            if log is not None:
                log.append((name, repeats))
            return seconds
        return Contender(name, work, **others)

    def options(self, **others):
        return Options(now=lambda: self.now, **({"warm_up": 0} | others))


def test_every_other_round_goes_backwards_and_the_first_changes():
    assert [turns_of(number, 3) for number in range(7)] == [
        [0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1], [1, 0, 2], [0, 1, 2]]


def test_what_is_short_is_repeated():
    assert repeats_for(0.001, 0.0101) == 10
    assert repeats_for(5, 0.01) == 1
    assert repeats_for(1e-9, 0.01) == 1000
    assert repeats_for(0, 0.01) == 1000


def test_quantiles_lie_between_neighbours():
    assert quantile([4, 1, 2], 0.5) == 2
    assert quantile([1, 2], 0.25) == 1.25
    assert quantile([7], 0.75) == 7
    assert relative_spread([1, 2, 3, 4, 5]) == 1 / 3
    assert relative_spread([0, 0, 1]) == 0


def test_ratios_are_medians_of_quotients_within_a_round():
    clock = Clock()
    # The machine is four times slower in the last two rounds: 2 4 16 over 1 2 4 is 2, 2, 4, while medians give 4 / 2.
    figures = compare([clock.contender("a", [1, 2, 4], bytes=8), clock.contender("b", [4, 4, 16], against=("a",))],
                      clock.options(minimum_rounds=3, maximum_rounds=3))
    assert figures == [Figure("a", 8, 2, 0.375, None, None, None, 3), Figure("b", 0, 4, 0.75, "a", 4, None, 3)]
    assert ratio_of(figures, "b", "a") == 4

    clock = Clock()
    figures = compare([clock.contender("a", [1, 10, 100]), clock.contender("b", [3, 20, 100], against=("a",))],
                      clock.options(minimum_rounds=3, maximum_rounds=3))
    assert ratio_of(figures, "b", "a") == 2  # of 3, 2 and 1


def test_each_of_against_gives_a_figure_in_order():
    clock = Clock()
    figures = compare([clock.contender("a", [1]), clock.contender("b", [2]),
                       clock.contender("c", [4], against=("b", "a"))],
                      clock.options(minimum_rounds=1, maximum_rounds=1))
    assert [(f.name, f.against, f.ratio) for f in figures] == [
        ("a", None, None), ("b", None, None), ("c", "b", 2), ("c", "a", 4)]


def test_rounds_end_with_the_time_but_not_before_the_least():
    clock = Clock()
    figures = compare([clock.contender("a", [1] * 9)], clock.options(seconds=4, minimum_rounds=2, maximum_rounds=9))
    assert figures[0].rounds == 4
    figures = compare([clock.contender("a", [1] * 9)], clock.options(seconds=4, minimum_rounds=6, maximum_rounds=9))
    assert figures[0].rounds == 6
    figures = compare([clock.contender("a", [1] * 9)], clock.options(seconds=99, minimum_rounds=1, maximum_rounds=7))
    assert figures[0].rounds == 7


def test_warm_up_is_dropped_and_finds_the_repeats():
    clock, log = Clock(), []
    figures = compare([clock.contender("a", [0.5, 0.25, 0.125, 0.125], log)],
                      clock.options(warm_up=2, minimum_rounds=2, maximum_rounds=2, turn_seconds=1.0))
    assert log == [("a", 1), ("a", 2), ("a", 4), ("a", 4)]
    assert (figures[0].seconds, figures[0].rounds) == (0.125, 2)


def test_the_ping_before_each_turn_is_its_contenders():
    clock, pings = Clock(), iter([1, 10, 20, 2])  # the second round goes backwards
    figures = compare([clock.contender("a", [1, 1]), clock.contender("b", [1, 1])],
                      clock.options(minimum_rounds=2, maximum_rounds=2, ping=lambda: next(pings)))
    assert [figure.ping for figure in figures] == [1.5, 15]


def test_wrong_requests():
    clock = Clock()
    with pytest.raises(ValueError, match="two contenders have one name, of a, a"):
        compare([clock.contender("a", []), clock.contender("a", [])], clock.options())
    with pytest.raises(ValueError, match="5 to 4 rounds"):
        compare([clock.contender("a", [])], clock.options(maximum_rounds=4))
