"""src/c10d compiles against the oldest and the newest torch that is promised, not only the one that is installed."""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
SOURCES = sorted((ROOT / "src" / "c10d").glob("*.cpp"))


def headers(version):
    fetched = subprocess.run([sys.executable, ROOT / "tools" / "torch_headers", version], capture_output=True, text=True, timeout=2400)
    assert fetched.returncode == 0, fetched.stderr
    return pathlib.Path(fetched.stdout.strip()) / "torch" / "include"


def command_of(source):
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        if pathlib.Path(entry["file"]) == source:
            return shlex.split(entry["command"])
    pytest.fail(f"{source} is not in {BUILD}/compile_commands.json: configure the preset release")


def syntax_only(command, include):
    """The command with other headers of torch and without outputs, precompiled headers and ccache."""
    words = iter(command[1:] if command[0].endswith("ccache") else command)
    kept = []
    for word in words:
        if word in ("-o", "-MF", "-MT"):
            next(words)
        elif word == "-include":
            header = next(words)
            if "cmake_pch" not in header:
                kept += [word, header]
        elif word not in ("-c", "-MD", "-Winvalid-pch", "-fpch-preprocess"):
            before, found, after = word.partition("/torch/include")
            kept.append(f"{include}{after}" if found else word)
    return [*kept, "-fsyntax-only"]


@pytest.mark.prove
@pytest.mark.parametrize("version", ["2.11.0", "2.15.0"])
def test_compiles_against(version):
    assert SOURCES, "src/c10d has no sources"
    include = headers(version)
    assert (include / "torch" / "csrc" / "distributed" / "c10d" / "Backend.hpp").is_file()

    def compile_one(source):
        command = syntax_only(command_of(source), include)
        assert str(include) in command, command
        return subprocess.run(command, cwd=BUILD, capture_output=True, text=True, timeout=900)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for source, done in zip(SOURCES, pool.map(compile_one, SOURCES)):
            assert done.returncode == 0, f"{source.name} with torch {version}:\n{done.stderr[:4000]}"
