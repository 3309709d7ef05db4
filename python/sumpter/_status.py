"""What a process group of the backend looks like from inside: `sumpter.status()`."""

import dataclasses
import os
from typing import Any, Optional

NAME = "sumpter"


@dataclasses.dataclass(frozen=True)
class Member:
    """One process of a group."""

    rank: int  #: in the group
    pid: int  #: as this process sees it


@dataclasses.dataclass(frozen=True)
class Status:
    """A group's members, memory and counters, as this rank sees them at the moment of the call. `print` gives a table."""

    rank: int  #: of this process in the group
    members: list[Member]
    buckets: str  #: "in place": DDP's gradients lie where all ranks can read them; "staged": copied; "none yet": no DDP so far
    reason: str  #: why
    arena_bytes: int  #: shared memory of the group, of all members together
    bucket_bytes: int  #: the part of it that this rank's buckets hold now
    reducers: int  #: summing threads of this rank
    reducer_cores: list[int]  #: what they are bound to; empty: nothing
    reductions: str  #: "background": sums go on without the calling thread; "waiting": in the threads that wait for them
    choice: str  #: how that was chosen, with the times measured
    wire: str  #: number format that float32 sums are rounded to: "f32", "bf16", "f16" or "i8"
    piece: int  #: bytes
    timeout: float  #: seconds, for an operation
    connect_timeout: float  #: seconds, for joining the group
    operations: int  #: all that were begun
    in_place: int  #: of them, without a copy
    staged: int  #: of them, copied through the arena
    small: int  #: of them, in one message
    overflows: int  #: finite values that were too large for the wire format
    inner: str  #: "gloo": operations that the exchange does not do itself have made a Gloo group; "none yet"

    def __str__(self) -> str:
        members = ", ".join(f"{member.rank}: pid {member.pid}" for member in self.members)
        cores = f", on cores {', '.join(map(str, self.reducer_cores))}" if self.reducer_cores else ""
        rows = [
            ("rank", f"{self.rank} of {len(self.members)}"),
            ("members", members),
            ("buckets", f"{self.buckets} ({self.reason})" if self.reason else self.buckets),
            ("memory", f"arena {_bytes(self.arena_bytes)}, of it buckets {_bytes(self.bucket_bytes)}"),
            ("reducers", f"{self.reducers}{cores}"),
            ("reductions", f"{self.reductions} ({self.choice})" if self.choice else self.reductions),
            ("wire", f"{self.wire}, pieces of {_bytes(self.piece)}, {self.overflows} values too large for it"),
            ("time limits", f"{self.timeout:g} s, to connect {self.connect_timeout:g} s"),
            ("operations", f"{self.operations}: {self.in_place} in place, {self.staged} staged, {self.small} small"),
            ("inner group", self.inner),
        ]
        return "\n".join(f"{name:<12} {value}" for name, value in rows)


def status(group: Optional[Any] = None) -> Status:
    """The state of a process group of backend `sumpter`; without an argument, of the default group.

    Does not communicate: any rank may call it at any time. ValueError if there is no such group, if this process is not in
    it, or if it has another backend.
    """
    from sumpter import _C

    group = _resolved(group)
    fields = dict(_C.status(backend_of(group)))
    fields["members"] = [Member(*member) for member in fields["members"]]
    fields["buckets"], fields["reason"] = _buckets(group, len(fields["members"]), fields.pop("buckets_made"))
    return Status(**fields)


def _buckets(group: Any, size: int, made: int) -> tuple[str, str]:
    """Where DDP's gradients lie, and why: torch asks the default backend of a group for the memory of buckets."""
    if made > 0:
        return "in place", f"DDP has taken {made} bucket{'' if made == 1 else 's'} from the arena"
    if size == 1:
        return "none yet", "one rank exchanges nothing"
    switch = os.environ.get("DDP_DISABLE_COMM_MEM")
    if switch != "0":
        return "staged", f"DDP_DISABLE_COMM_MEM is {switch!r} in the environment: DDP does not ask for the arena's memory"
    default = group._get_backend_name()
    if default != "custom":
        return "staged", f"the group's default backend is {default}, and DDP asks only that for the memory of buckets"
    return "none yet", "no DDP has asked for memory so far"


def backend_of(group: Optional[Any]) -> Any:
    """The group's backend, out of the wrapper that TORCH_DISTRIBUTED_DEBUG=DETAIL puts around it. ValueError as `status`."""
    group = _resolved(group)
    found = {}
    for device in group._device_types:
        backend = group._get_backend(device)
        while hasattr(backend, "wrapped_pg"):
            backend = backend.wrapped_pg
        if backend.name() == NAME:
            return backend
        found[device.type] = backend.name()
    listed = ",".join(f"{device}:{name}" for device, name in sorted(found.items())) or "none"
    raise ValueError(
        f"sumpter: that process group's backend is {listed}; make it with init_process_group('sumpter') or as part of a map"
    )


def _resolved(group: Optional[Any]) -> Any:
    from torch.distributed import GroupMember, ProcessGroup, distributed_c10d

    if group is None:
        return distributed_c10d._get_default_group()
    if group is GroupMember.NON_GROUP_MEMBER:
        raise ValueError("sumpter: this process is not a member of that group")
    if not isinstance(group, ProcessGroup):
        raise ValueError(f"sumpter: a process group was asked for, found {type(group).__name__}")
    return group


def _bytes(count: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count} bytes"
