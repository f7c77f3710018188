"""A store that is taught: what was added is there for everyone who opens it, what was removed is not, and compaction
makes one part of it all without losing what happens meanwhile."""

import fcntl
import shutil
from pathlib import Path

import numpy as np
import pytest

from knnmt import Translator
from knnmt.build.build import build
from knnmt.build.compact import compact
from knnmt.build.settings import BuildSettings
from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.errors import DataError, StoreError
from knnmt.model.checkpoint import Model
from knnmt.store import store as opened
from knnmt.store.lessons import Record
from knnmt.store.records import from_bytes, to_bytes
from knnmt.systems.table import SYSTEMS

from ..build.examples import parallel_text

NEW = Segment("der Hund sieht das Haus", "a cat sleeps in the garden", "a user", "lesson-1")
OTHER = Segment("die Katze schläft", "the small tree", "a user")


@pytest.fixture(scope="module")
def sealed(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of forty segments, of which only the eighth has an id."""
    folder = tmp_path_factory.mktemp("sealed")
    corpus = parallel_text(folder / "corpus.tsv", 40)
    lines = [line.rsplit("\t", 1)[0] for line in corpus.read_text().splitlines()]
    corpus.write_text("".join(f"{line}\tseven\n" if number == 7 else f"{line}\n" for number, line in enumerate(lines)))
    build([corpus], model, folder / "store", "de-en", BuildSettings(clean=None, cluster_size=4, k_max=None))
    return folder / "store"


@pytest.fixture
def store(sealed: Path, tmp_path: Path) -> Datastore:
    """One's own copy of it."""
    shutil.copytree(sealed, tmp_path / "store")
    return Datastore.open(tmp_path / "store")


def reopened(store: Datastore) -> Datastore:
    return Datastore.open(store.path)


def test_what_is_taught_is_there_for_whoever_opens_the_store(store: Datastore, model: Model) -> None:
    count = len(store)
    (first,) = store.add([NEW], model).ids
    (second,) = store.add([OTHER], model).ids
    assert first == "lesson-1"
    assert second.startswith("taught-")
    for one in (store, reopened(store)):
        assert len(one) == count + 2
        assert one.find("lesson-1") == NEW
        assert [segment.target for segment in one.recent()] == [OTHER.target, NEW.target]
        assert [segment.target for segment in one.segments()][-2:] == [NEW.target, OTHER.target]
        assert one.segment(count + 1).target == OTHER.target
        assert one.target_ids(count)[-1] == model.special.end


def test_a_segment_takes_the_place_of_one_with_its_id(store: Datastore, model: Model) -> None:
    count = len(store)
    store.add([NEW], model)
    better = Segment(NEW.source, "the dog sees the house", "a user", NEW.id)
    store.add([better], model)
    assert len(store) == len(reopened(store)) == count + 1
    assert reopened(store).find("lesson-1") == better
    # the same pair taught twice is there once, also without an id
    store.add([OTHER, OTHER], model)
    store.add([OTHER], model)
    assert len(reopened(store)) == count + 2
    # and so are segments of the corpus, whether they have an id or are addressed by their number
    store.add([Segment("das Haus", "the house", "a user", "seven")], model)
    assert len(reopened(store)) == count + 2
    assert reopened(store).find("seven").target == "the house"  # type: ignore[union-attr]
    assert store.find("#7") is None
    store.add([Segment("das Haus", "the garden", "a user", "#3")], model)
    assert len(reopened(store)) == count + 2
    assert reopened(store).find("#3") is None
    assert [segment.target for segment in reopened(store).segments()][-1] == "the garden"


def test_removed_segments_are_gone_for_whoever_opens_the_store(store: Datastore, model: Model) -> None:
    count = len(store)
    texts = [segment.source for segment in store.segments()]
    store.add([NEW], model)
    assert store.remove(["#2", "lesson-1", "#2", "nobody", "#99999", "#"]) == ["#2", "lesson-1"]
    for one in (store, reopened(store)):
        assert len(one) == count - 1
        assert [segment.source for segment in one.segments()] == texts[:2] + texts[3:]
        assert one.find("#2") is None
        assert one.find("lesson-1") is None
    assert store.remove(["#2"]) == []


def test_every_system_uses_a_lesson_in_the_next_translation(store: Datastore, model: Model) -> None:
    """Also one that another process taught, once that was taken up; by retrieval alone: λ is near 1."""
    base = Translator(model, store, system="base").translate([NEW.source])[0].text
    wanted = model.tokenizer.decode(model.tokenizer.encode_target([NEW.target])[0])
    assert base != wanted
    for system in SYSTEMS:
        translator = Translator(model, store, system=system).using(weight=0.999)
        assert translator.translate([NEW.source])[0].text != wanted
        other = reopened(store)
        other.add([NEW], model)
        assert translator.refresh()
        result = translator.using(system).translate([NEW.source])[0]
        assert result.text == wanted, system
        other.remove(["lesson-1"])
        assert translator.refresh()
        assert not translator.refresh()
        assert translator.translate([NEW.source])[0].text != wanted


def test_a_lesson_is_shown_as_evidence(store: Datastore, model: Model) -> None:
    from knnmt import TranslateSettings

    translator = Translator(model, store, system="fast").using(weight=0.999)
    translator.add([NEW])
    result = translator.translate([NEW.source], TranslateSettings(evidence=True))[0]
    first = result.evidence[0].neighbours[0]
    assert (first.id, first.origin, first.target.strip()) == ("lesson-1", "a user", NEW.target)
    assert first.distance == pytest.approx(0.0, abs=1e-2)


@pytest.mark.parametrize(
    ("segment", "reason"),
    [
        (Segment("", "something", ""), "empty side"),
        (Segment("etwas", "  ", ""), "empty side"),
        (Segment("Hund " * 100, "dog", ""), "too long"),
        (Segment("Hund", "dog " * 100, "file:3"), "file:3: a segment is too long"),
    ],
)
def test_what_cannot_be_learnt_is_refused_and_nothing_is_stored(
    store: Datastore, model: Model, segment: Segment, reason: str
) -> None:
    count = len(store)
    with pytest.raises(DataError, match=reason):
        store.add([NEW, segment], model)
    assert len(reopened(store)) == count
    faults: list[DataError] = []
    assert store.add([segment, NEW], model, bad=faults.append).ids == ("lesson-1",)
    assert len(faults) == 1
    assert len(reopened(store)) == count + 1


def test_one_writes_at_a_time(store: Datastore, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "LOCK_SECONDS", 0.1)
    with (store.path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another process is writing"):
            store.add([NEW], model)
    assert store.add([NEW], model).ids == ("lesson-1",)


def test_two_who_write_in_turn_see_each_other(store: Datastore, model: Model) -> None:
    other = reopened(store)
    for number in range(3):
        store.add([Segment(f"der Hund {number}", "dog", "")], model)
        other.add([Segment(f"die Katze {number}", "cat", "")], model)
    assert len(other) == len(store) + 1 == len(reopened(store))
    assert store.refresh()
    assert list(store.segments()) == list(other.segments())


def test_a_record_of_another_store_or_a_forged_one_is_refused(store: Datastore, model: Model) -> None:
    store.add([NEW], model)
    record = Record(tuple(store.lessons.taught.values()), ("x",), (1, 2))
    content = to_bytes(record)
    sizes = store.sizes
    again = from_bytes(content, sizes, store._place)
    assert (again.dropped, again.removed, again.taught[0].segment) == (("x",), (1, 2), NEW)
    for wrong in ({"width": 7}, {"source_vocabulary": 3}, {"target_vocabulary": 3}, {"segments": 2}):
        with pytest.raises(StoreError, match="corrupt"):
            from_bytes(content, sizes | wrong, store._place)
    for damaged in (content[:-1], content + b"x", content[:8], b"", content.replace(b'"taught"', b'"taucht"')):
        with pytest.raises(StoreError, match="corrupt"):
            from_bytes(damaged, sizes, store._place)


# ---------------------------------------------------------------------------------------------------- compaction


def test_compaction_seals_lessons_and_erases_what_was_removed(store: Datastore, model: Model) -> None:
    removed = store.segment(5)
    store.add([NEW, OTHER], model)
    store.remove(["#5"])
    before = [(segment.source, segment.target, segment.origin) for segment in store.segments()]
    store.compact(model)
    for one in (store, reopened(store)):
        assert [(segment.source, segment.target, segment.origin) for segment in one.segments()] == before
        assert [part.sizes["segments"] for part in one.parts] == [len(before) - 2, 2]
        assert len(one) == len(before)
        assert removed.source.encode() + removed.target.encode() not in bytes(one.parts[0]["text"])
        assert [lesson.folded for lesson in one.lessons.taught.values()] == [len(before) - 2, len(before) - 1]
        assert one.find("lesson-1") == NEW
    assert len(list(store.path.glob("part-*"))) == 2
    assert len(list(store.path.glob("journal-*"))) == 1
    list(store.verify())
    assert not store.compact(model).seconds  # there is nothing to do


def test_what_was_taught_is_translated_as_before_after_compaction(store: Datastore, model: Model) -> None:
    store.add([NEW], model)
    store.compact(model)
    wanted = model.tokenizer.decode(model.tokenizer.encode_target([NEW.target])[0])
    for system in SYSTEMS:
        translator = Translator(model, reopened(store), system=system).using(weight=0.999)
        assert translator.translate([NEW.source])[0].text == wanted, system
    # a folded lesson can be changed, and removed for good
    store.add([Segment(NEW.source, "the dog", "", NEW.id)], model)
    assert [segment.target for segment in store.segments()].count(NEW.target) == 0
    store.remove([NEW.id or ""])
    store.compact(model)
    assert all(segment.source != NEW.source or segment.target != "the dog" for segment in reopened(store).segments())
    assert len(store.lessons) == 0


def test_what_happens_during_compaction_is_not_lost(store: Datastore, model: Model) -> None:
    """Another process teaches, changes and removes while the new part is being made."""
    store.add([NEW, OTHER, Segment("im Garten", "in the garden", "", "kept")], model)
    store.compact(model)
    store.add([Segment("der Baum", "the tree", "", "changed"), Segment("ein Baum", "a tree", "", "gone")], model)
    store.remove(["#1"])
    other = reopened(store)
    done = False

    def meanwhile(stage: str, step: int, total: int | None) -> None:
        nonlocal done
        if stage == "cluster" and not done:
            done = True
            other.add(
                [Segment("der Baum", "the big tree", "", "changed"), Segment("klein", "small", "", "late")], model
            )
            other.remove(["gone", "#0", "lesson-1"])

    expected_after = None
    compact(store, model, progress=meanwhile)
    assert done
    expected_after = sorted((segment.source, segment.target) for segment in other.segments())
    for one in (store, reopened(store)):
        assert sorted((segment.source, segment.target) for segment in one.segments()) == expected_after
        assert one.find("changed").target == "the big tree"  # type: ignore[union-attr]
        assert one.find("kept") is not None
        assert one.find("late") is not None
        assert one.find("gone") is None
        assert one.find("lesson-1") is None
    assert other.refresh()
    assert sorted((segment.source, segment.target) for segment in other.segments()) == expected_after


def test_readers_go_on_while_and_after_a_store_is_compacted(store: Datastore, model: Model) -> None:
    translator = Translator(model, reopened(store), system="fast")
    before = translator.translate([NEW.source, OTHER.source])
    store.add([Segment("groß", "big", "")], model)
    store.compact(model)
    assert [result.text for result in translator.translate([NEW.source, OTHER.source])] == [
        result.text for result in before
    ]
    assert translator.refresh()
    translator.translate([NEW.source])


def test_entries_and_their_places_are_told_apart(store: Datastore, model: Model) -> None:
    entries = store.sizes["entries"]
    store.add([NEW, OTHER], model)
    sizes = [lesson.target_ids.size for lesson in store.lessons.taught.values()]
    segments, places = store.where(np.array([0, entries - 1, entries, entries + sizes[0], entries + sum(sizes) - 1]))
    count = store.sizes["segments"]
    assert segments.tolist() == [0, count - 1, count, count + 1, count + 1]
    assert places.tolist()[2:] == [0, 0, sizes[1] - 1]
