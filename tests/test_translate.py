"""Translator: order, empty texts, long texts, n-best, and settings that make no sense."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt import Translation, Translator
from knnmt.corpus.split import split
from knnmt.errors import DataError, SettingsError
from knnmt.translate import TranslateSettings


@pytest.fixture(scope="module")
def translator(model_folder: Callable[[str], Path]) -> Translator:
    return Translator(model_folder("marian"))


TEXTS = ["der Hund", "", "die Katze sieht das Haus und der Hund läuft im Garten.", "   ", "ein Baum", "das Haus"] * 7
FAST = TranslateSettings(beam=2, max_length=12)


def test_order_is_kept_and_empty_stays_empty(translator: Translator) -> None:
    found = translator.translate(TEXTS, FAST)
    assert len(found) == len(TEXTS)
    for text, translation in zip(TEXTS, found, strict=True):
        if not text.strip():
            assert translation == Translation(text, 0.0)
        else:
            assert translation.text == translator.translate([text], FAST)[0].text


@pytest.mark.parametrize("window", [1, 5, 1000])
def test_a_stream_gives_the_same(translator: Translator, window: int) -> None:
    def lines() -> Iterator[str]:
        yield from TEXTS

    found = [t.text for t in translator.stream(lines(), FAST, window=window)]
    assert found == [t.text for t in translator.translate(TEXTS, FAST)]


def test_a_stream_reads_no_further_than_its_window(translator: Translator) -> None:
    read: list[str] = []

    def lines() -> Iterator[str]:
        for text in TEXTS:
            read.append(text)
            yield text

    next(translator.stream(lines(), FAST, window=3))
    assert len(read) == 3


def test_half_a_character_is_refused(translator: Translator) -> None:
    with pytest.raises(DataError, match="text 2 has a lone surrogate"):
        translator.translate(["Haus", "a\ud800b"])


def test_no_text_at_all(translator: Translator) -> None:
    assert translator.translate([]) == []
    assert list(translator.stream(iter(()))) == []


def test_a_lone_string_is_refused(translator: Translator) -> None:
    with pytest.raises(TypeError, match=r"translate\(\[text\]\)"):
        translator.translate("der Hund")


def test_n_best_are_distinct_and_sorted(translator: Translator) -> None:
    (found,) = translator.translate(["der Hund läuft."], TranslateSettings(beam=4, n_best=4, max_length=12))
    ranked = [found, *found.alternatives]
    assert len({t.tokens for t in ranked}) == 4
    assert [t.score for t in ranked] == sorted((t.score for t in ranked), reverse=True)
    assert found.text == translator.translate(["der Hund läuft."], TranslateSettings(beam=4, max_length=12))[0].text


def test_long_text_is_split_and_every_part_translated(translator: Translator) -> None:
    sentence = "der Hund läuft im Garten und die Katze schläft im Haus."
    limit = translator.model.max_source
    assert limit == 64
    counts = [len(ids) for ids in translator.model.tokenizer.encode_source([sentence])]
    whole = limit // counts[0]  # sentences that fit into one piece
    (found,) = translator.translate([" ".join([sentence] * 2 * whole)], FAST)
    (half,) = translator.translate([" ".join([sentence] * whole)], FAST)
    assert found.tokens == half.tokens * 2
    assert found.score == pytest.approx(half.score)


def test_long_text_is_refused_where_asked(translator: Translator) -> None:
    texts = ["ein Baum", "der Hund läuft im Garten. " * 40]
    with pytest.raises(DataError, match=r"text 2 has \d+ tokens and the model takes 64"):
        translator.translate(texts, TranslateSettings(long="refuse"))


def test_a_huge_line_without_any_space(translator: Translator) -> None:
    (found,) = translator.translate(["Haus" * 500], TranslateSettings(beam=1, max_length=5))
    pieces = split("Haus" * 500, translator.sizes, 64)
    assert len(pieces) > 1
    assert "".join(pieces) == "Haus" * 500
    assert len(found.tokens) >= len(pieces)


@given(st.text(alphabet="ab .,!\n", max_size=300), st.integers(2, 40))
def test_split_loses_nothing_and_fits(text: str, limit: int) -> None:
    text = " ".join(text.split())
    pieces = split(text, lambda texts: [len(each) for each in texts], limit)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(len(piece) <= limit for piece in pieces if " " not in piece)
    words = [len(word) for word in text.split()]
    if all(size <= limit for size in words):  # no word had to be cut: the pieces are whole words
        assert " ".join(pieces).split() == text.split()


def test_split_prefers_the_ends_of_sentences() -> None:
    text = "one two three. four five, six seven. eight."

    def words(texts: Sequence[str]) -> list[int]:
        return [len(each.split()) for each in texts]

    assert split(text, words, 4) == ["one two three.", "four five, six seven.", "eight."]
    assert split(text, words, 3) == ["one two three.", "four five,", "six seven.", "eight."]


@pytest.mark.parametrize(
    "wrong",
    [
        {"beam": 0},
        {"beam": 2, "n_best": 3},
        {"batch_size": 0},
        {"long": "drop"},
        {"beams": 3},
        {"length_penalty": float("nan")},
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=r"^TranslateSettings: "):
        TranslateSettings(**wrong)  # type: ignore[arg-type]
