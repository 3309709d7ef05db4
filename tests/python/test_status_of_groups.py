"""sumpter.status(): what it shows of our groups, and the one line for every other group."""

import os

import pytest
import torch
import torch.distributed as dist


@pytest.fixture
def group(request):
    """A group of one rank with the backend that the test names."""
    dist.init_process_group(request.param, store=dist.HashStore(), rank=0, world_size=1)
    yield dist.distributed_c10d._get_default_group()
    dist.destroy_process_group()


@pytest.mark.parametrize("group", ["sumpter", "cpu:sumpter", "cpu:gloo,cuda:sumpter"], indirect=True)
def test_of_our_group(extension, group):
    status = extension.status()
    assert status == extension.status(group)
    assert (status.rank, status.members) == (0, [extension.Member(0, os.getpid())])
    lines = str(status).splitlines()
    assert [line[:13].rstrip() for line in lines] == [
        "rank", "members", "buckets", "memory", "reducers", "reductions", "wire", "time limits", "operations", "inner group",
    ]
    assert lines[0] == "rank         0 of 1"
    assert lines[1] == f"members      0: pid {os.getpid()}"


@pytest.mark.parametrize("group", ["gloo", "cpu:gloo"], indirect=True)
def test_of_another_backend(extension, group):
    found = "cpu:gloo,cuda:gloo" if dist.get_backend() == "gloo" else "cpu:gloo"
    with pytest.raises(ValueError) as raised:
        extension.status()
    assert str(raised.value) == (
        f"sumpter: that process group's backend is {found}; make it with init_process_group('sumpter') or as part of a map"
    )


@pytest.mark.parametrize("group", ["sumpter"], indirect=True)
def test_of_what_is_no_group_of_this_process(extension, group):
    with pytest.raises(ValueError, match="^sumpter: this process is not a member of that group$"):
        extension.status(dist.GroupMember.NON_GROUP_MEMBER)
    with pytest.raises(ValueError, match="^sumpter: a process group was asked for, found str$"):
        extension.status("default")


def test_before_there_is_a_group(extension):
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        extension.status()


@pytest.mark.parametrize("group", ["sumpter"], indirect=True)
def test_options_of_another_kind(extension, group):
    with pytest.raises(TypeError, match=r"^pg_options for the backend sumpter: sumpter.Options or None was asked for, found builtins.dict$"):
        dist.new_group([0], pg_options={"piece": 4096})


@pytest.mark.parametrize("group", ["sumpter"], indirect=True)
def test_options_of_another_backend_are_said_to_be_ignored(extension, group):
    options = dist.ProcessGroupGloo._Options()
    with pytest.warns(UserWarning, match="of another backend; sumpter uses its defaults$"):
        other = dist.new_group([0], pg_options=options)
    values = torch.tensor([2.0])
    dist.all_reduce(values, group=other)
    assert values.item() == 2.0
