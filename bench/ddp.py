"""Steps of stock DistributedDataParallel without an exchange, with gloo and with sumpter, in turns (`make bench-ddp`).

No exchange: copies of the model that train at the same time and send each other nothing. A ratio is a step's time over
the other contender's; `adds` is what the exchange adds to the step without one. DDP alone: DistributedDataParallel with a
communication hook that sends nothing, which is what it costs whatever the backend. One model at a time: all contenders of
a model are alive together, and each rank of each holds the model, its gradients and its momentum.
"""

import argparse
import contextlib
import sys

from options import make_parser, positive, turns_of
from peer import Fault, Peer
from peers import programs
from report import Goal, Report
from turns import Contender, compare, ratio_of

ROWS = {"mlp60m": 16, "alexnet": 8, "resnet18": 32}  # of one rank: a step takes tenths of a second
PARAMETERS = {"mlp60m": 59_817_738, "alexnet": 61_100_840, "resnet18": 11_181_642}
NONE, ALONE, GLOO, OURS = "no-exchange", "ddp-alone", "gloo", "sumpter"
SPEEDUP = {"mlp60m": 1.25}  # of the whole step over gloo's, where one is asked for
SHARE, ALLOWANCE = 1 / 3, 0.03  # of what gloo adds; of the step without an exchange
TURN = 0.3  # seconds: some steps, so that what the contender before has left in the caches matters little


def goals(model, gloo, ours, speedup, alone=1.0):
    """gloo, ours, alone: the step's time over that without an exchange; speedup: gloo's step over ours. What is added is
    judged twice where `alone` says what DistributedDataParallel adds by itself: with that, and without."""
    def goal(text, base):
        added, most = ours - base, max(SHARE * (gloo - base), ALLOWANCE)
        share = f", {added / (gloo - base):.2f} of it" if gloo > base else ""
        return Goal(f"{model}: {text} at most 1/3 of what gloo adds, or 3 % of the step",
                    f"gloo {100 * (gloo - base):.1f} %, sumpter {100 * added:.1f} %{share}", added <= most)

    found = [goal("the exchange adds", 1.0)]
    if alone != 1.0:
        found.append(goal("the exchange adds to DDP alone", alone))
    if model in SPEEDUP:
        found.append(Goal(f"{model}: gloo's step over sumpter's at least {SPEEDUP[model]}", f"{speedup:.2f}",
                          speedup >= SPEEDUP[model]))
    return found


def added(figure):
    return f"{100 * (figure.ratio - 1):.1f} %" if figure.against == NONE else ""


def bench(model, rows, options, report):
    """Prints the model's figures and returns its goals."""
    environment = programs.with_package(options.package)
    backends = {NONE: ("none", {}), ALONE: ("alone", {}), GLOO: ("gloo", {}), OURS: ("sumpter", environment)}
    with contextlib.ExitStack() as stack:
        peers = {name: stack.enter_context(
                     Peer(name, programs.ddp_step(options.ranks, model, rows, backend, options.threads), variables))
                 for name, (backend, variables) in backends.items()}
        against = {NONE: (), ALONE: (NONE,), GLOO: (NONE,), OURS: (NONE, GLOO)}
        contenders = [Contender(name, peer.job("step"), 4 * PARAMETERS[model], against[name])
                      for name, peer in peers.items()]
        figures = compare(contenders, turns_of(options, turn_seconds=TURN))
        report.add(model, figures)
        if options.status:
            peers[OURS].round("status", 1)
    return goals(model, ratio_of(figures, GLOO, NONE), ratio_of(figures, OURS, NONE), 1 / ratio_of(figures, OURS, GLOO),
                 ratio_of(figures, ALONE, NONE))


def parse_models(text):
    """[("mlp60m", 16), ...] from "mlp60m,alexnet:4"."""
    models = []
    for part in text.split(","):
        name, _, rows = part.partition(":")
        if name not in ROWS or rows and (not rows.isdecimal() or int(rows) == 0):
            raise argparse.ArgumentTypeError(
                f"'{part}' is not one of {', '.join(ROWS)}, with :ROWS of one rank after it where they are others")
        models.append((name, int(rows) if rows else ROWS[name]))
    return models


def main():
    parser = make_parser("ddp", __doc__, seconds=60)
    parser.add_argument("--models", type=parse_models, default=",".join(ROWS),
                        help="which, with the rows of one rank where others are wanted: mlp60m:16,alexnet")
    parser.add_argument("--threads", type=positive(int), default=1, help="of each rank (%(default)s)")
    options = parser.parse_args()

    report = Report(options.json, [("adds", added)])
    try:
        found = [goal for model, rows in options.models for goal in bench(model, rows, options, report)]
    except (Fault, programs.Missing) as error:
        sys.exit(f"bench/ddp.py: {error}")
    report.add_goals(found)


if __name__ == "__main__":
    main()
