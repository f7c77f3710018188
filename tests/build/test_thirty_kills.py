"""Thirty kills each of a build, of a compaction while others teach, and of a merge of parts.

A process is killed before a random step (it makes, renames, writes or removes a file) and at a random moment, in turn.
After every kill all that was acknowledged is there and `verify --full` is clean; the same command resumes; and in the
end the store is that of an undisturbed run, to the byte where nobody teaches meanwhile.
"""

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.cli.app import app
from knnmt.corpus import Segment
from knnmt.datastore import Datastore
from knnmt.model.checkpoint import Model
from knnmt.store.manifest import MANIFEST, work_folder

from ..forked import Forked
from .examples import parallel_text
from .killed import answer, ask, begin

KILLS, IN_A_ROW = 30, 3
SETTINGS: dict[str, Any] = {"cluster_size": 4, "batch_tokens": 64, "k_max": 7, "clean": None, "part_tokens": 150}

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_runs")]


@pytest.fixture(scope="module")
def parts(model: Model, short_runs: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of several parts."""
    folder = tmp_path_factory.mktemp("parts")
    corpus = parallel_text(folder / "corpus.tsv", 60)
    build([corpus], model, folder / "store", "de-en", BuildSettings.model_validate(SETTINGS))
    return folder / "store"


def verified(path: Path) -> Datastore:
    """A store that `verify --full` finds sound."""
    done = CliRunner().invoke(app, ["verify", "--full", str(path)])
    assert done.exit_code == 0, done.output
    return Datastore.open(path)


def files(folder: Path) -> dict[str, bytes]:
    """All files of a store but its lock, which has no content."""
    found = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name != "lock"}


def texts(store: Datastore) -> dict[str, tuple[str, str]]:
    return {segment.id or "": (segment.source, segment.target) for segment in store.segments()}


class Runs:
    """Runs of one command on a store, each in a process of its own, which may be killed."""

    def __init__(self, process: Forked, store: Path, **asked: Any) -> None:
        self.process, self.store, self.work = process, store, work_folder(store)
        self.asked = {"folder": str(store.parent), "store": str(store)} | asked
        self.rng, self.begun, self.kills, self.steps, self.seconds = random.Random(1), 0, 0, 0, 0.0

    def finish(self) -> dict[str, Any]:
        """Run to the end."""
        told = ask(self.process, **self.asked, kill_at=None)
        assert told["code"] == 0
        return told

    def measure(self) -> None:
        """Run to the end, and remember how long that was."""
        told = self.finish()
        if told["steps"]:  # there was something left to do
            self.steps, self.seconds = len(told["steps"]), told["seconds"]

    def killing(self) -> dict[str, Any]:
        """When to kill the next one."""
        self.begun += 1
        if self.begun % 2:
            return {"kill_at": self.rng.randrange(self.steps)}
        return {"kill_after": self.seconds * self.rng.random()}

    def killed(self) -> bool:
        """Run, and kill that; says whether it was still running."""
        return self.count(ask(self.process, **self.asked, **self.killing()))

    def count(self, told: dict[str, Any]) -> bool:
        """Count a kill; a run that was faster says how long they take by now."""
        assert told["code"] in (-9, 0)
        killed = bool(told["code"])
        self.kills += killed
        self.seconds = told.get("seconds", self.seconds)
        return killed

    def resume(self, done: set[str]) -> None:
        """Run to the end without doing again what is done."""
        again = {step.partition("/.")[2].removesuffix(".part") for step in self.finish()["steps"]}
        assert not again & done
        assert not self.work.exists()

    @property
    def done(self) -> set[str]:
        """The stages that a killed run has finished; none where it was removing what it had made."""
        return {path.name for path in self.work.glob("*.done")} if (self.work / "plan").exists() else set()


def kill_and_resume(runs: Runs, before: list[Path | None], check: Callable[[Path | None], None]) -> None:
    """Kill runs that begin with a copy of each store in turn, some of them several times, and compare the result."""
    expected = {}
    for path in before:
        restored(runs.store, path)
        runs.measure()
        expected[path] = files(runs.store)
    rounds = 0
    while runs.kills < KILLS and rounds < 2 * KILLS:
        path = before[rounds % len(before)]
        rounds += 1
        restored(runs.store, path)
        done: set[str] = set()
        for _ in range(runs.rng.randint(1, IN_A_ROW)):
            if runs.kills == KILLS:
                break
            if not runs.killed():  # it was faster
                done = set()
                break
            check(path)
            assert done <= runs.done or not runs.done, "a stage that was done is not done any more"
            done = runs.done
        runs.resume(done)
        check(path)
        assert files(runs.store) == expected[path]
    assert runs.kills == KILLS


def restored(store: Path, before: Path | None) -> None:
    shutil.rmtree(store, ignore_errors=True)
    shutil.rmtree(work_folder(store), ignore_errors=True)
    if before is not None:
        shutil.copytree(before, store)


def test_thirty_kills_of_a_build(process: Forked, parts: Path, tmp_path: Path) -> None:
    """With all stages; every second one is to replace another store, which is there until the new one is."""
    corpus = parallel_text(tmp_path / "corpus.tsv", 60, seed=1)
    settings = SETTINGS | {"keys": "pq", "part_tokens": 300, "clean": {"check_language": False}}
    runs = Runs(process, tmp_path / "store", corpus=str(corpus), out=str(tmp_path / "store"), settings=settings)
    runs.asked |= {"replace": True}
    del runs.asked["store"]

    def check(before: Path | None) -> None:
        if before is not None or (runs.store / MANIFEST).exists():
            verified(runs.store)

    kill_and_resume(runs, [None, parts], check)


def test_thirty_kills_of_a_merge(process: Forked, parts: Path, model: Model, tmp_path: Path) -> None:
    """All parts become one, less what was removed."""
    before = shutil.copytree(parts, tmp_path / "before")
    opened = Datastore.open(before)
    opened.add([Segment("ein Baum im Garten", "some tree", "", "taught")], model)
    opened.remove(["0", "40"])
    assert len(opened.parts) >= 3
    expected = texts(opened)
    runs = Runs(process, tmp_path / "store", full=True)

    def check(_: Path | None) -> None:
        assert texts(verified(runs.store)) == expected

    kill_and_resume(runs, [before], check)
    assert len(Datastore.open(runs.store).parts) == 1


class Teacher:
    """Whoever teaches a store and removes from it; knows what was acknowledged."""

    def __init__(self, path: Path, model: Model) -> None:
        self.store, self.model, self.rng, self.times = Datastore.open(path), model, random.Random(1), 0
        self.texts, self.lessons = texts(self.store), set(self.store.lessons.taught)

    def teach(self) -> None:
        """Teach, correct, or remove one segment."""
        self.times += 1
        name, words = f"lesson {self.rng.randrange(12)}", [self.rng.choice(("Hund", "Katze", "Baum")) for _ in range(3)]
        segment = Segment(f"ein {words[0]} im Garten", f"a {words[1]} sees the {words[2]}", "a user", name)
        if self.rng.random() < 0.7:
            self.store.add([segment], self.model)
            self.texts[name] = segment.source, segment.target
            self.lessons.add(name)
        else:
            gone = self.rng.choice(sorted(self.texts))
            assert self.store.remove([gone]) == [gone]
            del self.texts[gone]
            self.lessons.discard(gone)

    def check(self) -> None:
        """All that was acknowledged is there, and nothing else."""
        store = verified(self.store.path)
        assert texts(store) == self.texts
        assert set(store.lessons.taught) == self.lessons


def test_thirty_kills_of_a_compaction_while_others_teach(
    process: Forked, parts: Path, model: Model, tmp_path: Path
) -> None:
    """In the end it is the store that was taught the same and never compacted before."""
    disturbed, undisturbed = (shutil.copytree(parts, tmp_path / name / "store") for name in ("one", "other"))
    runs, teacher, other = Runs(process, disturbed, full=False), Teacher(disturbed, model), Teacher(undisturbed, model)
    teacher.teach()
    runs.measure()
    rounds = 0
    while runs.kills < KILLS and rounds < 3 * KILLS:
        rounds += 1
        teacher.teach()
        begin(process, **runs.asked, **runs.killing())
        for _ in range(runs.rng.randrange(4)):
            time.sleep(runs.seconds * runs.rng.random() / 4)
            teacher.teach()
        if runs.count(answer(process)):
            teacher.check()
        if runs.rng.random() < 0.5:
            runs.measure()
            teacher.check()
            opened = Datastore.open(disturbed)
            assert not opened.lessons.removed
            assert not opened.lessons.unfolded
    assert runs.kills == KILLS
    for _ in range(teacher.times):
        other.teach()
    assert other.texts == teacher.texts
    for path in (disturbed, undisturbed):
        Datastore.open(path).compact(model, full=True)
    teacher.check()
    one, same = (Datastore.open(path) for path in (disturbed, undisturbed))
    assert list(one.segments()) == list(same.segments())
    assert list(one.lessons.taught) == list(same.lessons.taught)
    for name in one.parts[0].files:
        array = name.removesuffix(".npy")
        if array != "token_shares":  # which weigh types by the store as it was before
            assert one.parts[0][array].tobytes() == same.parts[0][array].tobytes(), name
