"""The options that the benches in Python share."""

import argparse

from peers import programs
from turns import Options


def positive(kind):
    """A type for argparse: an int or a float above 0."""
    def parse(text):
        if not (value := kind(text)) > 0:
            raise argparse.ArgumentTypeError(f"{text} is not more than 0")
        return value
    parse.__name__ = kind.__name__
    return parse


def make_parser(name, description, seconds):
    """A parser that has them; `seconds` is the default of one comparison."""
    parser = argparse.ArgumentParser(prog=f"bench/{name}.py", description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=positive(float), default=seconds,
                        help="that one comparison may take (%(default)s)")
    parser.add_argument("--rounds", type=positive(int), default=201, help="of one comparison, at most (%(default)s)")
    parser.add_argument("--ranks", type=positive(int), default=2, help="of each contender (%(default)s)")
    parser.add_argument("--package", default=programs.PACKAGE, help="folder that holds the Python package sumpter")
    parser.add_argument("--status", action="store_true", help="print what sumpter.status() says, on standard error")
    parser.add_argument("--json", action="store_true", help="one JSON object a line instead of a table")
    return parser


def turns_of(options, **others):
    """How to compare, from what the parser has read."""
    return Options(seconds=options.seconds, minimum_rounds=min(Options.minimum_rounds, options.rounds),
                   maximum_rounds=options.rounds, **others)
