"""Documents are filled by a translator: what is chosen, how it is marked, and how an interrupted run is resumed."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from knnmt.documents import State, open_document
from knnmt.documents.pretranslate import (
    USUAL,
    WINDOW,
    Finished,
    Tally,
    Translated,
    finished_in,
    pretranslate,
    texts_of,
)
from knnmt.documents.unit import cut, trimmed
from knnmt.text.inline import Code, Inline

from .examples import EXAMPLES, opened, shout


class Standin:
    """Shouts; knows `Done`, and cannot translate what has a number sign."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, units: Sequence[Inline]) -> list[Translated]:
        self.seen += [unit.text for unit in units]
        return [
            Translated(shout(unit), -0.5, exact=unit.text == "Review me",
                       problems=("%d is missing",) if "%d" in unit.text else ())
            for unit in units
        ]  # fmt: skip


def test_only_what_is_untranslated_or_fuzzy() -> None:
    document, standin = opened("app.po"), Standin()
    tally = pretranslate(document, standin)
    assert "Done" not in standin.seen
    assert len(standin.seen) == len(set(standin.seen))
    states = {unit.source.text: unit.state for unit in document.units}
    assert states["Review me"] is State.TRANSLATED
    assert states["Hello %s"] is State.FUZZY
    assert (tally.units, tally.exact, tally.kept) == (6, 1, 1)
    assert tally.problems == [  # the stand-in shouts
        "app.po:14: placeholder: %s is missing", "app.po:14: placeholder: %S is not in the source",
        *["app.po:29: untranslated: %d is missing"] * 3,
    ]  # fmt: skip
    written = document.to_bytes().decode()
    assert '\nmsgid "Review me"\nmsgstr "REVIEW ME"' in written
    assert 'msgstr[0] "alt"\nmsgstr[1] "alte"' in written


def test_all_of_it() -> None:
    document, standin = opened("app.po"), Standin()
    assert texts_of(document, everything=True) == texts_of(document) + 1
    assert pretranslate(document, standin, everything=True).kept == 0
    assert "Done" in standin.seen


def test_what_the_memory_has_with_a_problem_is_to_be_reviewed() -> None:
    document = opened("text.txt", b"Hello\n")
    tally = pretranslate(document, lambda units: [Translated(Inline("A"), exact=True, problems=("12 is missing",))])
    assert next(iter(document.units)).state is State.FUZZY
    assert tally.problems == ["text.txt:1: placeholder: 12 is missing"]
    assert document.to_bytes() == b"A\n"


def test_what_is_left_is_counted() -> None:
    assert pretranslate(opened("app.json"), Standin()).left == 1


def test_an_interrupted_run_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "part"
    data = "".join(f"Line number {number} x\n" for number in range(3 * WINDOW)).replace("1 x", "1 y").encode()
    done: list[int] = []

    class Interrupted(Standin):
        def __call__(self, units: Sequence[Inline]) -> list[Translated]:
            if len(self.seen) == WINDOW:
                raise KeyboardInterrupt
            return super().__call__(units)

    with pytest.raises(KeyboardInterrupt), finished_in(path, "model") as finished:
        pretranslate(opened("text.txt", data), Interrupted(), finished=finished)
    assert len(path.read_text("utf-8").splitlines()) == 1 + WINDOW
    with path.open("a", encoding="utf-8") as file:
        file.write('{"source": ["Line numb')  # cut off
    standin = Standin()
    with finished_in(path, "model") as finished:
        document = opened("text.txt", data)
        pretranslate(document, standin, finished=finished, progress=done.append)
    assert len(standin.seen) == 2 * WINDOW
    assert sum(done) == 3 * WINDOW
    assert document.to_bytes() == data.upper()
    assert not path.exists()


def test_what_another_model_made_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "part"
    source = Inline("a", (Code(1, "<x/>", None), Code(1, "<y/>", 0)))
    first = Finished(path, "one")
    first.add([source], [Translated(shout(source), -1.0, problems=("p",))])
    first.close(done=False)
    assert json.loads(path.read_text("utf-8").splitlines()[0]) == {"made_with": "one"}
    assert Finished(path, "one")[source] == Translated(shout(source), -1.0, problems=("p",))
    assert source not in Finished(path, "two")
    path.write_bytes(b"\xff\0")
    assert not len(Finished(path, "one"))


def test_tallies_add_up() -> None:
    total = Tally(1, 2, 1, 4, 5, ["a"])
    total.add(Tally(1, 1, 0, 1, 1, ["b"]))
    assert total == Tally(2, 3, 1, 5, 6, ["a", "b"])


def test_notes_say_who_translated() -> None:
    document = opened("app.xlf")
    pretranslate(document, Standin())
    written = document.to_bytes().decode()
    assert '<note from="knnmt">machine translation, score -0.50</note>' in written
    assert '<target state="translated">REVIEW ME</target><note from="knnmt">exact match of the' in written
    assert EXAMPLES["app.xlf"].decode().split("\n")[11:14] == written.split("\n")[13:16]


def test_white_space_around_a_text() -> None:
    text = Inline(" a b ", (Code(0, "<x>", 1), Code(5, "</x>", 0)))
    assert trimmed(text) == (" ", Inline("a b", (Code(0, "<x>", 1), Code(3, "</x>", 0))), " ")
    assert trimmed(Inline("  ")) == ("  ", Inline(""), "")
    assert cut(Inline("abc"), 1, 2) == Inline("b")


def test_notes_say_how_well_the_memory_matches() -> None:
    assert Translated(Inline("a"), -0.5, match=0.874).note == (
        "machine translation, score -0.50; fuzzy match 87% in the translation memory"
    )
    assert Translated(Inline("a"), -0.5, match=0.0).note.endswith("; no match in the translation memory")
    assert Translated(Inline("a"), 0.0, exact=True, match=1.0).note == "exact match of the translation memory"


def test_a_match_is_reviewed_where_tags_were_put_between_its_words() -> None:
    data = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
    <file source-language="en" target-language="de" original="a" datatype="x"><body>
    <trans-unit id="1"><source>Click <g id="1">Save</g></source></trans-unit>
    <trans-unit id="2"><source><g id="1">Click Save</g></source></trans-unit>
    </body></file></xliff>"""
    document = open_document(data.encode(), "xliff")
    pretranslate(document, lambda some: [Translated(each, exact=True) for each in some])
    first, second = (line for line in document.to_bytes().decode().split("\n") if "<source>" in line)
    assert 'state="needs-review-translation"' in first
    assert "exact match of the translation memory, tags placed by machine" in first
    assert 'state="translated"' in second
    assert "exact match of the translation memory<" in second


def test_matches_are_kept_over_an_interruption(tmp_path: Path) -> None:
    first = Finished(tmp_path / "part", "one")
    first.add([Inline("a")], [Translated(Inline("b"), -1.0, match=0.75)])
    first.close(done=False)
    assert Finished(tmp_path / "part", "one")[Inline("a")].match == 0.75


def test_texts_of_similar_length_are_translated_together_and_long_ones_in_smaller_portions() -> None:
    """An interruption loses a portion, so that none may take long."""
    sizes = [10, 2000, 30, 500, 400, 20] + [35] * 100
    data = "".join("x" * size + f" {number}\n" for number, size in enumerate(sizes)).encode()
    portions: list[list[int]] = []

    class Watched(Standin):
        def __call__(self, units: Sequence[Inline]) -> list[Translated]:
            portions.append([len(unit.text) for unit in units])
            return super().__call__(units)

    pretranslate(opened("text.txt", data), Watched())
    flat = [size for some in portions for size in some]
    assert len(flat) == len(sizes)
    assert flat == sorted(flat, reverse=True)
    assert all(len(some) * some[0] < 2 * WINDOW * USUAL for some in portions)
    assert [len(some) for some in portions] == [2, 7, WINDOW, 33]
