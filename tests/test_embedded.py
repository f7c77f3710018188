"""The model that ships: small, exact, and good enough to show what it is for."""

import itertools
import os
import signal
import subprocess

import pytest
import torch
import transformers

from knnmt import TranslateSettings, Translator
from knnmt.evaluate import bleu
from knnmt.model.checkpoint import embedded_path

from .cli.process import INTERRUPTIBLE

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


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator()


def sentences() -> list[str]:
    return [" ".join(parts) for parts in itertools.product(SUBJECTS, VERBS, OBJECTS)][:500]


def test_it_fits_and_plain_transformers_loads_it() -> None:
    files = list(embedded_path().iterdir())
    assert sum(path.stat().st_size for path in files) <= 25_000_000
    hf = transformers.MarianMTModel.from_pretrained(embedded_path())
    assert hf.dtype == torch.float16
    assert hf.lm_head.weight.data_ptr() == hf.model.shared.weight.data_ptr()  # tied


def test_it_translates(translator: Translator) -> None:
    found = translator.translate([source for source, _ in PAIRS])
    assert bleu([t.text for t in found], [target for _, target in PAIRS]).value > 45


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


def test_capitals_stay_capitals(translator: Translator) -> None:
    (found,) = translator.translate(["DAS IST SEHR WICHTIG."])
    assert found.text.isupper()


@pytest.mark.parametrize("beams", [1, 5])
def test_same_tokens_as_generate(translator: Translator, beams: int) -> None:
    texts = sentences()[::12]
    hf = transformers.MarianMTModel.from_pretrained(embedded_path(), dtype=torch.float32)
    tokenizer = transformers.MarianTokenizer.from_pretrained(embedded_path())
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    expected = hf.generate(**inputs, num_beams=beams, max_length=64, do_sample=False)
    settings = TranslateSettings(beam=beams, max_length=63, batch_size=16)
    for translation, row in zip(translator.translate(texts, settings), expected.tolist(), strict=True):
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
    running = subprocess.Popen(
        [*INTERRUPTIBLE, "translate"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(b"Guten Morgen, wie geht es Ihnen?\n" * 1_500)  # as many as a pipe holds
    running.stdin.flush()
    assert running.stdout.readline() == b"Good morning, how are you?\n"  # the rest is being translated
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    assert stderr == b"knnmt: interrupted\n"
