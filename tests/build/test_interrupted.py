"""A build that is killed, wherever it is, is finished by the same command: to the byte what it would have been.

A process that has the model loaded forks one for each build, as loading takes longer than building: see `killed`.
"""

import random
import re
import shutil
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

from knnmt.build.settings import BuildSettings
from knnmt.build.stages import needed
from knnmt.datastore import Datastore
from knnmt.errors import StoreError
from knnmt.store.manifest import MANIFEST, work_folder

from ..forked import Forked
from .examples import parallel_text
from .killed import ask
from .small import files

QUICK: dict[str, Any] = {
    "cluster_size": 4, "batch_tokens": 64, "k_max": 7, "clean": {"check_language": False}, "systems": ["faster-exact"],
    "part_tokens": 300,
}  # fmt: skip
WHOLE = QUICK | {"systems": [], "keys": "pq"}  # with all stages
PARTS = 2
SLEEP = 0.005  # at each step of progress, so that a tiny model's build takes a while
FIRST_OF_SEAL = f"open store.building/.part-{PARTS - 1}.sizes.part"


class Builder:
    """Builds of one corpus, each in a process of its own."""

    def __init__(self, process: Forked, folder: Path, settings: dict[str, Any]) -> None:
        self.process, self.folder, self.settings = process, folder, settings
        (folder / "work").mkdir()
        self.out = folder / "work" / "store"
        self.corpus = parallel_text(folder / "work" / "corpus.tsv", 60)
        made = [stage.name for stage in needed(BuildSettings.model_validate(settings))]
        self.stages = ["corpus.read", "corpus.align", "corpus.count"]
        for part in range(PARTS):
            self.stages += [f"part-{part}.{name}" for name in ("cut", "represent", "scale", *made, "seal")]

    def build(self, **asked: Any) -> dict[str, Any]:
        """Build, and be killed if that is asked for."""
        given = {"folder": str(self.out.parent), "corpus": str(self.corpus), "out": str(self.out)}
        return ask(self.process, **given | {"settings": self.settings, "replace": False} | asked)

    @cached_property
    def expected(self) -> dict[str, bytes]:
        """The store that no interruption has met."""
        self.prepare()
        assert self.build()["code"] == 0
        store = Datastore.open(self.out)
        assert list(store.verify())
        assert len(store.parts) == PARTS
        return files(self.out)

    @cached_property
    def other(self) -> Path:
        """Another store, which is to be replaced."""
        self.prepare()
        assert self.build(settings=self.settings | {"cluster_size": 3})["code"] == 0
        return shutil.copytree(self.out, self.folder / "other")

    @cached_property
    def unsealed(self) -> Path:
        """The work folder of a build that was killed when everything but the last stage was done."""
        steps = self.steps(None, None)
        self.prepare()
        assert self.build(kill_at=steps.index(FIRST_OF_SEAL))["code"] == -9
        assert self.stage() == self.stages[-1]
        return shutil.copytree(work_folder(self.out), self.folder / "unsealed")

    def prepare(self, before: Path | None = None, begun: Path | None = None) -> None:
        """Set up what a build meets: a store, the work of a build before it, or nothing."""
        for place, wanted in ((self.out, before), (work_folder(self.out), begun)):
            shutil.rmtree(place, ignore_errors=True)
            if wanted is not None:
                shutil.copytree(wanted, place)

    @cache  # noqa: B019 (it lives as long as the builder)
    def steps(self, before: Path | None, begun: Path | None) -> list[str]:
        """What a build writes, in its order."""
        assert self.expected
        self.prepare(before, begun)
        told = self.build(kill_at=None, replace=before is not None)
        assert told["code"] == 0
        self.assert_finished()
        steps: list[str] = told["steps"]
        return steps

    def stage(self) -> str:
        """The stage that a killed build was in; `publish` when all are done."""
        work = work_folder(self.out)
        if not (work / "plan").exists():
            return "before or after"
        return next((stage for stage in self.stages if not (work / f"{stage}.done").exists()), "publish")

    def assert_finished(self, what: str = "") -> None:
        assert files(self.out) == self.expected, what
        assert {path.name for path in self.out.parent.iterdir()} == {"corpus.tsv", "store"}, what


@pytest.fixture(scope="module")
def quick(process: Forked, tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return Builder(process, tmp_path_factory.mktemp("quick"), QUICK)


@pytest.fixture(scope="module")
def whole(process: Forked, tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return Builder(process, tmp_path_factory.mktemp("whole"), WHOLE)


# ------------------------------------------------------------------------------------------------------ at any moment


def kill_at_random(builder: Builder, kills: int) -> list[str]:
    """Kill builds at moments that are spread over the time a whole one takes; name the stages that were hit."""
    assert builder.expected
    builder.prepare()
    seconds = builder.build(sleep=SLEEP)["seconds"]
    builder.assert_finished()
    rng, hit = random.Random(kills), []
    for number in range(kills):
        builder.prepare()
        told = builder.build(kill_after=seconds * (number + rng.random()) / kills, sleep=SLEEP)
        assert told["code"] in (-9, 0)
        if told["code"]:
            hit.append(builder.stage())
            if hit[-1] in builder.stages:
                with pytest.raises(StoreError, match="there is no datastore"):
                    Datastore.open(builder.out)
        assert builder.build()["code"] == 0
        builder.assert_finished(f"killed in {hit[-1:]}")
    return hit


def test_a_killed_build_is_finished_by_the_same_command(quick: Builder) -> None:
    assert set(kill_at_random(quick, 3)) & set(quick.stages)


def test_a_build_that_is_killed_again_and_again_gets_done(quick: Builder) -> None:
    """What is done stays done: each time a bit more, though there is never time for all."""
    assert quick.expected
    quick.prepare()
    seconds = quick.build(sleep=SLEEP)["seconds"]
    quick.prepare()
    codes: list[int] = []
    while 0 not in codes and len(codes) < 12:
        patience = 1.2 ** len(codes)  # the machine may have become slower since
        codes.append(quick.build(kill_after=0.5 * patience * seconds, sleep=SLEEP)["code"])
    assert codes[0] == -9
    assert codes[-1] == 0
    quick.assert_finished()


# ------------------------------------------------------------------------------------------------------- at every step


def kill_at_step(builder: Builder, step: int, what: str, before: Path | None, begun: Path | None) -> None:
    """Kill a build before a step: the store is still the one before, or already the one after."""
    builder.prepare(before, begun)
    replace = before is not None
    assert builder.build(kill_at=step, replace=replace)["code"] == -9, what
    if before is None and not (builder.out / MANIFEST).exists():
        with pytest.raises(StoreError, match="no datastore"):
            Datastore.open(builder.out)
    else:
        assert list(Datastore.open(builder.out).verify()), what
        manifests = [builder.expected[MANIFEST], before and (before / MANIFEST).read_bytes()]
        assert (builder.out / MANIFEST).read_bytes() in manifests, what
    assert builder.build(replace=replace)["code"] == 0, f"the same command did not finish what was killed at: {what}"
    builder.assert_finished(what)


WORK, STORE = r"store\.building", r"store"
BEFORE_SEAL = {
    "the aligner is written and not in its place": rf"os\.rename {WORK}/shared/\.aligner.*",
    "the states are there and their stage not noted": rf"os\.rename {WORK}/\.part-0\.represent\.done\.part",
}
COMMIT = {
    "the first array that no system needs is removed": rf"os\.remove {WORK}/part-1/source_keys\.npy",
    "the parts are sealed and the store is not described": rf"os\.rename {WORK}/\.manifest\.part",
    "no part is in its place": rf"os\.rename {WORK}/part-0",
    "one part is in its place and the other is not": rf"os\.rename {WORK}/part-1",
    "the aligner is not in its place": rf"os\.rename {WORK}/shared/aligner\.safetensors",
    "the parts are in their place and the manifest not written": rf"open {STORE}/\.manifest\.json\.part",
    "the manifest is written and not in its place": rf"os\.rename {STORE}/\.manifest\.json\.part",
    "the manifest is in its place and the work folder as it was": rf"os\.remove {WORK}/plan",
    "the plan is removed and the work folder still there": r"os\.remove (?!plan|part-).*\.npy",
    "the lock is still there": rf"os\.remove {WORK}/lock",
    "the work folder is empty": rf"os\.rmdir {WORK}",
}


@pytest.mark.parametrize("what", BEFORE_SEAL)
def test_a_build_may_be_killed_between_a_file_and_its_name(quick: Builder, what: str) -> None:
    steps = quick.steps(None, None)
    (step,) = [number for number, step in enumerate(steps) if re.fullmatch(BEFORE_SEAL[what], step)]
    kill_at_step(quick, step, what, None, None)


@pytest.mark.parametrize("replaced", [False, True], ids=["new", "replaced"])
@pytest.mark.parametrize("what", COMMIT)
def test_a_build_may_be_killed_while_it_commits(quick: Builder, what: str, replaced: bool) -> None:
    before = quick.other if replaced else None
    steps = quick.steps(before, quick.unsealed)
    step = [number for number, step in enumerate(steps) if re.fullmatch(COMMIT[what], step)][-1]
    kill_at_step(quick, step, what, before, quick.unsealed)


def test_a_build_may_be_killed_while_it_removes_the_old_part(quick: Builder) -> None:
    steps = quick.steps(quick.other, quick.unsealed)
    first = steps.index("os.rename store/.manifest.json.part") + 1
    last = steps.index("os.remove store.building/plan") - 1
    assert last - first > 10
    for step in (first, (first + last) // 2, last):
        kill_at_step(quick, step, steps[step], quick.other, quick.unsealed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("replaced", [False, True], ids=["new", "replaced"])
def test_a_build_may_be_killed_at_every_step(whole: Builder, replaced: bool) -> None:
    before = whole.other if replaced else None
    steps = whole.steps(before, None)
    assert len(steps) > 80
    for number, step in enumerate(steps):
        kill_at_step(whole, number, step, before, None)


def test_what_another_command_began_to_clear_is_not_taken_up(quick: Builder) -> None:
    """A build is stopped; one with other settings begins to clear its folder, and is killed; the first comes again."""
    assert quick.expected
    other = quick.settings | {"key": "output"}
    quick.prepare(None, quick.unsealed)
    steps = quick.build(settings=other, kill_at=None)["steps"]
    cleared = steps.index("open store.building/.plan.part")
    assert cleared > 20
    for step in (1, cleared // 3, 2 * cleared // 3, cleared):
        quick.prepare(None, quick.unsealed)
        assert quick.build(settings=other, kill_at=step)["code"] == -9
        assert quick.build()["code"] == 0
        quick.assert_finished(steps[step])


def test_the_steps_that_are_watched_are_all(quick: Builder) -> None:
    """A watch that missed some would kill at fewer."""
    steps = quick.steps(None, None)
    opened = {Path(step.split()[-1]).name for step in steps if step.startswith("open ")}
    assert {Path(name).name for name in quick.expected if name.endswith(".npy")} <= opened
    assert {f".{stage}.done.part" for stage in quick.stages} <= opened
