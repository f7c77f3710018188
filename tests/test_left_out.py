"""What is left out of a store is heard by nobody, taught or not, before and after compaction; and what was taught
counts as known."""

import shutil
from pathlib import Path

import pytest

from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.errors import StoreError
from knnmt.model.checkpoint import Model
from knnmt.overlap import overlaps
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS
from knnmt.translate import TranslateSettings, Translator

from .retrieval.examples import built

TAUGHT = [
    Segment("der Hund sieht das Haus im Garten .", "small cat sleeps and runs .", "Ada", "one"),
    Segment("eine Katze und ein Baum .", "the big garden sees a dog .", "Ada", "two"),
]
SOURCES = [segment.source for segment in TAUGHT]


@pytest.fixture(scope="module")
def taught(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    """A store that was taught some segments, of which it knew nothing."""
    store = built(model, tmp_path_factory.mktemp("taught"), k_max=16)
    store.add(TAUGHT, model)
    return store


@pytest.fixture(scope="module", params=["taught", "compacted"])
def store(
    taught: Datastore, model: Model, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Datastore:
    if request.param == "taught":
        return taught
    copied = Datastore.open(shutil.copytree(taught.path, tmp_path_factory.mktemp("compacted") / "store"))
    copied.compact(model)
    assert not copied.lessons.unfolded
    return copied


def heard(translator: Translator) -> set[int]:
    """The segments that had a part in the translations of what was taught."""
    found = translator.translate(SOURCES, TranslateSettings(beam=1, max_length=12, evidence=True))
    return {neighbour.segment for one in found for token in one.evidence for neighbour in token.neighbours}


def test_what_was_taught_is_known_and_what_was_removed_is_not(store: Datastore, model: Model, tmp_path: Path) -> None:
    found = overlaps(store, SOURCES)
    assert found.count == len(TAUGHT)
    assert [store.segment(number).target for number in sorted(found.segments)] == [one.target for one in TAUGHT]
    targets = overlaps(store, [segment.target for segment in TAUGHT], side="target")
    assert targets.segments == found.segments
    other = Datastore.open(shutil.copytree(store.path, tmp_path / "store"))
    other.remove(["one"])
    assert set(overlaps(other, SOURCES).exact) == {1}


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_left_out_is_heard_by_no_system(store: Datastore, model: Model, system: str) -> None:
    left_out = overlaps(store, SOURCES).segments
    chosen = RetrievalSettings(system=system, weight=0.9, adapt="constant")
    assert heard(Translator(model, store, retrieval=chosen)) & left_out
    without = Translator(model, store, retrieval=chosen, left_out=left_out)
    assert without.retriever is not None
    assert without.retriever.live.left_out == left_out
    assert not heard(without) & left_out
    # also by translators that are made of it
    assert not heard(without.using(weight=0.8)) & left_out
    base = Translator(model, store, system="base", left_out=left_out)
    assert not heard(base.using(system)) & left_out
    kept, gone = sorted(left_out)
    some = heard(Translator(model, store, retrieval=chosen, left_out=[gone]))
    assert kept in some
    assert gone not in some


def test_numbers_of_a_part_that_is_no_more_are_refused(model: Model, taught: Datastore, tmp_path: Path) -> None:
    store = Datastore.open(shutil.copytree(taught.path, tmp_path / "store"))
    translator = Translator(model, store, left_out=[3])
    store.compact(model)
    with pytest.raises(StoreError, match="was compacted or replaced while segments of it were left out"):
        translator.translate(SOURCES)
