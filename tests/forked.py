"""Processes that begin at once: they are forked from one that has everything imported, which takes seconds.

See `forking`, which is that one; each process that runs tests has its own.
"""

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_asking = threading.Lock()


@functools.cache
def _control() -> socket.socket:
    """Where a process is asked for."""
    ours, theirs = socket.socketpair()
    script = Path(__file__).with_name("forking.py")
    process = subprocess.Popen([sys.executable, script, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    theirs.close()
    atexit.register(process.kill)
    return ours


class Child:
    """A process that runs a program.

    program: Python; arguments: the first is its name; handles: its standard input, output and error; environment: what
    it has besides ours; largest: bytes that it may write to a file; synced: whether what it writes reaches the disk;
    whole: whether it ends as any process does, for which Python takes a quarter of a second; path: where it imports
    from besides
    """

    def __init__(
        self,
        program: str,
        arguments: Sequence[str | Path],
        handles: Sequence[int],
        environment: Mapping[str, str] | None = None,
        largest: int | None = None,
        synced: bool = True,
        whole: bool = True,
        path: Sequence[str] = (),
    ) -> None:
        asked = {
            "program": program, "arguments": list(map(str, arguments)), "largest": largest, "synced": synced,
            "whole": whole, "environment": {**os.environ, **(environment or {})}, "path": list(path),
        }  # fmt: skip
        ours, theirs = os.pipe()
        with _asking:
            sent = socket.send_fds(_control(), [(line := json.dumps(asked).encode() + b"\n")], [*handles, theirs])
            _control().sendall(line[sent:])
        os.close(theirs)
        self._told = os.fdopen(ours)
        self.pid = int(self._told.readline())
        self.returncode: int | None = None

    def wait(self, timeout: float = 300) -> int:
        """Its exit code when it has ended, negative where a signal ended it."""
        if self.returncode is None:
            if not select.select([self._told], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            self.returncode = int(self._told.readline())
            self._told.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Forked(Child):
    """A process with pipes of text, as `subprocess.Popen` has it; its errors go to a file if one is given."""

    def __init__(self, program: str, *arguments: str | Path, errors: int | None = None, **options: Any) -> None:
        (theirs, own), (read, write), (reads, writes) = os.pipe(), os.pipe(), os.pipe()
        super().__init__(program, arguments, [theirs, write, writes if errors is None else errors], **options)
        for handle in (theirs, write, writes):
            os.close(handle)
        self.stdin, self.stdout, self.stderr = os.fdopen(own, "w"), os.fdopen(read), os.fdopen(reads)

    def communicate(self, text: str = "", timeout: float = 300) -> tuple[str, str]:
        """Write to it, and have all that it writes until it ends."""
        with ThreadPoolExecutor(2) as pool:
            reads = [pool.submit(pipe.read) if not pipe.closed else None for pipe in (self.stdout, self.stderr)]
            with contextlib.suppress(BrokenPipeError):
                self.stdin.write(text)
                self.stdin.close()
            out, error = ("" if read is None else read.result(timeout) for read in reads)
        self.wait(timeout)
        self.close()
        return out, error

    def close(self) -> None:
        """Have it end, if by force, and close its pipes."""
        self.send_signal(signal.SIGKILL)
        self.wait()
        for pipe in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@contextlib.contextmanager
def forked(program: str, *arguments: str | Path, **options: Any) -> Iterator[Forked]:
    """A process that has ended after the block."""
    process = Forked(program, *arguments, **options)
    try:
        yield process
    finally:
        process.close()


@contextlib.contextmanager
def script(path: str | None, *arguments: str | Path) -> Iterator[Forked]:
    """A script as a process that has loaded what it needs, and said that it is ready."""
    assert path is not None
    with forked(Path(path).read_text("utf-8"), path, *arguments, errors=2, synced=False) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
