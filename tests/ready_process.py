"""Processes that load a model once, say that they are ready, and then do what they are told."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def started(script: str | None, model: Path) -> Iterator["subprocess.Popen[str]"]:
    """A script as a process, ready."""
    assert script is not None
    command = [sys.executable, script, str(model)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
