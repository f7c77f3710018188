"""`knnmt` as a user meets it: real processes, their output, their exit codes."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ..forked import Child, Forked

PROGRAM = "from knnmt.cli import main; main()"
COMMAND = (sys.executable, "-c", PROGRAM)  # a process of its own, which has imported nothing


def begun(*arguments: str | Path, **options: Any) -> Forked:
    """A command that runs, and ends as any process does."""
    return Forked(PROGRAM, "knnmt", *arguments, **options)


def knnmt(
    *arguments: str | Path,
    text: str | bytes = "",
    terminal: str | None = None,
    largest: int | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run a command; standard error may be a terminal, and files may be limited to a number of bytes."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("in", "out", "error")]
        for path, content in zip(files, (text.encode() if isinstance(text, str) else text, b"", b""), strict=True):
            path.write_bytes(content)
        places: list[str | Path] = [*files[:2], files[2] if terminal is None else terminal]
        modes = (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)
        handles = [os.open(place, mode) for place, mode in zip(places, modes, strict=True)]
        options: dict[str, Any] = {"largest": largest, "synced": False, "whole": False}  # nobody pulls the plug
        child = Child(PROGRAM, ["knnmt", *arguments], handles, {"COLUMNS": "200", **environment}, **options)
        for handle in handles:
            os.close(handle)
        given = [str(each) for each in arguments]
        return subprocess.CompletedProcess(given, child.wait(), *(path.read_text("utf-8") for path in files[1:]))


def fine(done: subprocess.CompletedProcess[str], note: str = "") -> str:
    """Standard output of a command that did its work; `note` is what it had to say besides."""
    assert done.returncode == 0, done.stderr
    assert done.stderr == note
    return done.stdout


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """One line on standard error that names place and remedy; no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("knnmt: ")
    for word in words:
        assert word in done.stderr
