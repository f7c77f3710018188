"""What is protected in a text: a table of cases for each rule, and texts that only look like them."""

import time
from itertools import pairwise

import pytest

from knnmt.errors import SettingsError
from knnmt.text.inline import Inline
from knnmt.text.spans import ON, RULES, find
from knnmt.text.unit import unit_of
from knnmt.translate import TranslateSettings

CASES = [
    ("code", "Geben Sie `knnmt build` ein", ["`knnmt build`"]),
    ("mustache", "Hallo {{ name }}, {% if x %}ja{% endif %}", ["{{ name }}", "{% if x %}", "{% endif %}"]),
    ("tag", 'Ein <b>Haus</b> <a href="x y">hier</a><br/>', ["<b>", "</b>", '<a href="x y">', "</a>", "<br/>"]),
    ("url", "Siehe (https://x.de/a?b=c&d=1), oder www.x.de.", ["https://x.de/a?b=c&d=1", "www.x.de"]),
    ("email", "An a.b+c@x-y.de.", ["a.b+c@x-y.de"]),
    ("percent", "Hallo %{name}!", ["%{name}"]),
    ("printf", "%s %(name)s %1$d %5.2f %-5s %ld 50%%", ["%s", "%(name)s", "%1$d", "%5.2f", "%-5s", "%ld", "%%"]),
    ("printf", "Nr. 1%s, 100%ig und 5%d.", ["%s", "%d"]),
    ("qt", "Datei %1 von %L2", ["%1", "%L2"]),
    ("dollar", "${HOME} und $name", ["${HOME}", "$name"]),
    ("brace", "{} {name} {name!r:>10} {0,number,integer}", ["{}", "{name}", "{name!r:>10}", "{0,number,integer}"]),
    ("icu", "Es {n, plural, one {ist #} other {sind #}} da", ["{n, plural, one {ist #} other {sind #}}"]),
    ("entity", "A &amp; B&nbsp;C &#160; &#xA0;", ["&amp;", "&nbsp;", "&#160;", "&#xA0;"]),
    ("path", r"In C:\Temp\a.txt, /usr/lib oder ~/x.", [r"C:\Temp\a.txt", "/usr/lib", "~/x"]),
    ("escape", r"eins\nzwei\tdrei", [r"\n", r"\t"]),
    ("option", "mit --no-clean aufrufen", ["--no-clean"]),
    ("identifier", "foo_bar in setup.py mit run() gesetzt", ["foo_bar", "setup.py", "run()"]),
    ("hex", "Fehler 0x80070057, Farbe #ff00aa", ["0x80070057", "#ff00aa"]),
    ("version", "Version 3.5.2 vom 01.02.2024, v1.2.3", ["3.5.2", "01.02.2024", "v1.2.3"]),
    ("number", "-934,1071 von 12.500 um 10:30, 10 000", ["-934,1071", "12.500", "10:30", "10 000"]),
    ("emoji", "Ja 😀😀 und 👩‍💻, ☎️ nicht ✓", ["😀😀", "👩‍💻", "☎️"]),
    ("script", "Er sagte مرحبا بالعالم und 你好.", ["مرحبا بالعالم", "你好"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "expected"), CASES, ids=[kind for kind, _, _ in CASES])
def test_spans_are_found_by_their_rule(kind: str, text: str, expected: list[str]) -> None:
    found = find(text, language="de")
    assert [text[span.start : span.end] for span in found if span.kind == kind] == expected
    assert all(one.end <= other.start for one, other in pairwise(found))


def test_every_rule_has_a_case() -> None:
    assert {kind for kind, _, _ in CASES} == set(RULES) - {"colon", "accelerator"}


@pytest.mark.parametrize(
    "text",
    [
        "Das sind 50 % der Leute.", "100% sicher", "eine 100%ige Lösung", "a < b und c > d", "Müller & Söhne",
        "und/oder",
        "in km/h", "{kein Platzhalter}", "z.B. das Haus", "Punkt.Komma", "er – sie -- wir", "10:30 Uhr", "$5 kosten",
        "Er sagte: ja", "Ein_", "3.500.000 Euro",
    ],
)  # fmt: skip
def test_ordinary_text_holds_nothing_but_numbers(text: str) -> None:
    assert {span.kind for span in find(text, language="de")} <= {"number"}


def test_names_after_a_colon_must_be_asked_for() -> None:
    assert find(":name") == []
    assert [span.kind for span in find("Hallo :name", ON | {"colon"})] == ["colon"]
    assert TranslateSettings(protect=("colon", "tag")).protected == {"colon", "tag"}
    with pytest.raises(SettingsError, match=r"there are no spans 'sprintf': use code, mustache"):
        TranslateSettings(protect=("sprintf",))


def test_a_script_is_foreign_to_a_language_that_is_not_written_in_it() -> None:
    assert find("Привет, мир", language="ru") == []
    assert [span.kind for span in find("Привет, мир", language="de")] == ["script"]
    assert find("東京タワー", language="ja") == []
    assert find("Привет", language=None) == []


@pytest.mark.parametrize(
    "piece",
    [
        "%s ", "<!--", "<a ", "a-", "{n,plural,", "http://,", "a_", "я ", " ", "1.", "1 000 ", "`", "&a", "/a", "\\",
        "www.", "{", "--a", "a@", "$a", "-", "0x", "<b>x</b> ", "Ab. ",
    ],
)  # fmt: skip
def test_no_text_takes_long(piece: str) -> None:
    text = piece * (40_000 // len(piece))
    began = time.perf_counter()
    unit_of(Inline.plain(text), ON, "de")
    assert time.perf_counter() - began < 5
