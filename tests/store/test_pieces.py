"""A lesson that is too long for the model is learnt in the pieces in which its text will be translated."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from knnmt import Translator
from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.corpus.segment import Segment
from knnmt.corpus.split import split
from knnmt.datastore import Datastore
from knnmt.errors import DataError
from knnmt.model.checkpoint import Model
from knnmt.store import pieces

from ..build.examples import ENGLISH, GERMAN, parallel_text


@pytest.fixture(scope="module")
def sealed(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sealed")
    build([parallel_text(folder / "corpus.tsv", 150)], model, folder / "store", "de-en", BuildSettings(clean=None))
    return folder / "store"


def sentences(count: int) -> Segment:
    """A segment of so many sentences of six words, translated word by word, no two alike."""
    rng = np.random.default_rng(5)
    words = [rng.choice(len(GERMAN), 6, replace=False) for _ in range(count)]
    source, target = (" ".join(" ".join(side[n] for n in some) + "." for some in words) for side in (GERMAN, ENGLISH))
    return Segment(source, target, "a user", "long")


def ends_of(ids: NDArray[np.int32], model: Model) -> list[int]:
    """Where each piece ends."""
    ends: list[int] = (np.flatnonzero(ids == model.special.end) + 1).tolist()
    return ends


def test_a_long_lesson_is_learnt_found_exported_and_kept(store: Datastore, model: Model) -> None:
    long, count = sentences(12), len(store)
    assert len(model.tokenizer.encode_source([long.source])[0]) > model.max_source
    added = store.add([Segment("klein", "small", "", "short"), long], model)
    assert (added.ids, added.new) == (("short", "long"), 2)
    translator = Translator(model, store, system="fast").using(weight=0.999)
    wanted = model.tokenizer.decode(model.tokenizer.encode_target([long.target])[0])
    assert translator.translate([long.source])[0].text == wanted
    for _ in range(2):  # and after compaction, which folds the short one and leaves this
        for one in (store, Datastore.open(store.path)):
            assert one.find("long") == long
            assert len(one) == count + 2
            assert [segment for segment in one.segments() if segment.id == "long"] == [long]
            again = Translator(model, one, system="fast").using(weight=0.999)
            assert again.translate([long.source])[0].text == wanted
        store.compact(model)
        assert [lesson.folded is None for lesson in store.lessons.taught.values()] == [False, True]
    assert not store.compact(model).seconds  # it alone is nothing to fold
    list(store.verify())


def test_its_arrays_are_those_of_the_pieces_that_a_translation_makes(store: Datastore, model: Model) -> None:
    long = sentences(12)
    store.add([long], model)
    texts = split(long.source, Translator(model).sizes, model.max_source)
    sources = model.tokenizer.encode_source(texts)
    lesson = store.lessons.taught["long"]
    assert len(texts) > 1
    assert lesson.source_ids.tolist() == [token for piece in sources for token in piece]
    # the target is cut behind the same sentences
    assert [text.count(".") for text in texts] == [
        model.tokenizer.decode(some.tolist()).count(".")
        for some in np.split(lesson.target_ids, ends_of(lesson.target_ids, model))[:-1]
    ]
    # each piece is what it would be as a lesson of its own
    stops = ends_of(lesson.source_ids, model), ends_of(lesson.target_ids, model)
    for number, text in enumerate(texts):
        first = tuple(([0, *side])[number] for side in stops)
        last = tuple(side[number] for side in stops)
        target = model.tokenizer.decode(lesson.target_ids[first[1] : last[1]].tolist())
        store.add([Segment(text, target, "", "piece")], model)
        alone = store.lessons.taught["piece"]
        assert np.array_equal(alone.target_ids, lesson.target_ids[first[1] : last[1]])
        inside = (lesson.links[:, 0] >= first[0]) & (lesson.links[:, 0] < last[0])
        assert np.array_equal(alone.links, lesson.links[inside] - first)
        for ours, theirs in ((lesson.states.source[first[0] : last[0]], alone.states.source),
                             (lesson.states.target[first[1] : last[1]], alone.states.target)):  # fmt: skip
            np.testing.assert_allclose(ours.astype(np.float32), theirs.astype(np.float32), atol=1e-2)


def test_where_only_the_target_is_too_long_both_are_cut(store: Datastore, model: Model) -> None:
    long = sentences(6)
    longer = Segment(long.source, " ".join(f"{word} {word}" for word in long.target.split()), "", "longer")
    assert len(model.tokenizer.encode_source([long.source])[0]) <= model.max_source
    assert len(model.tokenizer.encode_target([longer.target])[0]) > pieces.target_room(model)
    store.add([longer], model)
    assert len(ends_of(store.lessons.taught["longer"].target_ids, model)) > 1
    assert store.find("longer") == longer


@pytest.mark.parametrize("target", ["dog", "dog " * 300])
def test_sides_that_cannot_be_cut_alike_are_refused(store: Datastore, model: Model, target: str) -> None:
    source = "Hund " * 100 if target == "dog" else "Hund"
    with pytest.raises(DataError, match="too long for the model, and its two sides cannot be cut"):
        store.add([Segment(source, target, "")], model)


def test_cuts_are_where_the_fewest_links_cross_and_pieces_fit() -> None:
    tokens = np.array([0, 2, 4, 6, 8, 10])
    costs = np.array([[0.0, 5, 1, 5, 5, 0], [0, 9, 9, 9, 2, 0]])
    assert pieces._cheapest(costs, tokens, room=10) == [2, 4]
    assert pieces._cheapest(costs, tokens, room=4) == [2, 4]
    assert pieces._cheapest(costs[:1], tokens, room=6) == [2]
    assert pieces._cheapest(costs[:1], tokens, room=5) is None
    links = np.array([[0, 0], [1, 2], [2, 1], [3, 3]])
    assert pieces._crossing(links, 2, np.array([0, 1, 2, 3, 4])).tolist() == [2, 1, 2, 1, 2]
    assert pieces._atoms("one two. three, four", letters=False)[1] == [2, 0, 1]
    assert pieces._atoms("狗睡了。猫睡了。", letters=True)[1] == [3, 3, 3, 0, 3, 3, 3]
    assert pieces._atoms("dog", letters=False) == (["dog"], [])
