"""Punctuation takes one form, and what a program reads inside a text is left alone."""

import re
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.corpus import normalize_punctuation


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("„Speichern“ und ‚Öffnen‘", "\"Speichern\" und 'Öffnen'"),
        ("das »Wort« hier", 'das "Wort" hier'),
        ("«\u00a0Bonjour\u00a0»\u00a0!", '"Bonjour"!'),
        ("L’homme\u202f; l´eau", "L'homme; l'eau"),
        ("1990–1995 — lang…", "1990-1995 - lang..."),
        ("Wort—Wort", "Wort - Wort"),
        ("Datei :  drei\tvier\n\nfünf ", "Datei: drei vier fünf"),
        ("rund 5\u00a0% und 10 %.", "rund 5% und 10%."),
    ],
)
def test_marks_become_plain(text: str, plain: str) -> None:
    assert normalize_punctuation(text) == plain


@pytest.mark.parametrize(
    "text",
    [
        "%(name)s was saved",
        "5 %(count)d and 7 %s and %1$s of 100 %%",
        "{0}: {name!r:>10} {a : b}",
        '<a href="x" title="a : b – „c“">',
        "Datei(en) in C(++)",
        "`code` and ''escaped''",
        "https://example.org/a–b…c",
        "scale 1 : 2",
        "fine :-) and :)",
        "&nbsp;&ldquo;x&rdquo;",
        "std::vector ?: x",
    ],
)
def test_placeholders_tags_and_addresses_are_untouched(text: str) -> None:
    assert normalize_punctuation(text) == text


def test_text_around_what_is_kept_still_changes() -> None:
    assert normalize_punctuation('<b title="„a“">„%(b)s“</b> – {c}  …') == '<b title="„a“">"%(b)s"</b> - {c} ...'


@settings(max_examples=300)
@given(st.text(st.sampled_from("aZ1 \n\u00a0—–…„“”«»‘’‚´:;!?%(){}<>/s\"'.-"), max_size=25))
def test_what_is_plain_stays_as_it_is_and_no_word_is_lost(text: str) -> None:
    plain = normalize_punctuation(text)
    assert normalize_punctuation(plain) == plain
    assert re.findall(r"\w", plain) == re.findall(r"\w", text)


def test_a_hostile_text_takes_time_in_step_with_its_length() -> None:
    """One rule that tries again at every character would take minutes here; all of them take milliseconds."""
    started = perf_counter()
    for piece in ("<a", "{", "%(", " ", "\u00a0", "« ", "a", "http"):
        normalize_punctuation(piece * 100_000 + "…")
    assert perf_counter() - started < 5
