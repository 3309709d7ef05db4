"""The benches in Python are programs, not a package: their folder is where they find each other."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
