"""`Datastore`: a store that can build and compact itself; what most users import."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from knnmt.build.build import BuildReport, build
from knnmt.build.compact import compact
from knnmt.build.context import Progress
from knnmt.build.pieces import Runner
from knnmt.build.settings import BuildSettings
from knnmt.model.checkpoint import load
from knnmt.model.embedded import DEFAULT
from knnmt.model.represent import StateModel
from knnmt.store.memories import Memories, Paths
from knnmt.store.store import Store


class Datastore(Store):
    """Every token of a parallel corpus, with the state in which a model predicts it.

    >>> store = Datastore.build("train.tmx", langs="de-en", out="store")
    >>> store = Datastore.open("store")
    """

    @classmethod
    def build(
        cls,
        corpus: str | Path | Sequence[str | Path],
        *,
        out: str | Path,
        langs: str,
        model: str | Path | StateModel = DEFAULT,
        settings: BuildSettings | None = None,
        alignments: str | Path | None = None,
        replace: bool = False,
        workers: int | None = None,
        runner: Runner | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Make a store from parallel text, or resume an interrupted build: see `knnmt.build.build`."""
        paths = [Path(one) for one in ([corpus] if isinstance(corpus, str | Path) else corpus)]
        loaded = load(model, langs=langs) if isinstance(model, str | Path) else model
        build(
            paths, loaded, Path(out), langs, settings, alignments=None if alignments is None else Path(alignments),
            replace=replace, workers=workers, runner=runner, progress=progress,
        )  # fmt: skip
        return cls.open(out)

    def compact(
        self, model: StateModel, *, full: bool = False, workers: int | None = None, progress: Progress | None = None
    ) -> BuildReport:
        """Seal what was taught, erase what was removed, and merge parts: see `knnmt.build.compact`."""
        return compact(self, model, full=full, workers=workers, progress=progress)


def open_stores(paths: str | Path | Paths) -> Datastore | Memories:
    """Open one store, or several as one, of which the last learns. A mapping gives each store a weight in p_kNN."""
    if isinstance(paths, str | Path):
        return Datastore.open(paths)
    alone = len(paths) == 1 and not isinstance(paths, Mapping)
    return Datastore.open(next(iter(paths))) if alone else Memories.open(paths)
