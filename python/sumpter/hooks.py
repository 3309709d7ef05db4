"""Gradients that travel in fewer bits: a communication hook for DistributedDataParallel.

    state = sumpter.hooks.CompressState(ddp.parameters(), wire="bf16")
    ddp.register_comm_hook(state, sumpter.hooks.compress)

Each rank's gradients are rounded to the wire format, summed in float32 in rank order, divided by the world size and rounded
once more. With error feedback, what rounding took away is kept and added to the next step's gradients, on both ways.
"""

# No `from __future__ import annotations`: register_comm_hook compares the annotations of `compress`.

from typing import Any, Iterable, Optional

import torch
import torch.distributed as dist

from sumpter import _C
from sumpter._status import backend_of

WIRES = ("bf16", "f16", "i8")


class CompressState:
    """The wire format, and the rounding errors of this rank that the next step makes good.

    parameters: those of the model, in the order that the model has them at a resume, too; float32.
    wire: "bf16", "f16" or "i8" (blocks of 256 values with a float32 scale, beginning anew at each parameter).
    error_feedback: costs two float32 values for each gradient.
    process_group: of backend `sumpter`, DDP's own; None is the default group.

    ValueError for a wire that is none of these. One state serves one DDP module.
    """

    def __init__(
        self,
        parameters: Iterable[torch.Tensor],
        wire: str = "bf16",
        error_feedback: bool = True,
        process_group: Optional[dist.ProcessGroup] = None,
    ) -> None:
        if wire not in WIRES:
            raise ValueError(f"sumpter.hooks: wire is one of {', '.join(WIRES)}, found {wire!r}")
        self.wire = wire
        self.error_feedback = error_feedback
        self.process_group = process_group
        self._parameters = list(parameters)
        for parameter in self._parameters:
            if not isinstance(parameter, torch.Tensor):
                raise TypeError(f"sumpter.hooks: CompressState takes a model's parameters(), found {type(parameter).__name__}")
        if not self._parameters:
            raise ValueError("sumpter.hooks: CompressState was given no parameters (an iterator that is used up?)")
        self._index = {id(parameter): index for index, parameter in enumerate(self._parameters)}
        # By the parameter's index, not the bucket's: DDP makes its buckets anew after the first step.
        self._errors: dict[int, torch.Tensor] = {}
        self._sum_errors: dict[int, torch.Tensor] = {}

    def state_dict(self) -> dict[str, Any]:
        """What a resume needs: wire, error_feedback, and the errors by parameter index, 1-d float32.

        `errors` are this rank's own: each rank saves its own. `sum_errors` are the same on all ranks. The tensors are the
        live ones, as in torch's optimizers: save them, or copy them, before the next step. Call it between steps.
        """
        return {
            "wire": self.wire,
            "error_feedback": self.error_feedback,
            "errors": dict(self._errors),
            "sum_errors": dict(self._sum_errors),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Takes over a copy of what `state_dict` gave. ValueError, changing nothing, if it belongs to another model or wire."""
        for key in ("wire", "error_feedback", "errors", "sum_errors"):
            if key not in state:
                raise ValueError(f"sumpter.hooks: the state to load has no '{key}'")
        for key in ("wire", "error_feedback"):
            if state[key] != getattr(self, key):
                raise ValueError(
                    f"sumpter.hooks: the state to load has {key}={state[key]!r}, and this one was made with {getattr(self, key)!r}"
                )
        loaded = [{int(i): self._checked(key, int(i), t) for i, t in state[key].items()} for key in ("errors", "sum_errors")]
        self._errors, self._sum_errors = loaded

    def _checked(self, key: str, index: int, tensor: torch.Tensor) -> torch.Tensor:
        if not 0 <= index < len(self._parameters):
            raise ValueError(f"sumpter.hooks: {key}[{index}] in the state to load, and the model has {len(self._parameters)} parameters")
        wanted = self._parameters[index].numel()
        if tensor.dtype != torch.float32 or tensor.shape != (wanted,):
            raise ValueError(
                f"sumpter.hooks: {key}[{index}] in the state to load is {tensor.dtype} of shape {tuple(tensor.shape)}, "
                f"and its parameter needs torch.float32 of shape ({wanted},)"
            )
        return tensor.detach().clone()

    def _index_of(self, parameter: torch.Tensor) -> int:
        index = self._index.get(id(parameter))
        if index is None:
            raise ValueError(
                f"sumpter.hooks: a gradient of shape {tuple(parameter.shape)} belongs to no parameter that CompressState was given"
            )
        return index

    def _kept(self, errors: dict[int, torch.Tensor], indices: list[int]) -> list[torch.Tensor]:
        if not self.error_feedback:
            return []
        for index in indices:
            if index not in errors:
                errors[index] = torch.zeros(self._parameters[index].numel(), dtype=torch.float32)
        return [errors[index] for index in indices]


def compress(state: CompressState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The hook: averages a bucket's gradients over the ranks in state's wire format, in place.

    bucket's buffer is 1-d, float32, on the CPU. What goes wrong in the group comes out of `backward()` as DistBackendError;
    TypeError for gradients of another type, ValueError for parameters that state does not know.
    """
    if not isinstance(state, CompressState):
        raise TypeError(f"sumpter.hooks: compress takes a CompressState as its state, found {type(state).__name__}")
    values = bucket.buffer()
    if values.dtype != torch.float32:
        raise TypeError(f"sumpter.hooks: compress takes float32 gradients, found {values.dtype}")
    parameters = bucket.parameters()
    indices = [state._index_of(parameter) for parameter in parameters]
    work = _C.compressed_all_reduce(
        backend_of(state.process_group),
        values,
        [parameter.numel() for parameter in parameters],
        state.wire,
        state._kept(state._errors, indices),
        state._kept(state._sum_errors, indices),
    )

    def averaged(future: torch.futures.Future) -> torch.Tensor:
        future.value()  # raises what the operation raised
        return values

    return work.get_future().then(averaged)
