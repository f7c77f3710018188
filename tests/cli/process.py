"""`knnmt` as a user meets it: real processes, their output, their exit codes.

Importing torch and transformers takes seconds, so a process that has done so forks one for each command.
"""

import atexit
import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

COMMAND = (sys.executable, "-c", "from knnmt.cli import main; main()")
# a script's background jobs ignore Ctrl-C, and so do the processes they start: here one is to be interrupted
LISTENING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
INTERRUPTIBLE = (*COMMAND[:2], LISTENING + COMMAND[2])
FORKING = """
import json, os, resource, sys, traceback
import torch
torch.set_num_threads(1)  # a fork has no other threads
os.fsync = lambda handle: None  # nobody pulls the plug
import faiss, lxml.etree, rich.progress, rich.table, sacrebleu.metrics, sacrebleu.significance, sentencepiece
from transformers import AutoConfig, AutoTokenizer, MarianMTModel, MarianTokenizer
from knnmt.align.bitext import Bitext
from knnmt.align.fastalign import train
from knnmt.cli import main
import knnmt.build.build, knnmt.store.describe, knnmt.tune.tune
some = Bitext.from_pairs([([1, 2], [1, 2])])
train(some).align(some)  # compiled kernels are loaded once

def run(asked):
    for number, (path, mode) in enumerate(zip(asked["files"], (os.O_RDONLY, os.O_WRONLY, os.O_WRONLY))):
        os.dup2(os.open(path, mode), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)
    sys.argv = ["knnmt", *asked["arguments"]]
    os.environ.update(asked["environment"])
    if asked["largest"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked["largest"], asked["largest"]))
    try:
        main()
    except SystemExit as end:
        return end.code or 0
    finally:
        sys.stdout.flush()

print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if not child:
        try:
            os._exit(run(json.loads(line)))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@functools.cache
def _forking() -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", FORKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    )
    atexit.register(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def knnmt(
    *arguments: str | Path,
    text: str | bytes = "",
    terminal: str | None = None,
    largest: int | None = None,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run a command; standard error may be a terminal, and files may be limited to a number of bytes."""
    process, given = _forking(), text.encode() if isinstance(text, str) else text
    assert process.stdin is not None
    assert process.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("in", "out", "error")]
        for path, content in zip(files, (given, b"", b""), strict=True):
            path.write_bytes(content)
        given_files, given_arguments = [str(path) for path in files], [str(each) for each in arguments]
        asked = {
            "files": given_files if terminal is None else [*given_files[:2], terminal], "arguments": given_arguments,
            "environment": {"COLUMNS": "200", **environment}, "largest": largest,
        }  # fmt: skip
        print(json.dumps(asked), file=process.stdin, flush=True)
        code = int(process.stdout.readline())
        return subprocess.CompletedProcess(given_arguments, code, *(path.read_text("utf-8") for path in files[1:]))


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
