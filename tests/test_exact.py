"""A text that the store has word for word is translated as the store has it, before the model is asked."""

from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.corpus.fuzzy import FUZZY, similarity
from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.model.checkpoint import Model, load
from knnmt.store import digests
from knnmt.store.part import Part
from knnmt.systems.settings import SILENT, RetrievalSettings
from knnmt.translate import TranslateSettings, Translator

PAIRS = [
    ("der Hund läuft", "the dog runs"),
    ("die Katze schläft", "the cat sleeps"),
    ("der Hund läuft", "the dog is running"),
    ("ein Baum im Garten", "a tree"),
    ("ein Baum im Garten", "a tree in the garden"),
    ("ein Baum im Garten", "a garden tree"),
    ("ein Baum im Garten", "a tree"),
    ("das Haus ist groß", "the house is big"),
]
DECODED = TranslateSettings(beam=2, max_length=20, exact=False)
EXACT = TranslateSettings(beam=2, max_length=20)


@pytest.fixture(scope="module")
def model(model_folder: Callable[[str], Path]) -> Model:
    return load(model_folder("marian"), device="cpu")


@pytest.fixture
def store(model: Model, tmp_path: Path) -> Datastore:
    corpus = tmp_path / "corpus.tsv"
    corpus.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    build([corpus], model, tmp_path / "store", "de-en", BuildSettings(clean=None))
    return Datastore.open(tmp_path / "store")


def text(translator: Translator, source: str, settings: TranslateSettings = EXACT) -> str:
    return translator.translate([source], settings)[0].text


def test_a_text_of_the_store_comes_out_as_its_target_and_says_so(model: Model, store: Datastore) -> None:
    translator = Translator(model, store, retrieval=RetrievalSettings(system="knn", k=2, weight=0.01))
    sources = ["  die Katze\tschläft ", "die Katze", "das Haus ist groß", ""]
    found = translator.translate(sources, EXACT)
    decoded = translator.translate(sources, DECODED)
    assert [each.text for each in found] == ["  the cat sleeps ", decoded[1].text, "the house is big", ""]
    assert [each.match is not None for each in found] == [True, False, True, False]
    assert found[0].match == store.segment(1)
    assert found[0].score == 0.0
    assert decoded[0].text.strip() != "the cat sleeps"  # or this would show nothing
    assert all(each.match is None for each in decoded)


def test_of_several_targets_the_most_frequent_counts_and_of_these_the_last(model: Model, store: Datastore) -> None:
    translator = Translator(model, store)
    assert text(translator, "ein Baum im Garten") == "a tree"
    assert text(translator, "der Hund läuft") == "the dog is running"
    numbers = [match.number for match in store.matches("ein Baum im Garten")]
    assert numbers == [6, 3, 5, 4]


def test_what_was_taught_counts_before_all_else_and_the_newest_first(model: Model, store: Datastore) -> None:
    translator = Translator(model, store)
    for target in ("the first", "the second"):
        translator.add([Segment("ein Baum im Garten", target)])
        assert text(translator, "ein Baum im Garten") == target
        assert text(Translator(model, Datastore.open(store.path)), "ein Baum im Garten") == target
    store.compact(model)
    assert text(translator, "ein Baum im Garten") == "the second"
    taught = store.matches("ein Baum im Garten")[0].segment.id
    assert taught is not None
    translator.remove([taught])
    assert text(translator, "ein Baum im Garten") == "a tree"


def test_what_was_removed_is_not_found(model: Model, store: Datastore) -> None:
    translator = Translator(model, store)
    translator.remove(["#1"])
    (found,) = translator.translate(["die Katze schläft"], EXACT)
    assert found.match is None


@pytest.mark.parametrize("off", [{"system": "base"}, {"retrieval": RetrievalSettings(system="knn", k=2, weight=0.0)}])
def test_base_mt_is_base_mt_also_for_texts_of_the_store(model: Model, store: Datastore, off: dict[str, object]) -> None:
    sources = [source for source, _ in PAIRS]
    base = Translator(model).translate(sources, EXACT)
    assert Translator(model, store, **off).translate(sources, EXACT) == base  # type: ignore[arg-type]


def test_alternatives_are_those_of_the_store_and_then_those_of_the_model(model: Model, store: Datastore) -> None:
    (found,) = Translator(model, store).translate(
        ["ein Baum im Garten"], TranslateSettings(beam=5, n_best=5, max_length=20)
    )
    assert found.text == "a tree"
    ranked = [each.text for each in found.alternatives]
    assert ranked[:2] == ["a garden tree", "a tree in the garden"]
    assert len({found.text, *ranked}) == 5
    assert [each.match is not None for each in found.alternatives] == [True, True, False, False]


def test_a_text_too_long_for_the_model_is_taken_as_a_whole_too(model: Model, store: Datastore) -> None:
    long = " ".join(["der Hund läuft und die Katze schläft im Garten ."] * 12)
    translator = Translator(model, store)
    assert translator.sizes([long])[0] > model.max_source
    assert len(translator.pieces(long)) > 1
    translator.add([Segment(long, "they run and sleep")])
    assert text(translator, long) == "they run and sleep"
    assert translator.pieces(long) == [long]  # whoever cuts texts beforehand does not cut this one
    (found,) = translator.translate([long], TranslateSettings(beam=2, n_best=2, max_length=20, evidence=True))
    assert (found.text, len(found.alternatives), found.evidence) == ("they run and sleep", 1, ())


def test_evidence_is_given_for_what_the_store_has_too(model: Model, store: Datastore) -> None:
    settings = TranslateSettings(beam=2, max_length=20, evidence=True)
    (found,) = Translator(model, store, system="knn").translate(["das Haus ist groß"], settings)
    assert "".join(token.token for token in found.evidence).split() == found.text.split()
    assert found.evidence[0].neighbours[0].target == "the house is big"


def test_a_store_without_digests_finds_the_same(model: Model, store: Datastore) -> None:
    """As those were that an earlier version built."""
    expected = [store.matches(source) for source, _ in PAIRS]
    has = Part.__contains__
    with patch.object(
        Part, "__contains__", lambda self, name: not name.endswith(("_digests", "_order")) and has(self, name)
    ):
        old = Datastore.open(store.path)
        assert [old.matches(source) for source, _ in PAIRS] == expected
        assert "source_digests" not in old.parts[0]


def test_texts_with_one_digest_are_told_apart(model: Model, store: Datastore, tmp_path: Path) -> None:
    expected = [store.matches(source) for source, _ in PAIRS]
    has = Part.__contains__
    with (
        patch.object(digests, "digest", lambda text: 7),
        patch.object(
            Part, "__contains__", lambda self, name: not name.endswith(("_digests", "_order")) and has(self, name)
        ),
    ):
        assert [Datastore.open(store.path).matches(source) for source, _ in PAIRS] == expected


def test_a_translation_that_is_another_texts_is_tried_again_with_less_trust(model: Model, store: Datastore) -> None:
    """With this much weight the store answers whatever it is asked; a version of the text may keep the answer."""
    lines = DECODED.model_copy(update={"spans": False, "sentences": False})  # in the case in which they come
    bold = RetrievalSettings(system="knn", k=1, weight=0.999, adapt="constant")
    translator, targets = Translator(model, store, retrieval=bold), {target for _, target in PAIRS}
    others = ["der Garten", "die Katze sieht", "ein Hund", "das Haus und der Baum", "Katze schläft die"]
    decoded = [text(translator, other, lines) for other in others]
    copied = [n for n, found in enumerate(decoded) if found in targets]
    assert 4 in copied  # whose words are those of its segment
    assert len(copied) > 1
    found = [each.text for each in translator.translate(others, lines.model_copy(update={"exact": True}))]
    shy = [each.text for each in translator.using(weight=SILENT).translate(others, lines)]
    for n in range(len(others)):
        assert found[n] == (shy[n] if n in copied and n != 4 else decoded[n])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Produkt entfernen", "Entfernen", False),
        ("Produkt entfernen", "Fokusbereich entfernen", False),
        ("Produkt entfernen", "produkt  entfernen!", True),
        ("Das Produkt wurde gelöscht.", "Produkt wurde gelöscht", True),
        ("Bestellrabatt", "Bestellrabatte", True),  # another word, and nearly the same
        ("a", "b", False),
    ],
)
def test_texts_are_alike_by_their_letters(one: str, other: str, same: bool) -> None:
    assert similarity(one, other) == similarity(other, one)
    assert (similarity(one, other) >= FUZZY) == same
    assert similarity(one, one) == similarity("", "") == 1.0
