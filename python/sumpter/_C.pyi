"""The extension: the backend in C++, src/c10d. Private; what is meant for scripts is in `sumpter` and `sumpter.hooks`."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Optional

from torch import Tensor
from torch._C._distributed_c10d import Backend, Store, Work

TORCH_VERSION: str

class Options(Backend.Options):
    """Options of a process group, for `init_process_group(..., pg_options=)` and `new_group`.

    Equal on all ranks, apart from reducer_cores and trace. ValueError for what makes no sense.

    wire: number format that float32 sums and averages are rounded to on their way in and out: "f32", "bf16", "f16", "i8".
    piece: bytes that are summed and signalled together.
    reducers: threads of each rank that only sum; 0: none; None: measured when the group is made.
    reducer_cores: cores that they run on; empty: where the system puts them.
    window: pieces of each rank that may be under way at once, where data is staged; 1 to 64.
    timeout: time limit of an operation; None: the group's.
    connect_timeout: time limit for all ranks to meet; None: the group's.
    trace: file for a timeline, in which {rank} is replaced; None: none.
    """

    def __init__(
        self,
        *,
        wire: str = "f32",
        piece: int = 131072,
        reducers: Optional[int] = None,
        reducer_cores: Sequence[int] = (),
        window: int = 4,
        timeout: Optional[timedelta] = None,
        connect_timeout: Optional[timedelta] = None,
        trace: Optional[str] = None,
    ) -> None: ...
    @property
    def wire(self) -> str: ...
    @property
    def piece(self) -> int: ...
    @property
    def reducers(self) -> Optional[int]: ...
    @property
    def reducer_cores(self) -> list[int]: ...
    @property
    def window(self) -> int: ...
    @property
    def timeout(self) -> Optional[timedelta]: ...
    @property
    def connect_timeout(self) -> Optional[timedelta]: ...
    @property
    def trace(self) -> Optional[str]: ...

class Choice:
    """Whether sums are done in the background or by those who wait, and the times that were measured."""

def create(
    store: Store,
    rank: int,
    size: int,
    timeout: timedelta,
    options: Optional[Options],
    known_choice: Optional[Choice],
    make_inner: Callable[[str, timedelta], Backend],
) -> Backend:
    """A connected backend. Blocks until all ranks are; measures unless all ranks give a known choice. DistBackendError."""

def choice(backend: Backend) -> Choice: ...
def status(backend: Backend) -> dict[str, Any]:
    """The fields of sumpter.Status but buckets and reason; buckets_made instead. Members as (rank, pid), times in seconds."""

def compressed_all_reduce(
    backend: Backend,
    values: Tensor,
    counts: Sequence[int],
    wire: str,
    errors: Sequence[Tensor],
    sum_errors: Sequence[Tensor],
) -> Work:
    """The mean over the ranks of values (1-d float32 of sum(counts) elements, in place), rounded to wire before and after.

    errors, sum_errors: for each count a float32 tensor of as many elements, added before rounding and updated; or empty.
    """
