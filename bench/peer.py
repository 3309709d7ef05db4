"""A peer, as bench/peer.h describes it, for benches that are written in Python."""

import os
import selectors
import shlex
import signal
import subprocess
import time


class Fault(Exception):
    """A bench that cannot go on; the message is one line for people."""


class Peer:
    """Another program that stays alive and does a round whenever it is told to. Use it as a context manager: it is
    ended, with all its processes, on the way out.

    command: a list of words. environment: variables besides this process's own. time_limit: seconds of silence that
    end the bench. Raises Fault, naming the peer, when it cannot be started, ends, complains or is silent.
    """

    def __init__(self, name, command, environment=None, time_limit=300):
        self.name = name
        self.time_limit = time_limit
        self.command = list(map(str, command))
        self.unread = b""
        try:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                                            env=os.environ | (environment or {}), start_new_session=True)
        except OSError as error:
            raise Fault(f"peer {name}: '{shlex.join(self.command)}' could not be started: {error.strerror}") from error
        try:
            if (line := self._read_line()) != "ready":
                raise Fault(f"peer {name}: '{shlex.join(self.command)}' said '{line}' instead of 'ready'")
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def round(self, request, repeats):
        """Seconds of `repeats` times what `request` says. Blocks."""
        try:
            self.process.stdin.write(f"{request} {repeats}\n".encode())
        except OSError as error:
            raise Fault(f"peer {self.name} does not listen any more: {error.strerror}") from error
        answer = self._read_line()
        try:
            seconds = float(answer)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < float("inf"):
            raise Fault(f"peer {self.name}, told '{request} {repeats}', answered '{answer}'")
        return seconds

    def job(self, request):
        """round() of one request, as a Contender wants it."""
        return lambda repeats: self.round(request, repeats)

    def close(self, patience=10):
        """Closes its input and waits for it to end, then kills what is left of its processes."""
        self.process.stdin.close()
        # It is looked at without being reaped: until then its number, and its group's, are nobody else's.
        deadline = time.monotonic() + patience
        while os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
            if time.monotonic() > deadline:
                break
            time.sleep(0.002)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def _read_line(self):
        deadline = time.monotonic() + self.time_limit
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.unread:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise Fault(f"peer {self.name} has said nothing for {self.time_limit} s")
                if not (got := self.process.stdout.read(4096)):
                    raise Fault(f"peer {self.name} ended without an answer; what it said stands above")
                self.unread += got
        line, self.unread = self.unread.split(b"\n", 1)
        return line.decode(errors="replace")
