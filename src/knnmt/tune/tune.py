"""Tune a system on a dev set, or a store on what is held out of it."""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.model.checkpoint import Model
from knnmt.overlap import overlaps
from knnmt.store.manifest import TUNED
from knnmt.systems.settings import Adapt, RetrievalSettings
from knnmt.systems.table import automatic
from knnmt.translate import TranslateSettings
from knnmt.tune.dev import Dev, Progress
from knnmt.tune.held_out import DevSet, Fold, hold_out
from knnmt.tune.search import Search, Trial

# the engine, on lines as they are: with the beams that translations are made with, since greedy search likes others
ALONE = TranslateSettings(batch_size=64, spans=False, sentences=False)
BETTER = 0.3  # of BLEU and chrF, that settings must be better than the untuned ones by to be kept for a store


def tune(
    model: Model,
    store: Datastore,
    dev: Sequence[Segment],
    system: str,
    *,
    adapt: Sequence[Adapt] = ("constant", "distance", "learned"),
    decoded: int = 6,
    translate: TranslateSettings | None = None,
    left_out: Collection[int] = (),
    given: RetrievalSettings | None = None,
    progress: Progress | None = None,
) -> list[Trial]:
    """Search k, T, λ and τ (and c, where a system has one): all settings that translated the dev set, the best first.

    `decoded` settings are chosen by likelihood and translate the dev set, then as many neighbours of the best; base MT,
    and the untuned settings where λ may fall with the distance, are always among them. Where λ may be `learned`, a gate
    is trained for the best settings by distance, which it falls back on and which are tried too. `left_out` are numbers
    of the store's segments that are not used: give those that also stand in the dev set (`Overlaps.segments`). `given`
    are settings of which all that is not searched for is kept, such as `index`. The default are 5 beams.
    """
    sets = [DevSet("dev", (Fold(dev, frozenset(left_out)),))]
    # what is tuned is retrieval: a text that the store has as a whole would come out right with any settings
    options = (translate or ALONE).model_copy(update={"exact": False})
    system = automatic(store) if system == "auto" else system
    search = Search(Dev(model, store, sets, (given or RetrievalSettings()).of(system), progress), options)
    return search.run(adapt, decoded)


@dataclass(frozen=True)
class StoreTuning:
    """What a store was tuned to, beside base MT and the untuned settings; the same trial where nothing was better."""

    best: Trial
    untuned: Trial
    base: Trial
    segments: dict[str, int]  # of each dev set, by its name
    held_out: bool


def tune_store(
    model: Model,
    store: Datastore,
    dev: Sequence[Segment] | None = None,
    *,
    decoded: int = 4,
    progress: Progress | None = None,
) -> StoreTuning:
    """Tune what `auto` stands for, and keep the best settings beside the store, where `translate` finds them.

    Without a dev set, segments of the store are held out: some of projects that it knows, and some of projects that it
    does not know (`knnmt.tune.held_out`). What is found there is followed half of the way only, and kept only if it is
    better than the untuned settings by more than chance, and on neither of the two worse. λ is by distance then; with a
    dev set a gate may be learned.
    """
    if dev is None:
        sets = hold_out(store)
    else:
        sets = [DevSet("dev", (Fold(dev, overlaps(store, [segment.source for segment in dev]).segments),))]
    search = Search(Dev(model, store, sets, RetrievalSettings(system=automatic(store)), progress), ALONE)
    if dev is None:
        best = search.halfway(search.run(("distance",), decoded)[0])
    else:
        best = search.run(("distance", "learned"), decoded)[0]
    base, untuned = search.trial(search.silent), search.trial(search.untuned)
    if search.gain(best) < BETTER:
        best = untuned
    found = StoreTuning(best, untuned, base, {some.name: len(some) for some in search.dev.sets}, dev is None)
    notes = {
        name: {some: asdict(figures) for some, figures in trial.sets.items()}
        for name, trial in (("tuned", best), ("untuned", untuned), ("base", base))
    }
    best.tuned.save(store.path / TUNED, **notes, segments=found.segments, held_out=found.held_out)
    return found
