"""Whoever is killed while teaching a store loses nothing that was acknowledged: no lesson twice, none half."""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.datastore import Datastore
from knnmt.model.checkpoint import load

from ..build.examples import parallel_text
from ..forked import Forked, forked

SEGMENTS = 500
SCRIPT = """
import os, sys
from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.model.checkpoint import load

model = load(sys.argv[1], langs="de-en", device="cpu")
for line in sys.stdin:
    path, first, last = line.split("\\t")
    child = os.fork()  # loading takes longer than teaching
    if not child:
        store = Datastore.open(path)
        store.aligner()
        print(os.getpid(), flush=True)
        for number in range(int(first), int(last)):
            store.add([Segment(f"der Hund {number}", f"the dog {number}", "", f"lesson {number}")], model)
            print(number, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("ended", flush=True)
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


@pytest.fixture(scope="module")
def process(folder: Path) -> Iterator[Forked]:
    with forked(SCRIPT, "teaching", folder / "model", synced=False) as started:
        yield started


def teach_and_kill(process: Forked, store: Path, numbers: range, rng: random.Random) -> list[int]:
    """Teach lessons one by one in another process, which is killed at some moment; give those acknowledged."""
    process.stdin.write(f"{store}\t{numbers.start}\t{numbers.stop}\n")
    process.stdin.flush()
    child = int(process.stdout.readline())
    acknowledged = [int(process.stdout.readline()) for _ in range(rng.randint(1, max(1, len(numbers) // 12)))]
    time.sleep(rng.random() * 0.01)  # anywhere between two lessons, or in the midst of one
    os.kill(child, signal.SIGKILL)
    return acknowledged + [int(line) for line in iter(process.stdout.readline, "ended\n")]


def killed(process: Forked, folder: Path, tmp_path: Path, kills: int, seed: int) -> None:
    rng, store = random.Random(seed), tmp_path / "store"
    shutil.copytree(folder / "store", store)
    before = len(Datastore.open(store))
    acknowledged: list[int] = []
    for _ in range(kills):
        first = max(acknowledged, default=-1) + 1
        if first >= SEGMENTS:
            break
        acknowledged += teach_and_kill(process, store, range(first, SEGMENTS), rng)
        opened = Datastore.open(store)
        taught = {int((segment.id or "").removeprefix("lesson ")): segment for segment in opened.recent()}
        assert set(acknowledged) <= set(taught)
        assert len(set(taught) - set(acknowledged)) <= 1  # that which was on disk, and not yet said
        assert len(opened) == before + len(taught) == before + len(opened.recent())
        assert all(segment.target == f"the dog {number}" for number, segment in taught.items())
        acknowledged = sorted(taught)
        list(opened.verify())
    assert len(acknowledged) > kills


def test_a_process_killed_while_teaching_loses_nothing_acknowledged(
    process: Forked, folder: Path, tmp_path: Path
) -> None:
    killed(process, folder, tmp_path, 3, seed=1)


@pytest.mark.slow
def test_fifty_kills_while_five_hundred_are_taught(process: Forked, folder: Path, tmp_path: Path) -> None:
    killed(process, folder, tmp_path, 50, seed=2)
