"""A torch.distributed backend that sums gradients in the shared memory of one machine.

Scripts need not import this: with the package installed, `torch.distributed.init_process_group("sumpter")` is enough. What
is here is for options (`Options`), for looking at a group (`status`) and for compressed gradients (`sumpter.hooks`).
"""

import importlib
import os
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sumpter._build import VERSION as __version__
from sumpter._load import load

_C = load()  # raises ImportError, of one line, where the installed torch is not the one built against

import sumpter_torch_backend  # noqa: E402
from sumpter._status import Member, Status, status  # noqa: E402

if TYPE_CHECKING:
    import torch

    from sumpter import hooks as hooks

Options = _C.Options

__all__ = ["Member", "Options", "Status", "__version__", "hooks", "status"]

# Whether sums are done in the background, as this process measured it for its first group: later ones need not measure.
_known_choice: Any = None

# Where torch's loading of extensions is switched off (TORCH_DEVICE_BACKEND_AUTOLOAD=0), importing the package registers it.
sumpter_torch_backend.register()


def __getattr__(name: str) -> Any:
    if name == "hooks":
        return importlib.import_module("sumpter.hooks")
    raise AttributeError(f"module 'sumpter' has no attribute '{name}'")


def _create_backend(dist_opts: Any, pg_options: Any) -> "torch._C._distributed_c10d.Backend":
    """The backend of one process group. All its ranks are in this call at the same time; it blocks until all are connected."""
    from torch.distributed import Backend, PrefixStore, distributed_c10d

    if pg_options is not None and not isinstance(pg_options, Options):
        found = f"{type(pg_options).__module__}.{type(pg_options).__qualname__}"
        if not isinstance(pg_options, _backend_options_type()):
            raise TypeError(f"pg_options for the backend sumpter: sumpter.Options or None was asked for, found {found}")
        # A map (cpu:sumpter,cuda:nccl) has one pg_options for all its backends.
        warnings.warn(f"pg_options is {found}, of another backend; sumpter uses its defaults", stacklevel=2)
        pg_options = None

    # Asks DistributedDataParallel to take the memory of its buckets from the backend. torch reads it when buckets are made.
    os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")

    store, rank, size, timeout = dist_opts.store, dist_opts.group_rank, dist_opts.group_size, dist_opts.timeout
    ranks, name = list(dist_opts.global_ranks_in_group), str(dist_opts.group_id)

    def make_inner(prefix: str, limit: timedelta) -> Backend:
        """The Gloo backend for what the exchange does not do itself. All ranks are in it at the same time, for as long as
        `limit` at most. `prefix` is the group's own: a store may still have the addresses of an earlier one."""
        if not distributed_c10d.is_gloo_available():
            raise RuntimeError("sumpter needs Gloo for this operation, and this torch was built without it")
        inner = distributed_c10d.ProcessGroupGloo(PrefixStore(prefix, store), rank, size, timeout=limit)
        inner.options.global_ranks_in_group = ranks
        inner.options.group_name = name
        return inner

    global _known_choice
    backend = _C.create(store, rank, size, timeout, pg_options, _known_choice, make_inner)
    if size > 1 and (pg_options is None or pg_options.reducers is None):
        _known_choice = _C.choice(backend)
    return backend


def _backend_options_type() -> type:
    from torch._C._distributed_c10d import Backend

    return Backend.Options
