"""Terms of a glossary in translations by the embedded model: used where they belong, and told where they are not."""

from pathlib import Path

import pytest

from knnmt import Datastore, Glossary, Segment, Translation, Translator
from knnmt.decode.settings import TranslateSettings
from knnmt.evidence import TokenEvidence, by_glossary
from knnmt.text.terms import Term
from knnmt.translate import terms
from knnmt.translate.renditions import Asked, Renditions
from knnmt.translate.terms import MATCH, TermSearch, reported

GLOSSARY = Glossary([Term("Haus", "mansion"), Term("Hund", "hound", forbidden=("puppy",))], "de-en")


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator()


def texts(translator: Translator, *sources: str, glossary: Glossary | None = GLOSSARY) -> list[str]:
    return [each.text for each in translator.translate(list(sources), glossary=glossary)]


def test_terms_take_the_place_of_what_the_model_says(translator: Translator) -> None:
    sources = ["Das Haus ist groß.", "Der Hund lebt in diesem Haus.", "Die Häuser sind alt."]
    free = texts(translator, *sources, glossary=None)
    assert "house" in free[0].lower()
    assert texts(translator, *sources) == [
        free[0].replace("house", "mansion"),
        free[1].replace("dog", "hound").replace("house", "mansion"),
        free[2].replace("houses", "mansions"),  # in the form that fits
    ]


def test_a_term_that_stands_twice_is_brought_in_twice(translator: Translator) -> None:
    source = "Das Haus steht neben einem anderen Haus."
    (free,) = texts(translator, source, glossary=None)
    assert free.count("house") == 2
    assert texts(translator, source) == [free.replace("house", "mansion")]


def test_case_follows_the_sentence_and_the_source(translator: Translator) -> None:
    begins, shouted = texts(translator, "Hunde schlafen gern.", "DAS HAUS IST ALT")
    assert begins.startswith("Hounds")
    assert "MANSION" in shouted


def test_a_text_without_terms_is_not_searched_again(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = ["Guten Morgen!", "Wir fahren morgen nach Berlin."]
    expected = texts(translator, *sources, glossary=None)
    monkeypatch.setattr(TermSearch, "_round", lambda *_: pytest.fail("a search was bound"))
    assert texts(translator, *sources) == expected
    fits = Glossary([Term("Morgen", "morning")], "de-en")
    assert texts(translator, sources[0], glossary=fits) == expected[:1]


def test_what_became_of_terms_is_told(translator: Translator) -> None:
    (found,) = translator.translate(["Das Haus {Haus}"], glossary=GLOSSARY)
    assert [(use.source, use.used) for use in found.terms] == [("Haus", True), ("Haus", False)]
    assert found.unused == ("«mansion» for «Haus»: it is inside a protected span",)
    assert translator.translate(["Guten Morgen!"], glossary=GLOSSARY)[0].terms == ()


def test_a_term_that_costs_too_much_is_not_forced(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "MARGIN", 0.5)
    monkeypatch.setattr(terms, "FREE_MARGIN", 0.5)
    (found,) = translator.translate(["Das Haus ist groß."], glossary=GLOSSARY)
    assert [found.text] == texts(translator, "Das Haus ist groß.", glossary=None)
    assert found.terms[0].reason == terms.NO_PLACE


def test_an_exact_match_is_taken_as_it_is() -> None:
    match = Translation("The house", 0.0, match=Segment("Das Haus", "The house"))
    assert reported(GLOSSARY, "Das Haus", match).terms[0].reason == MATCH


def test_forbidden_words_are_avoided(translator: Translator) -> None:
    (free,) = texts(translator, "Der Hund schläft.", glossary=None)
    assert "dog" in free
    glossary = Glossary([Term("Hund", "puppy", ("dog", "hound"), forbidden=("sleeps", "sleep", "sleeping"))], "de-en")
    (found,) = texts(translator, "Der Hund schläft.", glossary=glossary)
    assert "sleep" not in found
    assert not glossary.check("Der Hund schläft.", found)


def test_long_texts_and_streams_have_their_terms(translator: Translator) -> None:
    long = "Das Haus ist groß. " * 3
    (found,) = translator.stream([long], glossary=GLOSSARY)
    assert found.text.lower().count("mansion") == 3


def test_the_rendition_of_a_term_is_found(translator: Translator) -> None:
    source = "Der Hund lebt in diesem Haus."
    (best,) = translator.translate([source])
    cut = translator.model.tokenizer.cut(best.tokens)
    asked = [Asked(source, ((source.index(word), source.index(word) + 4),), best.tokens) for word in ("Hund", "Haus")]
    found = Renditions(translator.model).find(asked)
    assert ["".join(cut[each.start : each.end]).strip() for each in found if each] == ["dog", "house"]


def test_evidence_says_what_is_there_by_the_glossary() -> None:
    tokens = tuple(TokenEvidence(text, 1, 1, 0, 0, ()) for text in ("The", " man", "sion", " is", ""))
    term = GLOSSARY.terms[0]
    marked = by_glossary(tokens, [(4, 11, term)])
    assert [each.term for each in marked] == ["", "mansion", "mansion", "", ""]


def test_a_term_that_the_model_cannot_write_is_told(translator: Translator) -> None:
    (found,) = translator.translate(["Das Haus ist groß."], glossary=Glossary([Term("Haus", "ᚠᚢᚦ")], "de-en"))
    assert [found.text] == texts(translator, "Das Haus ist groß.", glossary=None)
    assert not found.terms[0].used


def test_with_a_memory_evidence_names_the_glossary_and_matches_stay(translator: Translator, tmp_path: Path) -> None:
    corpus = tmp_path / "train.tsv"
    corpus.write_text("Das Haus ist alt.\tThe house is old.\nDer Hund ist groß.\tThe dog is big.\n", "utf-8")
    store = Datastore.build(corpus, langs="de-en", out=tmp_path / "store")
    remembering = Translator(translator.model, store)
    asked = TranslateSettings(evidence=True)
    new, known = remembering.translate(["Das Haus ist groß.", "Das Haus ist alt."], asked, glossary=GLOSSARY)
    assert new.text == "The mansion is big."
    marked = {"".join(each.token for each in new.evidence if each.term == term).strip() for term in ("", "mansion")}
    assert marked == {"The is big.", "mansion"}
    assert known.text == "The house is old."
    assert known.terms[0].reason == MATCH
    assert not any(each.term for each in known.evidence)


def test_german_articles_and_adjectives_agree_with_the_term() -> None:
    terms = [Term("folder", "Verzeichnis"), Term("file", "Dokument"), Term("window", "Dialog")]
    texts = ["Open the new folder.", "This folder contains 3 files.", "The file could not be saved.",
             "Two folders were not found.", "Close the active window."]  # fmt: skip
    found = Translator("mini-en-de").translate(texts, glossary=Glossary(terms, "en-de"))
    assert [each.text for each in found] == [
        "Öffnen Sie das neue Verzeichnis.", "Dieses Verzeichnis enthält 3 Dokumente.",
        "Das Dokument konnte nicht gespeichert werden.", "Zwei Verzeichnisse wurden nicht gefunden.",
        "Schließen Sie den aktiven Dialog.",
    ]  # fmt: skip
