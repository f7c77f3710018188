"""The work folder of a build or a compaction, beside the store: whose plan it is, who works in it, and what is done.

A plan is a digest of all that the result depends on. Work of the same plan is resumed stage by stage; what another plan
has left is removed.
"""

import contextlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from knnmt import files, host
from knnmt.allocator import trim
from knnmt.build.context import Context, Progress
from knnmt.build.settings import BuildSettings
from knnmt.corpus import Languages, files_of
from knnmt.corpus.files import require_readable
from knnmt.errors import UsageError
from knnmt.model.represent import StateModel
from knnmt.store.manifest import FORMAT

_log = logging.getLogger(__name__)

RESUME = "the same command resumes from what is done so far, which is kept there"  # after a full disk


def plan_of(
    corpus: Sequence[Path], model: StateModel, device: str, precision: str, languages: Languages,
    settings: BuildSettings, alignments: Path | None,
) -> str:  # fmt: skip
    """The plan of a build, whose states are computed on this type of device, in this precision."""
    paths = files_of(corpus, languages)
    paths += [require_readable(alignments)] if alignments is not None else []
    content = {
        "format": FORMAT,
        "files": [(str(path), files.checksum(path)) for path in paths],  # segments name the file they come from
        "model": [model.fingerprint, model.tokenizer.fingerprint, device, precision],
        "languages": str(languages),
        "settings": settings.model_dump(mode="json"),
    }
    return files.digest(json.dumps(content, sort_keys=True).encode())


@dataclass
class Work:
    """A work folder in use: makes contexts of what is made in it, runs their stages, and adds up the time they take."""

    folder: Path
    model: StateModel
    settings: BuildSettings
    workers: int
    progress: Progress | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    synced: set[tuple[Path, int]] = field(default_factory=set)  # files on disk, and when they were last changed

    def context(self, name: str, *, label: str = "", lessons: frozenset[int] = frozenset()) -> Context:
        """A folder of arrays in the work folder."""
        folder, shared = self.folder / name, self.folder / "shared"
        folder.mkdir(exist_ok=True)
        shared.mkdir(exist_ok=True)
        return Context(self.model, self.settings, folder, shared, self.workers, self.progress, label, lessons)

    def do(self, context: Context, name: str, stage: Callable[[Context], None]) -> None:
        """Run a stage, unless that was done."""
        done = self.folder / f"{context.folder.name}.{name}.done"
        if done.exists():
            return
        began = time.perf_counter()
        stage(context)
        # a machine that crashes after this has the arrays, not just the word for it
        made = {entry for at in (context.shared, context.folder) for entry in _changed(at)}
        for path, _ in made - self.synced:
            host.sync(path)
        self.synced |= made
        files.write_whole(done, b"")
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began
        trim()  # the largest stage decides how much memory a build takes, not all of them together

    def is_done(self, context: Context, name: str) -> bool:
        """Whether a stage was done."""
        return (self.folder / f"{context.folder.name}.{name}.done").exists()


def _changed(folder: Path) -> Iterator[tuple[Path, int]]:
    """The files of a folder, and when they were last changed; others may be writing to what is shared."""
    for path in folder.iterdir():
        if not path.name.startswith("."):  # of a file in the making, which gets its name when it is whole
            yield path, path.stat().st_mtime_ns


@contextlib.contextmanager
def locked(work: Path) -> Iterator[None]:
    """Have a work folder for one build alone; it is removed when nothing is left in it."""
    files.make_folder(work, exist_ok=True)
    if not (work / "lock").exists() and any(work.iterdir()):
        raise UsageError(f"{work} exists, but is not the work folder of a build: move it, or build elsewhere")
    empty = False
    try:
        with host.lock(work / "lock") as lock:
            if lock is None:
                raise UsageError(f"another build is running in {work}: wait for it, or stop it")
            if lock.gone:
                raise UsageError(f"another build has just ended in {work}: run the command again")
            try:
                yield
            finally:
                if empty := [path.name for path in work.iterdir()] == ["lock"]:
                    lock.remove()
    finally:
        if empty:
            with contextlib.suppress(OSError):  # the next build may have begun in it
                work.rmdir()


def is_of(work: Path, plan: str) -> bool:
    """Whether a work folder is that of a plan."""
    begun = work / "plan"
    return begun.exists() and begun.read_text() == plan


def begin(work: Path, plan: str) -> None:
    """Make the work folder that of a plan; what another plan left in it is removed."""
    if is_of(work, plan):
        return
    if (work / "plan").exists():
        _log.warning("%s was left by a build with other texts, model or settings: starting again", work)
    remove(work)
    files.write_whole(work / "plan", plan.encode())


def remove(work: Path) -> None:
    """Remove all but the lock, the plan first: without it, nothing that is left is resumed."""
    (work / "plan").unlink(missing_ok=True)
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()


def left_over(work: Path) -> bool:
    """Whether this is what an interrupted removal has left."""
    names = {path.name for path in work.iterdir()} if work.is_dir() else {"plan"}
    return "plan" not in names and ("lock" in names or not names)
