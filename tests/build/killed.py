"""A process that has a model loaded, and forks one for each build or compaction it is asked for, which may be killed.

It is killed after some time, or kills itself at a step: before the n-th time that it makes, renames, writes or removes
a file. What is asked and what is told are lines of JSON.
"""

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from knnmt.build import cut, represent
from knnmt.build.build import build
from knnmt.build.compact import compact
from knnmt.build.settings import BuildSettings
from knnmt.corpus import Segment
from knnmt.model.checkpoint import Model, load
from knnmt.store.store import Store

if TYPE_CHECKING:
    from ..forked import Forked

Asked = dict[str, Any]


def ask(process: "Forked", **asked: Any) -> Asked:
    """Have something done: `code` is -9 where it was killed; otherwise there are `seconds` and `steps`."""
    begin(process, **asked)
    return answer(process)


def begin(process: "Forked", **asked: Any) -> None:
    """Have something done, and do not wait for it."""
    process.stdin.write(json.dumps({"kill_after": None, "sleep": 0.0} | asked) + "\n")
    process.stdin.flush()


def answer(process: "Forked") -> Asked:
    """What became of what was begun."""
    told: Asked = json.loads(process.stdout.readline())
    return told


def watch_steps(folder: str, kill_at: int | None, steps: list[str]) -> None:
    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        path = arguments[0] if arguments else None
        if event == "open":
            writes = isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        else:
            writes = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir")
        if writes and isinstance(path, str | os.PathLike) and not path_is_outside(str(path), folder):
            steps.append(f"{event} {os.path.relpath(path, folder)}")
            if kill_at is not None and len(steps) > kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def path_is_outside(path: str, folder: str) -> bool:
    return Path(path).is_absolute() and not path.startswith(folder)


def work(asked: Asked, model: Model) -> Asked:
    steps: list[str] = []
    began = time.monotonic()
    if "kill_at" in asked:
        watch_steps(asked["folder"], asked["kill_at"], steps)
    teaching = asked.get("teach_at")

    def progress(stage: str, done: int, total: int | None) -> None:
        nonlocal teaching
        time.sleep(asked["sleep"])
        if stage == teaching:
            teaching = None
            teach(Store.open(asked["store"]), model, Path(asked["told"]))

    if "store" in asked:
        compact(Store.open(asked["store"]), model, full=asked["full"], workers=2, progress=progress)
    else:
        build(
            [Path(asked["corpus"])], model, Path(asked["out"]), "de-en",
            BuildSettings.model_validate(asked["settings"]), replace=asked["replace"], workers=2, progress=progress,
        )  # fmt: skip
    return {"seconds": time.monotonic() - began, "steps": steps}


def teach(store: Store, model: Model, told: Path) -> None:
    """Teach and remove while a store is being compacted; a file for each thing that was acknowledged."""
    store.add([Segment("ein Baum im Garten", "some tree", "", "late")], model)
    (told / "taught").touch()
    store.remove(["5"])
    (told / "removed").touch()


def tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def serve(model: Model) -> None:
    tell("ready")
    for line in sys.stdin:
        asked = json.loads(line)
        read, write = os.pipe()
        child = os.fork()
        if not child:
            try:
                os.write(write, json.dumps(work(asked, model)).encode())
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        os.close(write)
        if asked["kill_after"] is not None:
            time.sleep(asked["kill_after"])
            os.kill(child, signal.SIGKILL)
        with os.fdopen(read, "rb") as answer:
            told = answer.read()
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        tell(json.dumps({"code": code} | (json.loads(told) if told else {})))


def main() -> None:
    torch.set_num_threads(1)  # a fork has no other threads
    cut.RUN, represent.SYNC_SECONDS = 1, 0.0  # many runs, each written down when it is done
    model = load(sys.argv[1], langs="de-en", device="cpu")
    _ = model.fingerprint, model.tokenizer.fingerprint, model.tokenizer.encode_source(["Hund"])
    serve(model)


if __name__ == "__main__":
    main()
