"""`knnmt` as a user meets it: real processes, their output, their exit codes."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

COMMAND = (sys.executable, "-c", "from knnmt.cli import main; main()")


def knnmt(
    *arguments: str | Path, text: str | bytes = "", before: Callable[[], None] | None = None, **options: str
) -> subprocess.CompletedProcess[str]:
    """Run a command; `before` is called in the new process, `options` are variables of its environment."""
    given = text.encode() if isinstance(text, str) else text
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=given, capture_output=True, timeout=120, env={**os.environ, "COLUMNS": "200", **options},
        preexec_fn=before,
    )  # fmt: skip
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


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
