"""Rank processes for tests of torch.distributed: started once, then asked to run many functions.

`with Ranks(2) as ranks: ranks.run(function, ...)` calls `function(*arguments)` in every rank at the same time and returns
what each gave back. Functions are module-level ones (they travel by name), results are pickled. Ranks are forked from one
server process that has torch loaded already: a set of them is there within tenths of a second.
"""

import contextlib
import dataclasses
import faulthandler
import functools
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from datetime import timedelta

# What is asked when a test says nothing else; `gloo` tests the tests.
BACKEND = os.environ.get("SUMPTER_TEST_BACKEND", "sumpter")
OURS = BACKEND == "sumpter"
PRELOAD = ["numpy", "torch", "torch._dynamo", "torch.distributed", "torch.nn.parallel"]


@dataclasses.dataclass
class Outcome:
    """What became of one call in one rank: a value, an error, or neither where the process ended."""

    rank: int
    value: object = None
    error: str | None = None  # the type's name, e.g. "DistBackendError"
    text: str = ""  # what the error says
    trace: str = ""
    seconds: float = 0.0
    exit_code: int | None = None  # of a process that ended instead of answering; -9 where it was killed

    @property
    def failed(self):
        return self.error is not None or self.exit_code is not None

    def __str__(self):
        if self.exit_code is not None:
            return f"rank {self.rank}: ended with {self.exit_code}"
        return f"rank {self.rank}: {self.trace or self.value}"


class Ranks:
    """`size` processes, each with its number and a connection. All are killed when the block ends."""

    def __init__(self, size, environment=None):
        self.size = size
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(PRELOAD)
        self.directory = tempfile.TemporaryDirectory(prefix="ranks")
        self.connections = []
        self.processes = []
        for rank in range(size):
            here, there = self.context.Pipe()
            process = self.context.Process(target=_serve, args=(there, rank, size, self.directory.name, environment or {}),
                                           daemon=True)
            process.start()
            there.close()
            self.connections.append(here)
            self.processes.append(process)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for process in self.processes:
            if process.is_alive():
                os.kill(process.pid, signal.SIGKILL)
        for process, connection in zip(self.processes, self.connections):
            process.join(20)
            connection.close()
        self.directory.cleanup()

    def pid(self, rank):
        return self.processes[rank].pid

    def kill(self, rank, number=signal.SIGKILL):
        os.kill(self.pid(rank), number)

    def start(self, function, *arguments, ranks=None):
        """Begins the call in all ranks, or in those named."""
        for rank in range(self.size) if ranks is None else ranks:
            self.connections[rank].send_bytes(pickle.dumps((function, arguments)))

    def stack(self, rank):
        """Where the Python threads of a rank are."""
        path = pathlib.Path(self.directory.name, f"stack{rank}")
        self.kill(rank, signal.SIGUSR1)
        deadline = time.monotonic() + 2
        while "most recent call first" not in path.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        return path.read_text()

    def message(self, rank, limit=30):
        """The next thing that a rank said by `tell` in the call under way."""
        connection = self.connections[rank]
        assert connection.poll(limit), f"rank {rank} said nothing in {limit} s"
        kind, value = connection.recv()
        assert kind == "told", value
        return value

    def say(self, rank, value):
        """Sends something into the call under way: hear() returns it there."""
        self.connections[rank].send(value)

    def outcomes(self, limit=60, ranks=None):
        """What became of the call in each rank, in rank order. AssertionError, and no rank is left, after `limit` seconds."""
        waiting = set(range(self.size) if ranks is None else ranks)
        found = {}
        deadline = time.monotonic() + limit
        while waiting:
            by_connection = {self.connections[rank]: rank for rank in waiting}
            ready = multiprocessing.connection.wait(by_connection, max(0.0, deadline - time.monotonic()))
            if not ready:
                stacks = "\n".join(f"rank {rank} is in:\n{self.stack(rank)}" for rank in sorted(waiting))
                self.close()
                answered = "\n".join(str(found[rank]) for rank in sorted(found))
                raise AssertionError(f"no answer in {limit} s:\n{stacks}\nthe others:\n{answered}")
            for connection in ready:
                rank = by_connection[connection]
                try:
                    kind, value = connection.recv()
                except EOFError:
                    self.processes[rank].join(20)
                    kind, value = "done", Outcome(rank, exit_code=self.processes[rank].exitcode)
                if kind == "done":
                    found[rank] = value
                    waiting.discard(rank)
        return [found[rank] for rank in sorted(found)]

    def run(self, function, *arguments, limit=60):
        """Values by rank; AssertionError with every rank's trace where one failed."""
        self.start(function, *arguments)
        outcomes = self.outcomes(limit)
        assert not any(outcome.failed for outcome in outcomes), "\n".join(map(str, outcomes))
        return [outcome.value for outcome in outcomes]


class KeptRanks:
    """Ranks for many tests: begun with `prepare` in each rank, and begun anew after a test that broke them."""

    def __init__(self, size, prepare=None, environment=None):
        self.size, self.prepare, self.environment = size, prepare, environment
        self.ranks = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.ranks:
            self.ranks.close()

    def run(self, function, *arguments, limit=60):
        if self.ranks is None:
            self.ranks = Ranks(self.size, self.environment)
            if self.prepare:
                self.ranks.run(self.prepare)
        try:
            return self.ranks.run(function, *arguments, limit=limit)
        except BaseException:
            self.ranks.close()
            self.ranks = None
            raise


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def torchrun(*arguments, limit=100):
    """Two ranks of a program, one thread each; AssertionError with what it said where it fails."""
    line = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", 2, "--master-port", free_port(), *arguments]
    process = subprocess.Popen(list(map(str, line)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        output, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.terminate()  # torchrun ends its ranks, at once or after half a minute
        output, errors = process.communicate(timeout=60)
        raise AssertionError(f"not done in {limit} s: {output}{errors}") from None
    assert process.returncode == 0, output + errors
    return output


# --- in a rank ---

RANK = None
SIZE = None
DIRECTORY = None
_connection = None
_stores = 0


def _serve(connection, rank, size, directory, environment):
    global RANK, SIZE, DIRECTORY, _connection
    RANK, SIZE, DIRECTORY, _connection = rank, size, directory, connection
    os.environ.update(environment)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))

    stacks = open(os.path.join(directory, f"stack{rank}"), "w")
    faulthandler.register(signal.SIGUSR1, stacks)

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.set_debug_level_from_env()
    while True:
        try:
            request = connection.recv_bytes()
        except EOFError:
            return
        began = time.monotonic()
        outcome = Outcome(rank)
        try:
            function, arguments = pickle.loads(request)
            outcome.value = function(*arguments)
            answer = pickle.dumps(("done", outcome))
        except BaseException as error:
            outcome = Outcome(rank, error=type(error).__name__, text=str(error), trace=traceback.format_exc())
            del error
        outcome.seconds = time.monotonic() - began
        answer = pickle.dumps(("done", outcome))
        connection.send_bytes(answer)


def tell(value=None):
    """Sends something to the test while the call goes on: Ranks.message() receives it."""
    _connection.send(("told", value))


def hear(limit=30):
    """What the test says by Ranks.say()."""
    assert _connection.poll(limit), f"the test said nothing in {limit} s"
    return _connection.recv()


def fresh_store():
    """A store that all ranks share: a new file for each call, by the number of the call."""
    import torch.distributed as dist

    global _stores
    _stores += 1
    return dist.FileStore(os.path.join(DIRECTORY, f"store{_stores}"), SIZE)


def init(backend=BACKEND, timeout=60.0, **options):
    """Makes the default group."""
    import torch.distributed as dist

    dist.init_process_group(backend, store=fresh_store(), rank=RANK, world_size=SIZE, timeout=timedelta(seconds=timeout),
                            **options)


def destroy():
    import torch.distributed as dist

    dist.destroy_process_group()


@contextlib.contextmanager
def group(backend=BACKEND, **options):
    """The default group for a block. It is destroyed in any case: after a fault too."""
    init(backend, **options)
    try:
        yield
    finally:
        destroy()


def in_group(function):
    """`function(*arguments)` becomes `function(backend, *arguments)`, called within a default group of that backend.

    Its variables are gone before the group is destroyed: a model that outlives a Gloo group can block for ever, because
    Gloo's destructor waits for its threads while it holds the interpreter's lock.
    """

    @functools.wraps(function)
    def within(backend, *arguments, **kwargs):
        with group(backend):
            return function(*arguments, **kwargs)

    return within


def in_threads(functions, limit=60):
    """Runs functions at the same time, one thread each; returns their values, raises the first error."""
    values, errors = [None] * len(functions), []

    def call(i):
        try:
            values[i] = functions[i]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(i,), daemon=True) for i in range(len(functions))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + limit
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
        assert not thread.is_alive(), f"a thread has not ended in {limit} s"
    if errors:
        raise errors[0]
    return values
