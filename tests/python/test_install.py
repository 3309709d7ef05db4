"""pip builds and installs the package into a fresh environment, where torchrun trains with it and the command runs."""

import os
import pathlib
import subprocess
import sys
import sysconfig

import pytest
from command import ROOT

SCRIPT = """
import torch
import torch.distributed as dist

dist.init_process_group("sumpter")
rank = dist.get_rank()
values = torch.full((1000,), float(rank + 1))
dist.all_reduce(values)
model = torch.nn.Linear(4, 1, bias=False)
ddp = torch.nn.parallel.DistributedDataParallel(model)
ddp(torch.full((1, 4), float(rank))).sum().backward()
import sumpter
pids = [member.pid for member in sumpter.status().members]
print(f"{rank}: {values.unique().tolist()} {model.weight.grad.tolist()} {len(set(pids))} {sumpter.__file__}", flush=True)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A fresh virtual environment that sees this one's torch, and nothing of the build tree."""
    directory = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", directory], check=True, timeout=300)
    site = next((directory / "lib").glob("python*/site-packages"))
    (site / "torch_of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return directory


def run(environment, program, *arguments, timeout):
    variables = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    line = [environment / "bin" / "python", "-m", program, *arguments] if program in ("pip", "torch.distributed.run") else [
        environment / "bin" / program, *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=timeout, env=variables, cwd=environment)


@pytest.mark.prove
def test_pip_install(environment):
    done = run(environment, "pip", "install", "--no-build-isolation", "--no-deps", ROOT, timeout=3600)
    assert done.returncode == 0, done.stderr[-4000:]

    models = run(environment, "sumpter", "models", timeout=60)
    assert models.returncode == 0, models.stderr
    assert "lenet" in models.stdout

    script = environment / "script.py"
    script.write_text(SCRIPT)
    ranks = run(environment, "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script, timeout=300)
    assert ranks.returncode == 0, ranks.stderr[-4000:]
    site = next((environment / "lib").glob("python*/site-packages"))
    told = f"[3.0] [[0.5, 0.5, 0.5, 0.5]] 2 {pathlib.Path(site) / 'sumpter' / '__init__.py'}"
    assert sorted(ranks.stdout.splitlines()) == [f"0: {told}", f"1: {told}"]
