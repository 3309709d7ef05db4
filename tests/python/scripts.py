"""Python code that runs in a process of its own."""

import os
import pathlib
import subprocess
import sys
import textwrap

PACKAGE = pathlib.Path(os.environ["PYTHONPATH"].split(os.pathsep)[0])  # tests/conftest.py puts it there


def environment_of(path=PACKAGE, **variables):
    """This process's environment with the package in a directory, or, where path is None, without any; and variables."""
    environment = dict(os.environ)
    del environment["PYTHONPATH"]
    environment.pop("DDP_DISABLE_COMM_MEM", None)  # a group of ours in this process has set it
    if path is None:
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"  # the package may be installed, too
    else:
        environment["PYTHONPATH"] = str(path)
    return {**environment, **variables}


def run_script(script, *arguments, path=PACKAGE, **variables):
    """Runs it; path and variables as in environment_of."""
    line = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, env=environment_of(path, **variables))


def last_line(done):
    """What a person sees last of a script that ended with an exception, which nothing else led to."""
    assert done.returncode == 1, (done.returncode, done.stderr)
    for told_as_well in ("During handling of", "direct cause of"):
        assert told_as_well not in done.stderr, done.stderr
    return done.stderr.splitlines()[-1]
