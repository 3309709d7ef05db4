"""torch finds the backend by itself, and everything else goes on as if it were not there."""

import json
import re

from scripts import run_script

FACTS = """
    import json, sys
    import torch
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    def answer(question):
        try:
            return str(question())
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    def start(backend):
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)

    def facts_of_group():
        group = distributed_c10d._get_default_group()
        values = torch.tensor([1.0, 2.0])
        questions = {
            "name": group.name,
            "default": group._get_backend_name,
            "hooks": group._has_hooks,
            "sequence": group._get_sequence_number_for_group,
            "backend": dist.get_backend,
            "config": dist.get_backend_config,
            "devices": lambda: sorted(str(device) for device in group._device_types),
            "sum": lambda: (dist.all_reduce(values), values.tolist())[1],
            "barrier": dist.barrier,
            "subgroup": lambda: dist.new_group([0]).name(),
            "monitored": dist.monitored_barrier,
        }
        return {name: answer(question) for name, question in questions.items()}

    def step():
        model = torch.nn.Linear(3, 1)
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        ddp(torch.full((2, 3), 0.5)).sum().backward()
        return model.weight.grad.tolist()

    def in_group(backend, question):
        refused = answer(lambda: start(backend))
        if refused != "None":
            return refused
        told = question()
        dist.destroy_process_group()
        return told

    # Training steps come last: torch registers a backend of its own for them.
    report = {backend: in_group(backend, facts_of_group) for backend in sys.argv[1:]}
    report["steps"] = [in_group(backend, lambda: answer(step)) for backend in sys.argv[1:]]
    report["defaults"] = dist.Backend.default_device_backend_map
    report["loaded"] = [name for name in sys.modules if name.split(".")[0] == "sumpter"]
    print(json.dumps(report))
"""


def report_of(*backends, **kwargs):
    """What a process sees of groups of each backend, one after the other, and the warnings that it gets."""
    done = run_script(FACTS, *backends, **kwargs)
    assert done.returncode == 0, done.stderr
    # Warnings of torch's C++ carry a time and a number of their own.
    return json.loads(done.stdout), re.sub(r"\[W\d+ [\d:.]+ ", "[W ", done.stderr)


def test_other_groups_are_as_without_the_package():
    backends = ("gloo", "cpu:gloo", "cpu:gloo,cuda:nccl")
    report, warnings = report_of(*backends)
    without, warnings_without = report_of(*backends, path=None)
    assert report == without
    assert warnings == warnings_without
    assert report["loaded"] == []
    for backend in ("gloo", "cpu:gloo"):
        facts = report[backend]
        assert (facts["name"], facts["default"], facts["sequence"], facts["hooks"]) == ("gloo", "gloo", "0", "False")
        assert (facts["sum"], facts["subgroup"]) == ("[1.0, 2.0]", "gloo")
    assert report["steps"][:2] == ["[[1.0, 1.0, 1.0]]"] * 2


def test_groups_of_ours_have_a_default_backend(extension):
    backends = ("sumpter", "cpu:sumpter", "cpu:gloo,cuda:sumpter")
    report, warnings = report_of(*backends)
    for backend in backends:
        facts = report[backend]
        assert (facts["name"], facts["default"], facts["hooks"]) == ("custom", "custom", "False")
        assert (facts["sum"], facts["subgroup"]) == ("[1.0, 2.0]", "custom")
    assert report["steps"] == ["[[1.0, 1.0, 1.0]]"] * 3
    assert warnings == ""


def test_the_variable_of_buckets_is_set_by_a_group_and_not_by_import(extension):
    script = """
        import os, sumpter
        import torch.distributed as dist
        before = os.environ.get("DDP_DISABLE_COMM_MEM")
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        gloo = os.environ.get("DDP_DISABLE_COMM_MEM")
        dist.destroy_process_group()
        dist.init_process_group("sumpter", store=dist.HashStore(), rank=0, world_size=1)
        print(before, gloo, os.environ["DDP_DISABLE_COMM_MEM"])
        dist.destroy_process_group()
    """
    assert run_script(script).stdout == "None None 0\n"
    assert run_script(script, DDP_DISABLE_COMM_MEM="1").stdout == "1 1 1\n"


def test_other_plugins_stay_visible():
    done = run_script("""
        import torch.distributed as dist
        plugins = dist.Backend._plugins
        print(list(plugins.keys()), "SUMPTER" in plugins, len(plugins))
        dist.Backend.register_backend("other", lambda *arguments: None, devices=["cpu"])
        print(list(plugins.keys()), plugins["OTHER"].extended_api, plugins["SUMPTER"].extended_api, len(plugins))
    """)
    assert done.stdout == "[] True 1\n['OTHER'] False True 2\n", done.stderr


def test_registering_again_changes_nothing():
    done = run_script("""
        import torch.distributed as dist
        import sumpter_torch_backend
        plugins = dist.Backend._plugins
        before = dict(plugins)
        sumpter_torch_backend.register()
        print(dist.Backend._plugins is plugins, dict(plugins) == before, dist.Backend.backend_list.count("sumpter"))
    """)
    assert done.stdout == "True True 1\n", done.stderr


def test_registration_never_raises():
    done = run_script("""
        import torch.distributed as dist
        import sumpter_torch_backend

        def refuse(*arguments, **options):
            raise RuntimeError("not today\\nand not tomorrow")

        del dist.Backend._plugins["SUMPTER"]
        dist.Backend.register_backend = refuse
        sumpter_torch_backend.register()
        print("goes on")
    """)
    assert done.returncode == 0
    assert done.stdout == "goes on\n"
    assert done.stderr == "sumpter: the torch.distributed backend is not registered: RuntimeError: not today\n"


def test_without_autoload_importing_the_package_registers(extension):
    done = run_script(
        "import torch.distributed as d; print('sumpter' in d.Backend.backend_list); import sumpter; print('sumpter' in d.Backend.backend_list)",
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
    assert done.stdout == "False\nTrue\n", done.stderr
