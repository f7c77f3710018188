"""What is written can be read back, whatever stands in it; and it is written in pieces, not held whole."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knnmt.corpus import Languages, Segment, read
from knnmt.corpus.writers import Kind, pieces, write

PAIR = Languages("de", "en")
KINDS: tuple[Kind, ...] = ("tmx", "tsv", "jsonl")
EASY = [
    Segment("Klicken Sie auf «Speichern» & <OK>.", "Click “Save” & <OK>.", "a:1", "s-1"),
    Segment("Grüße \U0001f44b\tund\nmehr", "Greetings \U0001f44b\tand\nmore", "a:2"),
    Segment("\"Zitat\" ]]> 'x'", "'quote' ]]> \"x\"", "a:3", "a<&\"'>b"),
]


def round_trip(segments: list[Segment], kind: Kind, folder: Path) -> list[Segment]:
    path = folder / f"out.{kind}"
    with path.open("wb") as file:
        assert write(iter(segments), file, kind, PAIR) == len(segments)
    return list(read(path, PAIR))


@pytest.mark.parametrize("kind", KINDS)
def test_texts_and_ids_come_back(kind: Kind, tmp_path: Path) -> None:
    back = round_trip(EASY, kind, tmp_path)
    flat = (lambda text: re.sub("[\t\n]", " ", text)) if kind == "tsv" else str
    assert [(s.source, s.target, s.id) for s in back] == [(flat(s.source), flat(s.target), s.id) for s in EASY]


@pytest.mark.parametrize("kind", KINDS)
@given(texts=st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1), st.none() | st.text("abc-é/ ", min_size=1))))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None)
def test_any_text_comes_back_as_far_as_the_format_can_hold_it(
    kind: Kind, texts: list[tuple[str, str, str | None]], tmp_path: Path
) -> None:
    segments = [Segment(source, target, "", name) for source, target, name in texts]
    if not segments and kind == "tmx":
        return  # a memory without units has no languages to be read
    lost = {"tmx": "[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "tsv": "[\0\t\n\r]+", "jsonl": "(?!)"}[kind]

    def held(text: str) -> str:
        return re.sub(lost, " " if kind == "tsv" else "", text)

    back = round_trip(segments, kind, tmp_path)
    assert [(s.source, s.target) for s in back] == [(held(s.source), held(s.target)) for s in segments]
    if kind != "tmx":  # where an attribute's outer spaces are the parser's affair
        assert [s.id for s in back] == [s.id for s in segments]


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_character_is_left_out_not_an_accident(kind: Kind, tmp_path: Path) -> None:
    back = round_trip([Segment("a\ud800b", "c\udfffd", "", "e\ud800f")], kind, tmp_path)
    assert [(s.source, s.target, s.id) for s in back] == [("ab", "cd", "ef")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_place_in_a_store_is_no_id_elsewhere(kind: Kind, tmp_path: Path) -> None:
    """Read into another store, «#17» would replace whatever stands there in the seventeenth place."""
    assert [s.id for s in round_trip([Segment("a", "b", "", "#17"), Segment("c", "d", "", "#x")], kind, tmp_path)] == [
        None,
        "#x",
    ]


def test_a_date_in_tmx_form_is_kept(tmp_path: Path) -> None:
    dated = [Segment("a", "b", "", None, "20240131T120000Z"), Segment("c", "d", "", None, "yesterday")]
    assert [s.date for s in round_trip(dated, "tmx", tmp_path)] == ["20240131T120000Z", None]


def test_nothing_is_held_longer_than_a_piece() -> None:
    taken = 0

    def endless() -> Iterator[Segment]:
        nonlocal taken
        while True:
            taken += 1
            yield Segment("x" * 1000, "y" * 1000, "")

    for kind in KINDS:
        taken = 0
        first = next(pieces(endless(), kind, PAIR))
        assert len(first) < 80_000
        assert taken < 50


def test_regions_stand_in_the_file(tmp_path: Path) -> None:
    out = io.BytesIO()
    write([Segment("a", "b", "")], out, "tmx", Languages("en", "pt-BR"))
    path = tmp_path / "x.tmx"
    path.write_bytes(out.getvalue())
    assert [s.target for s in read(path, Languages("en", "pt-BR"))] == ["b"]
