"""Dev sets, ready to be looked up: each segment without what its fold leaves out of the store."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from knnmt.datastore import Datastore
from knnmt.errors import UsageError
from knnmt.model.checkpoint import Model
from knnmt.retrieval.gate import Gate
from knnmt.retrieval.session import Retriever
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import require_system
from knnmt.tune.grid import largest_k
from knnmt.tune.held_out import DevSet, Fold
from knnmt.tune.references import Shown

Progress = Callable[[str, int, int | None], None]
"""Called with a stage's name, the work done since the last call, and the whole of it."""


class Dev:
    """Dev sets with the model and the store that translate them; retrievers of a fold share what they read.

    given: settings of which all that is not searched for is kept; complete, but for the c of a system that has none
    """

    def __init__(
        self,
        model: Model,
        store: Datastore,
        sets: Sequence[DevSet],
        given: RetrievalSettings,
        progress: Progress | None = None,
    ) -> None:
        self.model, self.store, self.system = model, store, require_system(given.system)
        self.sets = [DevSet(some.name, tuple(_usable(some.folds))) for some in sets]
        if not all(len(some) for some in self.sets):
            raise UsageError("there is nothing to tune on: the dev set has no segments")
        self.watch: Progress = progress or (lambda stage, done, total: None)
        # a given k of None asks for all that is seen, and is not searched for
        self.most_k = largest_k(self.system, store) if given.k is not None else None
        self.lengths = given.length_penalty is None  # whether they are searched for
        given = given.without_gate().model_copy(update={"k": self.most_k})
        self._first = {
            fold.left_out: Retriever(store, model.device, given, left_out=fold.left_out)
            for some in self.sets
            for fold in some.folds
        }
        first = next(iter(self._first.values()))
        self.scale = first.live.view.scale
        found = first.settings.model_copy(update={"length_penalty": first.length_penalty(model.length_penalty)})
        self.given = found if self.system.c_grid else found.model_copy(update={"c": given.c})

    def __len__(self) -> int:
        return sum(map(len, self.sets))

    def retriever(self, fold: Fold, settings: RetrievalSettings, gate: Gate | None = None) -> Retriever:
        """What the segments of a fold are looked up by."""
        live = self._first[fold.left_out].live
        return Retriever(self.store, self.model.device, settings, gate=gate, live=live)

    def shown(self, settings: RetrievalSettings) -> list[list[Shown]]:
        """The segments of each dev set, with what they are looked up by."""
        return [[(self.retriever(fold, settings), fold.segments) for fold in some.folds] for some in self.sets]


def _usable(folds: Iterable[Fold]) -> Iterator[Fold]:
    """Folds without segments that lack a side."""
    for fold in folds:
        if segments := [segment for segment in fold.segments if segment.source.strip() and segment.target.strip()]:
            yield Fold(segments, fold.left_out)
