"""Cleaning drops what is no good pair, counts every drop under its reason, and does only what it is told."""

import logging
import subprocess
import sys

import pytest
from pydantic import ValidationError

from knnmt.corpus import CleanReport, CleanSettings, Languages, Reason, Segment, clean, count_words, unfit
from knnmt.errors import SettingsError

DE_EN = Languages.parse("de-en")
OFF = CleanSettings(
    normalize_punctuation=False,
    drop_empty=False,
    max_tokens=None,
    max_ratio=None,
    drop_duplicates=False,
    check_language=False,
)


def only(**changes: object) -> CleanSettings:
    return CleanSettings.model_validate(OFF.model_dump() | changes)


def segments(*pairs: tuple[str, str]) -> list[Segment]:
    return [Segment(source, target, f"x:{line}") for line, (source, target) in enumerate(pairs, start=1)]


def words(count: int) -> str:
    return " ".join(f"w{i}" for i in range(count))


def kept(settings: CleanSettings, *pairs: tuple[str, str], languages: Languages = DE_EN) -> list[str]:
    return [segment.origin for segment in clean(segments(*pairs), languages, settings)]


def test_a_corpus_is_cleaned_and_every_drop_has_its_reason() -> None:
    report = CleanReport()
    result = list(
        clean(
            segments(
                ("„Klicken Sie hier“, bitte.", "“Click here”, please."),
                ("Bitte\u00a0wählen  Sie eine Datei", "Please choose a file"),
                ("", "Nothing on the other side"),
                ("Nur ein Leerzeichen", " \u00a0 "),
                (words(251), words(251)),
                (words(20), words(10)),
                ('"Klicken Sie hier", bitte.', '"Click here", please.'),
                (
                    "The file could not be opened by the program",
                    "The file could not be opened by the program",
                ),
            ),
            DE_EN,
            report=report,
        )
    )
    assert result == [
        Segment('"Klicken Sie hier", bitte.', '"Click here", please.', "x:1"),
        Segment("Bitte wählen Sie eine Datei", "Please choose a file", "x:2"),
    ]
    assert report.kept == 2
    assert report.dropped == {
        Reason.EMPTY: 2, Reason.TOO_LONG: 1, Reason.RATIO: 1, Reason.DUPLICATE: 1, Reason.LANGUAGE: 1,
    }  # fmt: skip
    assert report.seen == 8
    assert str(report).startswith("kept 2 of 8 segments; dropped 2 empty, 1 ")


def test_everything_can_be_switched_off_and_then_nothing_is_touched() -> None:
    odd = segments(
        ("", " „x“  "),
        ("", " „x“  "),
        (words(300), "x"),
        ("This is English, is it not?", "Und das ist Deutsch."),
    )
    assert list(clean(odd, DE_EN, OFF)) == odd


def test_name_and_date_outlive_normalisation() -> None:
    segment = Segment("„a“", "b", "m.tmx#7", "7", "20200101T000000Z")
    assert list(clean([segment], DE_EN)) == [Segment('"a"', "b", "m.tmx#7", "7", "20200101T000000Z")]


def test_the_token_limit_holds_for_both_sides_and_includes_the_limit() -> None:
    settings = only(max_tokens=3)
    assert kept(settings, (words(3), words(3)), (words(4), words(3)), (words(3), words(4))) == ["x:1"]


def test_the_ratio_counts_both_ways_and_only_from_some_length_on() -> None:
    settings = only(max_ratio=1.5, ratio_from=6)
    pairs = [
        (words(9), words(6)),
        (words(6), words(9)),
        (words(10), words(6)),
        (words(6), words(10)),
        (words(1), words(5)),
        (words(1), words(6)),
        ("", words(6)),
    ]
    assert kept(settings, *pairs) == ["x:1", "x:2", "x:5"]
    assert kept(only(max_ratio=1.5, ratio_from=1), ("OK", "Ja, gern doch")) == []
    assert kept(CleanSettings(), ("OK", "Yes, by all means")) == ["x:1"]


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        (250, 250, None),
        (251, 200, Reason.TOO_LONG),
        (200, 251, Reason.TOO_LONG),
        (251, 1, Reason.TOO_LONG),
        (15, 10, None),
        (16, 10, Reason.RATIO),
        (10, 16, Reason.RATIO),
        (1, 9, None),
        (0, 10, Reason.RATIO),
    ],
)
def test_lengths_may_be_judged_without_their_texts(source: int, target: int, reason: Reason | None) -> None:
    assert unfit(source, target, CleanSettings()) is reason
    assert unfit(source, target, OFF) is None


def test_lengths_are_counted_by_the_tokenizer_that_is_given() -> None:
    pairs = segments(("abc", "abc"), ("abcdef", "abcdef"))
    assert [s.source for s in clean(pairs, DE_EN, only(max_tokens=5), length=len)] == ["abc"]


def test_duplicates_are_exact_pairs_of_both_texts() -> None:
    pairs = [
        ("a", "b"),
        ("a", "c"),
        ("c", "b"),
        ("a", "b"),
        ("a b", ""),
        ("a", " b"),
        ("\ud800", "x"),
        ("\ud800", "x"),
    ]
    assert kept(only(drop_duplicates=True), *pairs) == ["x:1", "x:2", "x:3", "x:5", "x:6", "x:7"]


def test_duplicates_are_forgotten_between_two_corpora() -> None:
    settings = only(drop_duplicates=True)
    assert kept(settings, ("a", "b")) == kept(settings, ("a", "b")) == ["x:1"]


def test_a_side_in_the_wrong_language_is_found_from_four_words_on() -> None:
    german, english = "Die Datei konnte nicht geöffnet werden", "The file could not be opened"
    pairs = [
        (german, english),
        (english, english),
        (german, german),
        (english, german),
        ("The file is", english),
    ]
    assert kept(only(check_language=True), *pairs) == ["x:1", "x:5"]
    assert kept(only(check_language=True, language_from=7, foreign_from=7), *pairs) == [
        "x:1",
        "x:2",
        "x:3",
        "x:4",
        "x:5",
    ]


def test_names_and_formulas_are_given_the_benefit_of_the_doubt() -> None:
    pairs = [("SSH File Transfer Protocol (SFTP)", "SSH File Transfer Protocol"), ("1 2 3 4", "1 2 3 4")]
    assert kept(only(check_language=True), *pairs) == ["x:1", "x:2"]
    assert kept(only(check_language=True, language_certainty=0.51), pairs[0]) == []


@pytest.mark.parametrize("pair", ["pt-BR-pt-PT", "xx-en"])
def test_where_languages_cannot_be_told_apart_the_check_is_left_out_with_a_warning(
    pair: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = ("The file could not be opened", "The file could not be opened")
    with caplog.at_level(logging.WARNING):
        assert kept(only(check_language=True), text, languages=Languages.parse(pair)) == ["x:1"]
    assert "no language check for " + pair in caplog.text


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("one two", 2),
        ("  für\u00a0drei Wörter ", 3),
        ("今日は天気がいい", 4),
        ("Windows を使う", 3),
        ("안녕 세계", 2),
    ],
)
def test_words_are_counted_by_spaces_or_by_two_characters_where_a_script_has_none(text: str, count: int) -> None:
    assert count_words(text) == count


def test_a_chinese_sentence_is_not_thrown_away_for_its_lack_of_spaces() -> None:
    pair = (
        "The weather is very nice today and we are going to the park",
        "今天天气很好,我们要去公园散步和野餐吧",
    )
    assert kept(CleanSettings(check_language=False), pair, languages=Languages.parse("en-zh")) == ["x:1"]


@pytest.mark.parametrize("wrong", [{"max_token": 5}, {"max_ratio": 0.5}, {"max_tokens": 0}, {"language_certainty": 2}])
def test_unknown_and_senseless_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SettingsError, match=f"CleanSettings: {next(iter(wrong))} "):
        CleanSettings(**wrong)  # type: ignore[arg-type]


def test_settings_do_not_change_once_made() -> None:
    settings = CleanSettings()
    with pytest.raises(ValidationError, match="frozen"):
        settings.max_tokens = 3


def test_importing_the_package_loads_none_of_the_heavy_libraries() -> None:
    program = "import sys, knnmt.corpus; print({'lxml', 'polib', 'py3langid', 'sacremoses'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "set()"
