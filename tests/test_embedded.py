"""The models that ship: small, exact, and good enough to show what they are for."""

import itertools
import os
import signal

import pytest
import torch
import transformers

from knnmt import TranslateSettings, Translator
from knnmt.errors import UsageError
from knnmt.evaluate import bleu
from knnmt.model.embedded import EMBEDDED, embedded_path

from .cli.process import begun

# everyday sentences and their translations, written for this test
PAIRS = [
    ("Guten Morgen!", "Good morning!"),
    ("Wie geht es dir?", "How are you?"),
    ("Ich habe keine Zeit.", "I have no time."),
    ("Das ist ein sehr gutes Buch.", "This is a very good book."),
    ("Wir müssen jetzt nach Hause gehen.", "We must go home now."),
    ("Die Kommission hat einen neuen Vorschlag vorgelegt.", "The Commission has presented a new proposal."),
    ("Er arbeitet seit drei Jahren in Berlin.", "He has been working in Berlin for three years."),
    ("Können Sie mir bitte helfen?", "Can you help me, please?"),
    ("Morgen werden wir über diesen Bericht abstimmen.", "Tomorrow we will vote on this report."),
    ("Sie hat den Brief gestern geschrieben.", "She wrote the letter yesterday."),
    ("Das Wasser ist zu kalt.", "The water is too cold."),
    ("Viele Menschen haben ihre Arbeit verloren.", "Many people have lost their jobs."),
]
SUBJECTS = [
    "Der Mann",
    "Die Frau",
    "Mein Bruder",
    "Unsere Nachbarin",
    "Der alte Lehrer",
    "Die Kommission",
    "Niemand",
    "Jeder",
]
VERBS = ["sieht", "kennt", "verkauft", "sucht", "findet am Montag", "braucht heute", "vergisst immer", "liest und lobt"]
OBJECTS = [
    "das Haus.", "den Bericht über Europa.", "ein neues Buch!", "die Zeitung von gestern, die auf dem Tisch liegt.",
    "den Weg", "einen Hund und zwei Katzen.", "die Antwort auf Frage 17?", "nichts.",
]  # fmt: skip


LABELS = [("Abbrechen", "Cancel"), ("Speichern", "Save"), ("Einstellungen", "Settings"), ("Benutzername", "Username")]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator()


@pytest.fixture(scope="module")
def back() -> Translator:
    return Translator(langs="en-de")


@pytest.fixture(scope="module", params=EMBEDDED)
def each(request: pytest.FixtureRequest, translator: Translator, back: Translator) -> Translator:
    """Every embedded model."""
    return {"mini-de-en": translator, "mini-en-de": back}[request.param]


def sentences() -> list[str]:
    return [" ".join(parts) for parts in itertools.product(SUBJECTS, VERBS, OBJECTS)][:500]


def texts_of(translator: Translator) -> list[str]:
    """Sentences in the source language of an embedded model."""
    if translator.model.tokenizer.source == "de":
        return sentences()[::12]
    things = ["the house.", "a new book!", "the answer to question 17?", "the report on Europe"]
    return [f"{who} {does} {thing}" for who in ("The man", "Nobody") for does in ("sees", "sold") for thing in things]


@pytest.mark.parametrize("name", EMBEDDED)
def test_they_fit_and_plain_transformers_loads_them(name: str) -> None:
    files = list(embedded_path(name).iterdir())
    assert sum(path.stat().st_size for path in files) <= 25_000_000
    hf = transformers.MarianMTModel.from_pretrained(embedded_path(name))
    assert hf.dtype == torch.float16
    assert hf.lm_head.weight.data_ptr() == hf.model.shared.weight.data_ptr()  # tied


def test_they_translate(translator: Translator, back: Translator) -> None:
    there = translator.translate([source for source, _ in PAIRS])
    assert bleu([t.text for t in there], [target for _, target in PAIRS]).value > 45
    again = back.translate([target for _, target in PAIRS])
    assert bleu([t.text for t in again], [source for source, _ in PAIRS]).value > 35


def test_they_know_labels(translator: Translator, back: Translator) -> None:
    german, english = ([side.lower() for side in sides] for sides in zip(*LABELS, strict=True))
    assert [t.text.lower() for t in translator.translate([g.capitalize() for g in german])] == english
    assert [t.text.lower() for t in back.translate([e.capitalize() for e in english])] == german


def test_the_languages_choose_the_model(translator: Translator, back: Translator) -> None:
    assert translator.model.name == "mini-de-en"
    assert back.model.name == "mini-en-de"
    with pytest.raises(UsageError, match="no embedded model translates fr-en"):
        Translator(langs="fr-en")
    with pytest.raises(UsageError, match="this is a de-en model, it does not translate en-de"):
        Translator("mini-de-en", langs="en-de")


@pytest.mark.parametrize(
    ("source", "kept"),
    [
        ("%(name)s wurde gelöscht.", "%(name)s"),
        ("Seite %d von %s", "%d"),
        ("Hallo {name}, willkommen!", "{name}"),
        ("Das Wort <b>Europa</b> ist wichtig.", "<b>Europe</b>"),
        ("Die Nummer ist 40781.", "40781"),
        ("Siehe https://www.example.org/info", "https://www.example.org/info"),
    ],
)
def test_placeholders_come_through(translator: Translator, source: str, kept: str) -> None:
    (found,) = translator.translate([source])
    assert kept in found.text


def test_nothing_becomes_unknown(translator: Translator) -> None:
    texts = ["Ω ≠ ß ☃ 漢字", "\u200bZeichen\x07", "ÄÖÜ äöü", "🙂 gut", "a" * 200]
    for ids in translator.model.tokenizer.encode_source(texts):
        assert 1 not in ids  # <unk>
    assert all("<unk>" not in t.text for t in translator.translate(texts))


def test_capitals_stay_capitals(translator: Translator, back: Translator) -> None:
    assert translator.translate(["DAS IST SEHR WICHTIG."])[0].text.isupper()
    assert back.translate(["THIS IS VERY IMPORTANT."])[0].text.isupper()


@pytest.mark.parametrize("beams", [1, 5])
def test_same_tokens_as_generate(each: Translator, beams: int) -> None:
    texts, folder = texts_of(each), embedded_path(each.model.name)
    hf = transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float32)
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    expected = hf.generate(**inputs, num_beams=beams, max_length=64, do_sample=False)
    settings = TranslateSettings(beam=beams, max_length=63, batch_size=16)
    for translation, row in zip(each.translate(texts, settings), expected.tolist(), strict=True):
        assert list(translation.tokens) == [token for token in row[1:] if token != hf.config.pad_token_id]


def test_the_batch_does_not_matter(translator: Translator) -> None:
    """One by one and 64 at a time: the same tokens, scores within 1e-4."""
    texts = sentences()[::3]  # of all lengths, and more than two batches
    assert len(texts) == 167
    alone = translator.translate(texts, TranslateSettings(batch_size=1))
    together = translator.translate(texts, TranslateSettings(batch_size=64))
    assert [t.tokens for t in alone] == [t.tokens for t in together]
    assert [t.score for t in alone] == pytest.approx([t.score for t in together], abs=1e-4)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_control_c_ends_it_with_one_line() -> None:
    running = begun("translate")
    running.stdin.write("Guten Morgen, wie geht es Ihnen?\n" * 1_500)  # as many as a pipe holds
    running.stdin.flush()
    assert running.stdout.readline() == "Good morning, how are you?\n"  # the rest is being translated
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    assert stderr == "knnmt: interrupted\n"
