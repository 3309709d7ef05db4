"""Makes the backend `sumpter` known to torch.distributed.

torch calls `register` by itself when it is imported: it is the entry point of group `torch.backends`. Nothing else of the
package is loaded before a process group asks for the backend, so that scripts which do not use it pay for this file only.
An exception from here would make `import torch` fail; hence none leaves `register`.
"""

import sys

NAME = "sumpter"


def register() -> None:
    """Registers the backend. Never raises; a second call changes nothing."""
    try:
        _register()
    except Exception as error:  # whatever it is: `import torch` has to go on
        if sys.stderr is not None:
            reason = str(error).partition("\n")[0]
            print(f"sumpter: the torch.distributed backend is not registered: {type(error).__name__}: {reason}",
                  file=sys.stderr)


def _register() -> None:
    import torch.distributed

    if not torch.distributed.is_available():
        return
    backend = torch.distributed.Backend
    if NAME.upper() not in backend._plugins:
        backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])
    if not isinstance(backend._plugins, _Plugins):
        backend._plugins = _Plugins(backend._plugins)


def _create(dist_opts, pg_options):
    """What torch calls for a process group of backend `sumpter`, with its DistributedBackendOptions and the user's options."""
    try:
        from sumpter import _create_backend
    except ImportError as error:
        # The person sees this line last, without the importing that led to it.
        raise ImportError(str(error)) from None
    return _create_backend(dist_opts, pg_options)


class _Plugins(dict):
    """torch's table of registered backends, whose `keys()` tells of ours only for groups that have it.

    torch 2.11 to 2.14 choose the default backend of a group with a map ("cpu:gloo") so: if `keys()` is empty, Gloo; else
    what the first key names, if the map has it, and otherwise none. With any backend registered, a `cpu:gloo` group would
    have no name, no sequence numbers, and a warning. So where the map at hand lacks ours, `keys()` leaves it out; where the
    map has it, it comes first, spelled as in the map. 2.15 does not look here.
    """

    def keys(self):
        others = [key for key in super().keys() if key != NAME.upper()]
        caller = sys._getframe(1)
        if caller.f_code.co_name != "_new_process_group_helper":
            return others
        config = caller.f_locals.get("backend_config")
        chosen = getattr(config, "device_backend_map", {}).values()
        return [NAME, *others] if NAME in chosen else others
