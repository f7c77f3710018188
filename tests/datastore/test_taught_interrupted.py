"""Whoever is killed while teaching a store loses nothing that was acknowledged: no lesson twice, none half."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from knnmt.datastore.build import build
from knnmt.datastore.settings import BuildSettings
from knnmt.datastore.store import Datastore
from knnmt.model.checkpoint import load

from .examples import parallel_text

SEGMENTS = 500
SCRIPT = """
import sys, time
import torch
torch.set_num_threads(1)
from knnmt.corpus.segment import Segment
from knnmt.datastore.store import Datastore
from knnmt.model.checkpoint import load

model = load(sys.argv[1], langs="de-en", device="cpu")
store = Datastore.open(sys.argv[2])
store.aligner()
print("ready", flush=True)
for line in sys.stdin:
    number = int(line)
    store.add([Segment(f"der Hund {number}", f"the dog {number}", "", f"lesson {number}")], model)
    print(number, flush=True)
"""


@pytest.fixture(scope="module")
def folder(model_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store, and a model beside it."""
    folder = tmp_path_factory.mktemp("killed")
    model = load(model_folder("marian"), langs="de-en", device="cpu")
    corpus = parallel_text(folder / "corpus.tsv", 20)
    build([corpus], model, folder / "store", "de-en", BuildSettings(clean=None, cluster_size=4))
    (folder / "model").symlink_to(model_folder("marian"))
    return folder


def teach_and_kill(folder: Path, store: Path, numbers: range, rng: random.Random) -> list[int]:
    """Teach lessons one by one in another process, which is killed at some moment; give those acknowledged."""
    command = [sys.executable, "-c", SCRIPT, str(folder / "model"), str(store)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("".join(f"{number}\n" for number in numbers))
        process.stdin.flush()
        acknowledged = [int(process.stdout.readline()) for _ in range(rng.randint(1, max(1, len(numbers) // 12)))]
        time.sleep(rng.random() * 0.01)  # anywhere between two lessons, or in the midst of one
        os.kill(process.pid, signal.SIGKILL)
        return acknowledged + [int(line) for line in process.stdout.read().split("\n")[:-1]]


def killed(folder: Path, tmp_path: Path, kills: int, seed: int) -> None:
    rng, store = random.Random(seed), tmp_path / "store"
    shutil.copytree(folder / "store", store)
    before = len(Datastore.open(store))
    acknowledged: list[int] = []
    for _ in range(kills):
        first = max(acknowledged, default=-1) + 1
        if first >= SEGMENTS:
            break
        acknowledged += teach_and_kill(folder, store, range(first, SEGMENTS), rng)
        opened = Datastore.open(store)
        taught = {int((segment.id or "").removeprefix("lesson ")): segment for segment in opened.recent()}
        assert set(acknowledged) <= set(taught)
        assert len(set(taught) - set(acknowledged)) <= 1  # that which was on disk, and not yet said
        assert len(opened) == before + len(taught) == before + len(opened.recent())
        assert all(segment.target == f"the dog {number}" for number, segment in taught.items())
        acknowledged = sorted(taught)
        list(opened.verify())
    assert len(acknowledged) > kills


def test_a_process_killed_while_teaching_loses_nothing_acknowledged(folder: Path, tmp_path: Path) -> None:
    killed(folder, tmp_path, 3, seed=1)


@pytest.mark.slow
def test_fifty_kills_while_five_hundred_are_taught(folder: Path, tmp_path: Path) -> None:
    killed(folder, tmp_path, 50, seed=2)
