"""The pipeline: whatever a translator does to a text, spans, codes and white space come out as they went in."""

from collections import Counter
from collections.abc import Iterable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.text.carry import Languages
from knnmt.text.check import invented
from knnmt.text.held import Held
from knnmt.text.inline import Code, Inline
from knnmt.text.numbers import lost
from knnmt.text.spacing import spaced
from knnmt.text.words import Link, Pair
from knnmt.translate import TranslateSettings
from knnmt.translate.pipeline import Pipeline

from .hostile import Copying, by_place, mangled, through

SPANS = [
    "%s", "%(name)s", "%1$d", "%%", "{0}", "{name}", "{{ x }}", "${HOME}", "%{n}", "<b>fett</b>", "<br/>", "<i>",
    "&amp;",
    "&nbsp;", "https://x.de/a?b=1", "a@b.de", "`x y`", "/usr/lib/x", "0x80070057", "01.02.2024", "-934,1071", "3,5",
    "\\n", "foo_bar", "مرحبا", "{n, plural, one {# Datei} other {# Dateien}}", "%1", "--clean", "setup.py",
]  # fmt: skip
WORDS = ["Die", "Datei", "wurde", "gelöscht", "nicht", "Haus.", "Nein!", "er", "(und", "oder)", "„so“"]
texts = st.lists(
    st.sampled_from([*SPANS, *WORDS, *WORDS, "\n", "  ", "\t"]), min_size=1, max_size=9
).map(" ".join)  # fmt: skip
spaces = st.sampled_from(["", " ", "\n", "  \n\n", "\t"])


def spans_of(text: str) -> Counter[str]:
    return Counter(invented(text))


def edges(text: str) -> tuple[str, str]:
    return text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :] if text.strip() else ""


@given(texts, spaces, spaces, st.integers(0, 10**6))
def test_no_span_is_ever_damaged(text: str, before: str, after: str, seed: int) -> None:
    source = before + text + after
    (found,) = through(Copying(change=mangled(seed)), source)
    assert spans_of(found.text) == spans_of(source)
    assert edges(found.text) == edges(source)
    assert found.text.count("\n") == source.count("\n")


@given(st.permutations([*WORDS[:6], "-352", "7.125"]).map(" ".join), st.integers(0, 10**6))
def test_no_number_is_ever_lost(text: str, seed: int) -> None:
    (found,) = through(Copying(change=mangled(seed)), text)
    assert lost(["-352", "7.125"], found.text, "en") == []


def test_a_number_that_a_model_leaves_out_in_every_form_is_put_back() -> None:
    lines = Copying(change=lambda text: " ".join(word for word in text.split() if word.isalpha()))
    (found,) = through(lines, "Die Datei -352 fehlt")
    assert found.text == "Die Datei -352 fehlt"
    assert lines.asked == [f"Die Datei {form} fehlt" for form in ("-352", "{name}", "4711")] + ["Die Datei fehlt"]


def test_a_line_break_inside_a_sentence_has_words_on_both_sides() -> None:
    """Also where the words that stood behind it are not translated, and links lead to others."""
    source = "Die Datei wurde vom Benutzer\ngelöscht und auch vom Programm,\ndas sie anlegte"
    for links in ([], [(i, 0) for i in range(12)], [(i, 2) for i in range(12)], [(0, 2), (11, 0)]):
        linked = partial(_linked, links)
        pipeline = Pipeline(Copying(change=lambda text: "Gelöscht sie wurde"), linked, Languages())
        (found,) = pipeline.translate([Inline.plain(source)])
        assert found.text == "Gelöscht\nsie\nwurde"


def _linked(links: list[Link], pairs: Iterable[Pair]) -> dict[Pair, list[Link]]:
    return dict.fromkeys(pairs, links)


@given(st.lists(st.sampled_from([*SPANS, *WORDS, *WORDS]), min_size=1, max_size=9).map(" ".join))
def test_what_is_not_mended_keeps_the_source_and_is_told(text: str) -> None:
    lines = Copying(TranslateSettings(sentences=False), change=lambda line: "{0} <b>")
    (found,) = through(lines, text)
    assert found.text == text
    assert bool(found.problems) == bool(lines.asked)


@st.composite
def coded(draw: st.DrawFn) -> Inline:
    """A text with pairs of codes that nest, and single ones."""
    words = draw(st.lists(st.sampled_from([*WORDS, "%s", "3,5", "Zwei Sätze. Hier."]), min_size=1, max_size=8))
    text = " ".join(words)
    marks: list[tuple[int, str, int | None]] = []

    def fill(low: int, high: int, depth: int) -> None:
        for _ in range(draw(st.integers(0, 2))):
            if low > high:
                return
            a = draw(st.integers(low, high))
            b = draw(st.integers(a, high))
            number = len(marks)
            if draw(st.booleans()):
                marks.append((a, f"<{number}/>", None))
                low = a
            else:
                opening = len(marks)
                marks.append((a, f"<{number}>", -1))
                if depth < 2:
                    fill(a, b, depth + 1)
                marks.append((b, f"</{number}>", opening))
                low = b

    fill(0, len(text), 0)
    codes = [Code(at, raw, None if pair in (None, -1) else pair) for at, raw, pair in marks]
    for number, code in enumerate(codes):
        if code.pair is not None:
            codes[code.pair] = codes[code.pair]._replace(pair=number)
    return Inline(text, tuple(codes))


def nested(unit: Inline) -> bool:
    stack: list[int] = []
    for number, code in enumerate(unit.codes):
        if code.pair is None:
            continue
        if code.pair > number:
            stack.append(number)
        elif not stack or stack.pop() != code.pair:
            return False
    return not stack


@given(coded(), st.integers(0, 10**6))
def test_inline_codes_are_all_there_and_nested(unit: Inline, seed: int) -> None:
    assert nested(unit)
    (found,) = through(Copying(change=mangled(seed)), unit)
    assert Counter(code.raw for code in found.target.codes) == Counter(code.raw for code in unit.codes)
    assert [code.at for code in found.codes] == sorted(code.at for code in found.codes)
    assert nested(found.target)
    assert all(0 <= code.at <= len(found.text) for code in found.codes)
    assert all(
        found.codes[code.pair].raw.strip("</>") == code.raw.strip("</>")
        for code in found.codes
        if code.pair is not None
    )
    assert spans_of(found.text) == spans_of(unit.text)


@pytest.mark.parametrize(
    "text",
    [
        "  Guten  Tag \n\n  Wie geht es? \t", "\n", "   ", "", "eins\r\nzwei\r\n",
        "Erster Satz.  Zweiter Satz.\n- Punkt\n- Punkt\n",
        "%s: %d", "0x80070057", "-934,1071", "01.02.2024", "مرحبا بالعالم", "<b></b>", "42",
    ],
)  # fmt: skip
def test_a_copy_is_a_copy(text: str) -> None:
    (found,) = through(Copying(), text)
    assert (found.text, found.problems) == (text.replace("Guten  Tag", "Guten Tag"), ())


def test_what_has_no_words_is_not_translated() -> None:
    lines = Copying()
    through(lines, "%s: %d", "0x80070057", "-934,1071", "مرحبا بالعالم", " \n ", "https://x.de/")
    assert lines.asked == []


def test_plain_text_goes_to_the_model_as_it_is() -> None:
    lines = Copying(change=str.upper)
    assert [found.text for found in through(lines, "ein Satz", "Eins. Zwei.")] == ["EIN SATZ", "EINS. ZWEI."]
    assert lines.asked == ["ein Satz", "Eins.", "Zwei."]


def test_spans_travel_as_short_names_and_pairs_are_left_out() -> None:
    lines = Copying()
    (found,) = through(lines, 'Der Nutzer %(user_name)s hat <a href="/x">%d%% Rabatt</a>')
    assert lines.asked == ["Der Nutzer {name} hat {user}% Rabatt"]
    assert found.text == 'Der Nutzer %(user_name)s hat <a href="/x">%d%% Rabatt</a>'


def test_with_a_store_spans_are_written_as_its_segments_have_them_first() -> None:
    lines = Copying(retrieves=True)
    through(lines, "Datei %s fehlt")
    assert lines.asked == ["Datei %s fehlt"]


def test_what_a_model_does_not_copy_is_placed_beside_its_words() -> None:
    lines = Copying(change=lambda text: " ".join(word for word in text.split() if word.isalpha()))
    (found,) = through(lines, "Die Datei %s fehlt")
    assert found.text == "Die Datei %s fehlt"
    assert lines.asked == ["Die Datei {name} fehlt", "Die Datei 4711 fehlt", "Die Datei fehlt"]


def test_placeholders_without_numbers_keep_their_order() -> None:
    swap = {"{name} von {user}": "{user} of {name}", "4711 von 5813": "5813 of 4711"}
    (found,) = through(Copying(change=lambda text: swap.get(text, text)), "%s von %s")
    assert (found.text, found.problems) == ("%s von %s", ())
    (found,) = through(Copying(change=lambda text: swap.get(text, text)), "%(a)s von %(b)s")
    assert found.text == "%(b)s of %(a)s"


def test_what_fails_in_all_forms_keeps_the_source_and_says_why() -> None:
    (found,) = through(Copying(change=lambda text: "{0} <b>"), "Die Datei %s fehlt. Ein Satz. Noch einer %d.")
    assert found.text == "Die Datei %s fehlt. Ein Satz. Noch einer %d."
    assert len(found.problems) == 3
    assert set(found.problems) == {"{0} is not in the source"}


def test_numbers_are_converted_only_where_it_is_certain() -> None:
    drop = Copying(change=lambda text: text.replace("3,5", "5,3"))
    assert through(drop, "Es sind 3,5 Meter")[0].text == "Es sind 3.5 Meter"


@pytest.mark.parametrize(
    ("text", "translation", "expected"),
    [
        ("&Datei", "File", "&File"), ("&Abbrechen", "Cancel", "C&ancel"), ("_Datei", "File", "_File"),
        ("Be&enden", "Exit", "&Exit"), ("Müller & Söhne", "Müller & Sons", "Müller & Sons"), ("R&D", "R&D", "R&D"),
    ],
)  # fmt: skip
def test_accelerators_mark_a_letter_of_the_translation(text: str, translation: str, expected: str) -> None:
    assert through(Copying(change=lambda _: translation), text)[0].text == expected


def test_the_store_goes_first_for_the_whole_text_and_then_for_each_sentence() -> None:
    known = {"Eins. Zwei.": "One and two.", "Drei.": "Three.", "%s fehlt": "%s is missing", "%s weg": "gone"}
    lines = Copying(known=known)
    found = through(lines, " Eins.\tZwei. \n", "Drei. Vier.", "%s fehlt", "%s weg")
    assert [each.text for each in found] == [" One and two. \n", "Three. Vier.", "%s is missing", "gone"]
    assert [each.match is not None for each in found] == [True, False, True, True]
    assert [each.problems for each in found] == [(), (), (), ("%s is missing",)]


def test_texts_like_the_stores_segments_are_not_split() -> None:
    """Their sentences would find less in the store than they do together."""
    lines = Copying(whole=11, known={"Drei.": "Three.", "Elf.": "Eleven."})
    through(lines, "Eins. Zwei.", "Zwei. Eins. Vier.", "Drei. Elf.", "Eins.  Elf.", "Drei. Zwei.")
    assert lines.asked == ["Eins. Zwei.", "Zwei.", "Eins.", "Vier.", "Drei.", "Elf.", "Eins.", "Elf.", "Drei. Zwei."]


def test_a_match_of_several_lines_keeps_its_lines() -> None:
    (found,) = through(Copying(known={"Eins zwei": "One\ntwo"}), "Eins\nzwei\n")
    assert (found.text, found.match is not None) == ("One\ntwo\n", True)
    (found,) = through(Copying(known={"Eins zwei": "One two"}), "Eins\nzwei\n")
    assert (found.text, found.match) == ("Eins\nzwei\n", None)


def test_codes_go_into_a_match_too() -> None:
    unit = Inline("Das Haus", (Code(4, "<b>", 1), Code(8, "</b>", 0)))
    (found,) = through(Copying(known={"Das Haus": "The house"}), unit)
    assert found.target.written() == "The <b>house</b>"


def test_alternatives_are_checked_and_joined_line_by_line() -> None:
    lines = Copying(TranslateSettings(n_best=3, beam=3))
    (found,) = through(lines, "eins\nzwei")
    assert [each.text for each in found.alternatives] == ["eins (2)\nzwei (2)", "eins (3)\nzwei (3)"]


def test_it_can_be_switched_off() -> None:
    lines = Copying(TranslateSettings(spans=False, sentences=False))
    assert through(lines, " Eins %s. Zwei.\n")[0].text == "Eins %s. Zwei."
    lines = Copying(TranslateSettings(sentences=False))
    through(lines, "Eins. Zwei.\nDrei. Vier.")
    assert lines.asked == ["Eins. Zwei.", "Drei. Vier."]
    lines = Copying(TranslateSettings(spans=False), change=lambda text: text.replace("%s", ""))
    assert through(lines, "Eins %s da. Zwei.")[0].text == "Eins  da. Zwei."


def test_progress_counts_texts() -> None:
    done: list[int] = []
    units = [Inline.plain(text) for text in ("Eins. Zwei. Drei.", "", "%s", "Vier")]
    Pipeline(Copying(), by_place, Languages()).translate(units, done.append)
    assert sum(done) == 4


def test_a_lost_capital_is_put_back_in_every_sentence_and_alternative() -> None:
    lines = Copying(TranslateSettings(n_best=2), change=lambda text: f"so {text.lower()}")
    two, label = through(lines, "Datei öffnen. Datei %s schließen.", "Datei öffnen")
    assert two.text == "So datei öffnen. So datei %s schließen."
    assert [each.text for each in (label, *label.alternatives)] == ["So datei öffnen", "So datei öffnen (2)"]


def test_what_the_store_says_keeps_its_case() -> None:
    (found,) = through(Copying(known={"Datei öffnen": "open file"}), "Datei öffnen")
    assert found.text == "open file"


def test_no_space_comes_between_a_code_at_the_edge_and_its_words() -> None:
    """As behind the speaker of a subtitle."""
    code = Held("<v Anna>", "code", 0, None, Code(0, "<v Anna>", None))
    assert spaced([code, "Good morning!"], ["", code, " Guten Morgen!"]) == [code, "Guten Morgen!"]
    assert spaced([code, " Good morning!"], [code, " Guten Morgen!"]) == [code, " Guten Morgen!"]
    assert spaced(["Good morning", code], ["Guten Morgen ", code, ""]) == ["Guten Morgen", code]
    assert spaced([code, "morning"], ["Guten ", code, " Morgen"]) == ["Guten ", code, " Morgen"]
