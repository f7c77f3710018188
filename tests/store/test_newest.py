"""What was taught last for a text is what counts: now, for whoever opens the store, and after compaction."""

import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knnmt import Translator
from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.model.checkpoint import Model
from knnmt.store.lessons import Record, named
from knnmt.store.store import Added

from ..build.examples import ENGLISH, GERMAN, parallel_text

CART, BASKET, TROLLEY = (Segment("der Garten", target, "") for target in ("the tree", "a dog", "the big house"))


@pytest.fixture(scope="module")
def sealed(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sealed")
    corpus = parallel_text(folder / "corpus.tsv", 20)
    lines = (line.rsplit("\t", 1)[0] for line in corpus.read_text().splitlines())  # without their ids
    corpus.write_text("".join(f"{line}\n" for line in lines))
    build([corpus], model, folder / "store", "de-en", BuildSettings(clean=None, cluster_size=4))
    return folder / "store"


def taught(store: Datastore) -> list[tuple[str, str]]:
    """What was taught, the oldest first, here and for whoever opens the store."""
    here, there = ([(each.source, each.target) for each in one.recent()][::-1]
                   for one in (store, Datastore.open(store.path)))  # fmt: skip
    assert here == there
    return here


@given(
    lessons=st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.booleans()), max_size=8),
    together=st.integers(1, 4),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_last_target_of_a_source_is_the_only_lesson_for_it(
    sealed: Path, model: Model, tmp_path_factory: pytest.TempPathFactory, lessons: list[tuple[str, str, bool]],
    together: int,
) -> None:  # fmt: skip
    expected: dict[str, str] = {}
    store = Datastore.open(shutil.copytree(sealed, tmp_path_factory.mktemp("taught") / "store"))
    segments = [Segment(f" {s}  Hund" if spaced else f"{s} Hund", t, "") for s, t, spaced in lessons]
    for first in range(0, len(segments), together):
        some = segments[first : first + together]
        added = store.add(some, model)
        assert len(added.ids) == added.new + added.replaced + added.unchanged == len(some)
    for source, target, _ in lessons:
        expected[f"{source} Hund"] = target
    assert dict(taught(store)) == expected
    assert len(taught(store)) == len(expected)
    assert len(store) == 20 + len(expected)


def test_nothing_of_that_is_undone_by_a_compaction(store: Datastore, model: Model) -> None:
    for segment in (CART, BASKET, TROLLEY, CART):
        store.add([segment], model)
    assert taught(store) == [(CART.source, CART.target)]
    store.compact(model)
    assert taught(store) == [(CART.source, CART.target)]
    for segment in (BASKET, TROLLEY, CART, BASKET):
        store.add([segment], model)
    assert taught(store) == [(BASKET.source, BASKET.target)]
    store.compact(model)
    assert taught(store) == [(BASKET.source, BASKET.target)]
    assert [each.target for each in store.segments() if each.source == CART.source] == [BASKET.target]


def test_what_is_there_already_is_not_written_again(store: Datastore, model: Model) -> None:
    journal = store.path / store.manifest.journal
    lessons = [CART, Segment("das Haus", "the house", "", "own"), Segment("ein Hund", "a dog", "")]
    added = store.add(lessons, model)
    assert (added.new, added.replaced, added.unchanged) == (3, 0, 0)
    size = journal.stat().st_size
    again = store.add([replace(each, source=f"  {each.source} ") for each in lessons], model)
    assert again == Added(added.ids, 0, 0, 3)
    assert journal.stat().st_size == size
    mixed = store.add([lessons[0], replace(lessons[1], target="a house"), Segment("klein", "small", "")], model)
    assert (mixed.new, mixed.replaced, mixed.unchanged) == (1, 1, 1)
    assert mixed.ids[:2] == added.ids[:2]
    # in one go: of what comes twice the second changes nothing, and of two targets the last stays
    twice = store.add([BASKET, BASKET, Segment("und", "and", ""), TROLLEY], model)
    assert (twice.new, twice.replaced, twice.unchanged) == (1, 2, 1)
    assert taught(store)[-1] == (TROLLEY.source, TROLLEY.target)


def test_an_id_of_its_own_makes_a_second_translation(store: Datastore, model: Model) -> None:
    store.add([CART, replace(BASKET, id="for shops")], model)
    assert taught(store) == [(CART.source, CART.target), (CART.source, BASKET.target)]
    # what is taught again, and was not the newest any more, becomes the newest
    assert store.add([CART], model).unchanged == 0
    assert taught(store) == [(CART.source, BASKET.target), (CART.source, CART.target)]
    assert store.add([CART], model).unchanged == 1
    store.add([TROLLEY], model)
    assert taught(store) == [(CART.source, BASKET.target), (CART.source, TROLLEY.target)]
    store.add([replace(TROLLEY, id="for shops")], model)
    assert [each.target for each in store.recent()] == [TROLLEY.target, TROLLEY.target]


def test_lessons_with_ids_made_of_both_texts_are_replaced_too(store: Datastore, model: Model) -> None:
    """As journals have them that were written before ids were made of the source."""
    store.add([replace(segment, id=segment.target) for segment in (CART, BASKET)], model)
    lessons = list(store.lessons.taught.values())
    made = [(named(replace(lesson.segment, id="#0")).id or "").removeprefix("segment-") for lesson in lessons]
    old = [
        replace(lesson, segment=replace(lesson.segment, id=name)) for lesson, name in zip(lessons, made, strict=True)
    ]
    with store.writing():
        store._write(Record(tuple(old), tuple(lesson.id for lesson in lessons)))
    assert len(taught(store)) == 2
    added = store.add([CART], model)
    assert (added.new, added.replaced) == (0, 1)
    assert taught(store) == [(CART.source, CART.target)]


def test_segments_taken_from_their_places_stay_two(store: Datastore, model: Model) -> None:
    """An export names them `#3` and `#4`: to teach that again must not make one of two translations of a text."""
    added = store.add([replace(CART, id="#3"), replace(BASKET, id="#4")], model)
    assert (added.replaced, len(store)) == (2, 20)
    assert len(taught(store)) == 2
    again = store.add([replace(CART, id="#3")], model)
    assert again.ids == added.ids[:1]
    assert len(taught(store)) == 2


def test_thirty_corrections_of_corrections_win(store: Datastore, model: Model) -> None:
    rng, wanted = random.Random(3), {}
    translator = Translator(model, store, system="fast").using(weight=0.999)
    for number in range(30):
        words = rng.choices(range(len(GERMAN)), k=rng.randint(3, 6))
        source = f"{' '.join(GERMAN[word] for word in words)} {number}"
        right = [ENGLISH[word] for word in words]
        typo = right.copy()
        typo[rng.randrange(len(typo))] = rng.choice(ENGLISH)
        for target in (typo, right):
            translator.add([Segment(source, " ".join(target), "")])
        wanted[source] = model.tokenizer.decode(model.tokenizer.encode_target([" ".join(right)])[0])
    assert len(store.lessons) == 30
    found = [result.text for result in translator.translate(list(wanted))]
    assert found == list(wanted.values())
