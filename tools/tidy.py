"""Runs clang-tidy on the core's own sources (src and bench without torch), as many at a time as there are cores.

A file that passed is not looked at again until it, a header of ours that it includes, its compile command, the settings
or clang-tidy itself change: the user's cache directory holds one empty file for each state that passed, for every
checkout on the machine. A file costs ten to twenty seconds of a core otherwise.
"""

import concurrent.futures
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "core"
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
PASSED = CACHE / "sumpter" / "tidy"


def run(command, **options):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)


def compile_commands():
    configured = run(["cmake", "--preset", "core"], cwd=ROOT)
    if configured.returncode:
        sys.exit(configured.stdout)
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        source = pathlib.Path(entry["file"])
        if source.is_relative_to(ROOT / "src") or source.is_relative_to(ROOT / "bench"):
            yield source, entry


def own_inputs(entry):
    """The source and the headers of ours that it includes: what the compiler lists without system headers."""
    words = shlex.split(entry["command"])
    if pathlib.Path(words[0]).name == "ccache":
        del words[0]
    listed = subprocess.run([*words[: words.index("-o")], "-MM", entry["file"]], cwd=entry["directory"], text=True,
                            stdout=subprocess.PIPE, check=True).stdout
    return sorted(shlex.split(listed.replace("\\\n", " "))[1:])


def state_of(entry, settings):
    state = hashlib.sha256(settings)
    state.update(entry["command"].replace(str(ROOT), "").encode())
    for name in own_inputs(entry):
        state.update(pathlib.Path(entry["directory"], name).read_bytes())
    return state.hexdigest()


def check(source, entry, settings):
    """Returns what clang-tidy objects to: nothing when the file passes, now or before."""
    passed = PASSED / state_of(entry, settings)
    if passed.exists():
        return ""
    found = run(["clang-tidy", "--quiet", "-p", str(BUILD), str(source)], cwd=ROOT)
    if found.returncode:
        return f"{source.relative_to(ROOT)}\n{found.stdout}"
    passed.touch()
    return ""


def main():
    PASSED.mkdir(parents=True, exist_ok=True)
    settings = (ROOT / ".clang-tidy").read_bytes() + run(["clang-tidy", "--version"], check=True).stdout.encode()
    commands = dict(compile_commands())
    if not commands:
        sys.exit("tidy: the torch-free build has no source of ours: nothing was checked")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        complaints = [c for c in pool.map(lambda item: check(*item, settings), commands.items()) if c]
    print("\n".join(complaints), end="")
    print(f"tidy: {len(commands) - len(complaints)} of {len(commands)} sources pass")
    sys.exit(1 if complaints else 0)


if __name__ == "__main__":
    main()
