"""A process that has everything imported and the compiled loops ready, and forks one for each program it is given.

Programs come over the socket whose number is its argument, each as a line of JSON with four file handles: standard
input, output and error of the process, and a pipe that is told its number when it begins, and its exit code when it
ends. Tests ask for them with `forked`.
"""

import gc
import json
import os
import resource
import signal
import socket
import sys
from importlib import import_module
from typing import Any

import torch

torch.set_num_threads(1)  # a fork has no other threads

IMPORTED = """
faiss lxml.etree matplotlib.backends.backend_agg matplotlib.backends.backend_svg matplotlib.pyplot rich.progress
rich.table sacrebleu.metrics sacrebleu.significance sentencepiece uvicorn
knnmt.build.build knnmt.cli knnmt.lab.bench.speed knnmt.lab.report knnmt.lab.reproduce knnmt.server.app
knnmt.store.describe knnmt.tune.tune
"""


def prepare() -> None:
    """Import and load what programs use."""
    for name in IMPORTED.split():
        import_module(name)
    from transformers import AutoConfig, AutoTokenizer, MarianConfig, MarianMTModel, MarianTokenizer

    from knnmt.align.bitext import Bitext
    from knnmt.align.fastalign import train
    from knnmt.decode.rehearsal import rehearse
    from knnmt.model.checkpoint import FAMILIES, convert
    from knnmt.model.tokenizer import SpecialTokens
    from knnmt.ready import want

    _ = AutoConfig, AutoTokenizer, MarianTokenizer
    some = Bitext.from_pairs([([1, 2], [1, 2])])
    train(some).align(some)
    heads = {"encoder_attention_heads": 1, "decoder_attention_heads": 1, "decoder_start_token_id": 0}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    tiny = MarianMTModel(MarianConfig(vocab_size=9, d_model=8, pad_token_id=1, eos_token_id=0, **heads, **layers))
    special = SpecialTokens(start=0, end=0, pad=1, prefix=(), forced_end=True, banned=(1,))
    rehearse(convert(tiny.eval(), FAMILIES["marian"]), special)
    want(300)
    gc.collect()
    gc.freeze()


def received(control: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """What is asked for, and its files; None when nobody will ask again."""
    line, files, _, _ = socket.recv_fds(control, 1 << 16, 4)
    while line and not line.endswith(b"\n"):
        line += control.recv(1 << 16)
    return (json.loads(line), files) if line else None


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Fork for each program. Returns in the forked process, which is to run it, and at the end, with None."""
    ends: dict[int, int] = {}

    def reap(*signalled: Any) -> None:
        while ends:
            child, status = os.waitpid(-1, os.WNOHANG)
            if not child:
                return
            told = ends.pop(child)
            os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
            os.close(told)

    signal.signal(signal.SIGCHLD, reap)
    while asked := received(control):
        wanted, (*files, told) = asked
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # it may end before it is known
        child = os.fork()
        if not child:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # which the background jobs of a script ignore
            os.write(told, b"%d\n" % os.getpid())
            for number, file in enumerate(files):
                os.dup2(file, number)
            for file in (*files, told, *ends.values()):
                os.close(file)
            control.close()
        else:
            ends[child] = told
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        if not child:
            return wanted
        for file in files:
            os.close(file)
    return None


def run(asked: dict[str, Any]) -> None:
    """Be the program that was asked for."""
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    sys.argv, sys.path = asked["arguments"], asked["path"] + sys.path
    os.environ.update(asked["environment"])
    if not asked["synced"]:
        os.fsync = lambda fd: None
    if asked["largest"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked["largest"], asked["largest"]))
    program = compile(asked["program"], asked["arguments"][0], "exec")
    try:
        exec(program, {"__name__": "__main__"})
    except SystemExit as end:
        if asked["whole"]:
            raise
        sys.stdout.flush()
        os._exit(end.code if isinstance(end.code, int) else 0)


def main() -> None:
    """Serve, or be a program."""
    prepare()
    asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if asked is not None:
        run(asked)


if __name__ == "__main__":
    main()
