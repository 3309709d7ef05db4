"""Another torch than the one built against, or an extension that cannot be loaded: one line, and all else goes on."""

import shutil

import pytest
import torch
from scripts import PACKAGE, last_line, run_script

import sumpter_torch_backend  # noqa: F401  (the package is there)

BUILT = "2.14.3+cpu"


@pytest.fixture
def other_torch(tmp_path):
    """A copy of the package that says it was built against a torch that is not installed."""
    copy = tmp_path / "site"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "bin"))
    (copy / "sumpter" / "_build.py").write_text(f'VERSION = "0.1.0"\nTORCH_VERSION = "{BUILT}"\n')
    return copy


@pytest.fixture
def broken_extension(tmp_path):
    """A copy of the package whose extension is no library."""
    copy = tmp_path / "site"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "bin", "_C.*"))
    (copy / "sumpter" / "_C.so").write_text("no library\n" * 100)
    return copy


def complaint():
    return (
        f"ImportError: sumpter 0.1.0 was built against torch {BUILT}, and the installed torch is {torch.__version__}: "
        "install torch 2.14.3, or build sumpter anew: "
        "pip install --no-build-isolation --force-reinstall --no-deps <checkout of sumpter>"
    )


INIT = """
    import torch.distributed as dist
    dist.init_process_group("sumpter", store=dist.HashStore(), rank=0, world_size=1)
"""


def test_import_names_both(other_torch):
    assert last_line(run_script("import sumpter", path=other_torch)) == complaint()


def test_init_process_group_names_both(other_torch):
    assert last_line(run_script(INIT, path=other_torch)) == complaint()


def test_the_last_part_of_the_version_does_not_matter(tmp_path, extension):
    copy = tmp_path / "site"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "bin"))
    release = torch.__version__.partition("+")[0]
    (copy / "sumpter" / "_build.py").write_text(f'VERSION = "0.1.0"\nTORCH_VERSION = "{release}+another"\n')
    done = run_script("import sumpter; print(sumpter.__version__)", path=copy)
    assert done.stdout == "0.1.0\n", done.stderr


def test_an_extension_that_cannot_be_loaded(broken_extension):
    start = f"ImportError: sumpter 0.1.0: its extension sumpter._C cannot be loaded ({broken_extension}/sumpter/_C.so: "
    for script in ("import sumpter", INIT):
        line = last_line(run_script(script, path=broken_extension))
        assert line.startswith(start), line
        assert line.endswith("build it anew: pip install --no-build-isolation --force-reinstall --no-deps <checkout of sumpter>")


@pytest.mark.parametrize("package", ["other_torch", "broken_extension"])
def test_everything_else_goes_on(package, request):
    done = run_script(
        """
        import torch
        import torch.distributed as dist
        try:
            dist.init_process_group("sumpter", store=dist.HashStore(), rank=0, world_size=1)
        except ImportError:
            print("refused", dist.is_initialized())
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        values = torch.tensor([3.0])
        dist.all_reduce(values)
        print(values.item())
        dist.destroy_process_group()
        """,
        path=request.getfixturevalue(package),
    )
    assert (done.returncode, done.stdout) == (0, "refused False\n3.0\n"), done.stderr


def test_a_torch_that_is_not_there(other_torch):
    # None in sys.modules: as if it were not installed.
    done = run_script("import sys; sys.modules['torch'] = None; import sumpter", path=other_torch, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert last_line(done) == (
        f"ImportError: sumpter 0.1.0 was built against torch {BUILT}, and there is no torch here: install torch 2.14.3"
    )
