"""A compaction that is killed, wherever it is, loses nothing that was acknowledged, and leaves a store that opens."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from knnmt.build import cut
from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.corpus import Segment
from knnmt.model.checkpoint import load
from knnmt.store.store import Store

from ..forked import Forked
from .examples import parallel_text
from .killed import ask

SETTINGS = BuildSettings(clean=None, cluster_size=4, systems=("fast",), batch_tokens=64, part_tokens=150)
LESSONS = [
    Segment("der Hund sieht das Haus", "a cat sleeps in the garden", "a user", "one"),
    Segment("die Katze schläft", "the small tree", "a user", "two"),
]


@pytest.fixture(scope="module")
def taught(model_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several parts, which was taught and from which was removed."""
    torch.set_num_threads(1)
    folder, model = tmp_path_factory.mktemp("taught"), load(model_folder("marian"), langs="de-en", device="cpu")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "RUN", 1)
        build([parallel_text(folder / "corpus.tsv", 60)], model, folder / "store", "de-en", SETTINGS)
    store = Store.open(folder / "store")
    assert len(store.parts) >= 3
    store.add(LESSONS, model)
    store.remove(["0", "40"])
    return folder / "store"


class Compaction:
    """Compactions of copies of one store, each in a process of its own, during which somebody teaches and removes."""

    def __init__(self, process: Forked, taught: Path, folder: Path) -> None:
        self.process, self.taught, self.folder = process, taught, folder
        self.store, self.told = folder / "store", folder / "told"
        self.before = texts(Store.open(taught))

    def prepare(self) -> None:
        """The store as it was, of which nobody was told anything yet."""
        for place in self.folder.iterdir():
            shutil.rmtree(place)
        shutil.copytree(self.taught, self.store)
        self.told.mkdir()

    def run(self, full: bool, **asked: Any) -> dict[str, Any]:
        """Compact, and be killed if that is asked for."""
        given = {"folder": str(self.folder), "store": str(self.store), "told": str(self.told), "full": full}
        return ask(self.process, **given | asked)

    def check(self, what: str) -> None:
        """All that was acknowledged is there, and nothing is corrupt."""
        store = Store.open(self.store)
        assert list(store.verify()), what
        found, expected = texts(store), dict(self.before)
        taught, removed = (self.told / "taught").exists(), (self.told / "removed").exists()
        if taught or "late" in found:  # what was written and not yet acknowledged may be there or not
            expected["late"] = ("ein Baum im Garten", "some tree")
        if removed or "5" not in found:
            del expected["5"]
            assert taught, what
        assert found == expected, what
        assert set(store.lessons.taught) == {"one", "two"} | ({"late"} & set(found)), what


def texts(store: Store) -> dict[str, tuple[str, str]]:
    return {segment.id or "": (segment.source, segment.target) for segment in store.segments()}


@pytest.fixture
def compaction(process: Forked, taught: Path, tmp_path: Path) -> Compaction:
    return Compaction(process, taught, tmp_path)


def kill_at_steps(compaction: Compaction, full: bool, kills: int | None) -> None:
    """Kill at random steps, all of them if None; then finish."""
    compaction.prepare()
    told = compaction.run(full, kill_at=None, teach_at="cluster")
    assert told["code"] == 0
    compaction.check("nothing")
    steps: list[str] = told["steps"]
    assert sum("journal-" in step for step in steps) >= 3  # of the others' teaching, and the new one
    chosen = range(len(steps)) if kills is None else sorted(random.Random(kills).sample(range(len(steps)), kills))
    for number in chosen:
        compaction.prepare()
        assert compaction.run(full, kill_at=number, teach_at="cluster")["code"] == -9
        compaction.check(steps[number])
        assert compaction.run(full)["code"] == 0, steps[number]
        compaction.check(f"{steps[number]}, and then finished")
        store = Store.open(compaction.store)
        assert not full or len(store.parts) == 1
        assert not store.lessons.removed
        assert not store.lessons.unfolded
        assert {path.name for path in compaction.folder.iterdir()} == {"store", "told"}, steps[number]
        named = {*(part.folder.name for part in store.parts), store.manifest.journal, "manifest.json", "lock"}
        aligners = {path.name for path in compaction.store.glob("aligner-*")}
        assert len(aligners) == 1
        assert {path.name for path in compaction.store.iterdir()} == named | aligners, steps[number]


@pytest.mark.parametrize("full", [False, True], ids=["tiers", "full"])
def test_a_killed_compaction_loses_nothing(compaction: Compaction, full: bool) -> None:
    kill_at_steps(compaction, full, kills=6)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("full", [False, True], ids=["tiers", "full"])
def test_a_compaction_may_be_killed_at_every_step(compaction: Compaction, full: bool) -> None:
    kill_at_steps(compaction, full, kills=None)
