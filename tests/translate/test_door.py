"""One door: Python and the command line treat white space, sentences and spans alike (the server: tests/server)."""

from collections.abc import Callable
from pathlib import Path

import pytest

from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.datastore import Datastore
from knnmt.model.checkpoint import Model, load
from knnmt.systems.settings import RetrievalSettings
from knnmt.text.inline import Code, Inline
from knnmt.translate import TranslateSettings, Translator

from ..cli.process import knnmt

RAW = TranslateSettings(beam=2, max_length=12, spans=False, sentences=False)
DOOR = TranslateSettings(beam=2, max_length=12)
KNOWN = {
    "der Hund": "the dog", "die Katze": "the cat", "das Haus": "the house", "ein Baum": "a tree",
    "Er läuft.": "He runs.",
    "Sie schläft.": "She sleeps.",
}  # fmt: skip
LINES = ["  der Hund ", "\tdie Katze", "das Haus  ", "   ", "ein Baum"]


@pytest.fixture(scope="module")
def model(model_folder: Callable[[str], Path]) -> Model:
    return load(model_folder("marian"), device="cpu")


@pytest.fixture(scope="module")
def store(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    folder = tmp_path_factory.mktemp("door")
    pairs = "".join(f"{source}\t{target}\n" for source, target in KNOWN.items())
    (folder / "corpus.tsv").write_text(pairs, encoding="utf-8")
    build([folder / "corpus.tsv"], model, folder / "store", "de-en", BuildSettings(clean=None))
    return Datastore.open(folder / "store")


def test_lines_and_edge_spaces_stay(model: Model, store: Datastore, model_folder: Callable[[str], Path]) -> None:
    translator = Translator(model, store, system="knn")
    expected = ["  the dog ", "\tthe cat", "the house  ", "   ", "a tree"]
    assert [found.text for found in translator.translate(LINES, DOOR)] == expected
    (joined,) = translator.translate(["\n".join(LINES) + "\n\n"], DOOR)
    assert joined.text == "\n".join(expected) + "\n\n"
    options = ("--model", model_folder("marian"), "--store", store.path, "--system", "knn", "--max-length", "12")
    done = knnmt("translate", *options, text="\n".join(LINES))
    assert done.stdout == "\n".join(expected) + "\n", done.stderr


def test_sentences_of_the_store_are_joined_as_they_stand(model: Model, store: Datastore) -> None:
    (found,) = Translator(model, store, system="knn").translate(["Er läuft.  Sie schläft."], DOOR)
    assert found.text == "He runs.  She sleeps."


def test_plain_lines_are_translated_as_base_mt_translates_them(model: Model, store: Datastore) -> None:
    """To the bit: λ = 0, a text without spans, one sentence."""
    texts = ["der Hund läuft", "die Katze sieht das Haus.", "ein Baum im Garten", "das Haus"]
    raw = Translator(model).translate(texts, RAW)
    for retrieval in (None, RetrievalSettings(system="knn", k=2, weight=0.0)):
        translator = Translator(model, store if retrieval else None, retrieval=retrieval)
        assert translator.translate(texts, DOOR) == raw


def test_inline_codes_come_back_around_words(model: Model) -> None:
    unit = Inline("der Hund läuft im Garten.", (Code(4, "<b>", 1), Code(8, "</b>", 0), Code(14, "<x/>", None)))
    (found,) = Translator(model).translate_inline([unit], DOOR)
    assert sorted(code.raw for code in found.target.codes) == ["</b>", "<b>", "<x/>"]
    assert found.target.written().count("<b>") == 1
