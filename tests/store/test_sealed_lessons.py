"""Lessons that a compaction has sealed are read from their part: the journal keeps what the part cannot give."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from knnmt import Translator
from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.errors import StoreError
from knnmt.model.checkpoint import Model
from knnmt.store.journal import Journal
from knnmt.store.lessons import LessonStates, Record, SealedStates
from knnmt.store.memories import Memories
from knnmt.store.numbering import Numbering
from knnmt.store.records import to_bytes

from ..build.examples import parallel_text

SETTINGS = BuildSettings(clean=None, cluster_size=4)
LESSONS = [
    Segment("der Hund sieht das Haus und das Haus", "a cat sleeps in the garden", "a user", "one"),
    Segment("die Katze schläft", "the small tree", "a user", "two"),
    Segment("das Haus", "the house of the dog", "a user", "three"),
]
Build = Callable[[BuildSettings], Datastore]


@pytest.fixture
def built(model: Model, tmp_path: Path) -> Build:
    """A small store with these settings, which was taught."""

    def make(settings: BuildSettings) -> Datastore:
        corpus = parallel_text(tmp_path / "corpus.tsv", 30)
        build([corpus], model, tmp_path / "store", "de-en", settings)
        store = Datastore.open(tmp_path / "store")
        store.add(LESSONS, model)
        return store

    return make


def searched(store: Numbering) -> dict[str, bytes]:
    """All arrays that a search of the lessons reads."""
    assert store.lesson_part is not None
    return {name: array.tobytes() for name, array in store.lesson_part.items()}


def journal_size(store: Datastore) -> int:
    return (store.path / store.manifest.journal).stat().st_size


def states_size(store: Datastore) -> int:
    return sum(lesson.states.source.nbytes + lesson.states.target.nbytes for lesson in store.lessons.taught.values())


def test_the_journal_leaves_states_to_the_part_which_has_them_to_the_bit(built: Build, model: Model) -> None:
    store = built(SETTINGS)
    before, size = searched(store), states_size(store)
    assert journal_size(store) > size
    for full in (False, True):
        store.compact(model, full=full)
        again = Datastore.open(store.path)
        assert all(isinstance(lesson.states, SealedStates) for lesson in again.lessons.taught.values())
        assert searched(again) == searched(store) == before
        assert journal_size(again) < size / 2
        assert list(again.verify())


def test_what_is_taught_after_and_removed_is_searched_beside(built: Build, model: Model) -> None:
    store = built(SETTINGS)
    store.compact(model)
    more = Segment("ein Baum im Garten", "some tree", "a user", "four")
    store.add([more], model)
    store.remove(["two"])
    known = searched(store)
    store.compact(model)
    assert searched(Datastore.open(store.path)) == known
    translator = Translator(model, Datastore.open(store.path))
    for segment in (LESSONS[0], LESSONS[2], more):
        target = model.tokenizer.decode(model.tokenizer.encode_target([segment.target])[0])
        assert translator.translate([segment.source])[0].text == target


def test_stores_that_are_opened_together_read_each_their_own(built: Build, model: Model) -> None:
    store = built(SETTINGS)
    other = Datastore.open(shutil.copytree(store.path, store.path.with_name("other")))
    apart = searched(Memories.open([other.path, store.path]))
    for each in (store, other):
        each.compact(model)
    assert searched(Memories.open([other.path, store.path])) == apart


@pytest.mark.parametrize("settings", [{"keys": "pq"}, {"systems": ("similar",)}], ids=["quantized", "narrow"])
def test_the_journal_keeps_the_states_where_the_part_has_them_less_exactly(
    built: Build, model: Model, settings: dict[str, object]
) -> None:
    store = built(SETTINGS.model_copy(update=settings))
    before = searched(store)
    store.compact(model)
    again = Datastore.open(store.path)
    assert all(lesson.folded is not None for lesson in again.lessons.taught.values())
    assert searched(again) == before
    assert journal_size(again) > states_size(again)


def test_a_journal_that_has_the_states_of_sealed_lessons_is_read_and_mended_by_the_next_merge(
    built: Build, model: Model
) -> None:
    """So compactions once wrote them."""
    store = built(SETTINGS)
    store.compact(model)
    known = searched(store)
    lessons = [
        replace(lesson, states=LessonStates(lesson.states.source, lesson.states.target))
        for lesson in store.lessons.taught.values()
    ]
    rewrite(store, Record(tuple(lessons)))
    again = Datastore.open(store.path)
    assert searched(again) == known
    assert journal_size(again) > states_size(again)
    again.compact(model, full=True)
    assert searched(Datastore.open(store.path)) == known
    assert journal_size(again) < states_size(again)


@pytest.mark.parametrize("change", ["another segment", "other types"])
def test_a_sealed_lesson_that_is_not_the_one_in_its_part_is_refused(built: Build, model: Model, change: str) -> None:
    store = built(SETTINGS)
    store.compact(model)
    one, *others = store.lessons.taught.values()
    wrong = replace(one, folded=0) if change == "another segment" else replace(one, source_ids=0 * one.source_ids)
    rewrite(store, Record((wrong, *others)))
    with pytest.raises(StoreError, match="corrupt"):
        list(Datastore.open(store.path).verify())


def rewrite(store: Datastore, record: Record) -> None:
    """Make a record all that a store's journal has."""
    journal = store.path / store.manifest.journal
    journal.unlink()
    Journal(journal).append(to_bytes(record))
