"""With `bad`, a segment broken on its own is told and passed over; what is wrong with a whole file is still raised."""

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knnmt import encoding
from knnmt.corpus import CleanReport, Languages, Reason, Segment, files, read, read_all
from knnmt.errors import DataError, KnnmtError, UsageError

DE_EN = Languages.parse("de-en")
LATIN = "schön".encode("latin-1")
LONG = b"x" * 2500  # with the limit of `short_lines`


@pytest.fixture
def short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 1000)
    monkeypatch.setattr(encoding, "CORRUPT", 2.0)  # a handful of lines is too few to judge a file by


def write(path: Path, *rows: bytes) -> Path:
    data = b"".join(row + b"\n" for row in rows)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def tsv(source: str, target: str) -> bytes:
    return f"{source}\t{target}".encode()


def jsonl(source: str, target: str) -> bytes:
    return json.dumps({"de": source, "en": target}, ensure_ascii=False).encode()


def unit(source: str, target: str) -> bytes:
    return f'<tu><tuv xml:lang="de"><seg>{source}</seg></tuv><tuv xml:lang="en"><seg>{target}</seg></tuv></tu>'.encode()


def tmx(path: Path, *units: bytes, doctype: bytes = b'<!DOCTYPE tmx SYSTEM "tmx14.dtd">') -> Path:
    return write(path, doctype + b'<tmx version="1.4"><body>', *units, b"</body></tmx>")


def readable(path: Path) -> tuple[list[Segment], list[str]]:
    faults: list[str] = []
    segments = list(read(path, DE_EN, bad=lambda fault: faults.append(str(fault))))
    return segments, faults


def assert_read(path: Path, expected: list[tuple[str, str, str]], faults: list[tuple[str, str]]) -> None:
    """Compare source, target and place of each segment, and place and words of each fault."""
    segments, told = readable(path)
    assert [(s.source, s.target, s.origin) for s in segments] == [(*texts, f"{path}{at}") for *texts, at in expected]
    assert len(told) == len(faults)
    for message, (place, reason) in zip(told, faults, strict=True):
        assert message.startswith(f"{path}{place}: ")
        assert reason in message
    if told:  # the first is the very error that stops a reading without `bad`
        with pytest.raises(DataError) as caught:
            list(read(path, DE_EN))
        assert str(caught.value) == told[0]


@pytest.mark.usefixtures("short_lines")
@pytest.mark.parametrize("name", ["x.tsv", "x.tsv.gz"])
def test_bad_rows_of_a_table_are_told_and_the_others_read(tmp_path: Path, name: str) -> None:
    rows = [b"no tab", tsv("eins", "one"), LATIN, LONG, b"", tsv("zwei", "two"), b"a\tb\tc\td", tsv("drei", "three")]
    assert_read(
        write(tmp_path / name, *rows),
        [("eins", "one", ":2"), ("zwei", "two", ":6"), ("drei", "three", ":8")],
        [(":1", "no tab"), (":3", "byte 4 of the line is not UTF-8"), (":4", "longer than"), (":7", "4 columns")],
    )


@pytest.mark.usefixtures("short_lines")
def test_bad_objects_are_told_and_the_others_read_with_the_keys_known_so_far(tmp_path: Path) -> None:
    rows = [
        b'{"de": "e',
        jsonl("eins", "one"),
        b'["a", "b"]',
        b'{"de": "nur Deutsch"}',
        b'{"de": "a", "en": null}',
        b'{"de": "\\ud800", "en": "a"}',
        LATIN,
        LONG,
        b"",
        jsonl("zwei", "two"),
    ]
    assert_read(
        write(tmp_path / "x.jsonl", *rows),
        [("eins", "one", ":2"), ("zwei", "two", ":10")],
        [
            (":1", "invalid JSON"),
            (":3", "not a JSON object"),
            (":4", "no text for 'en'"),
            (":5", "must be strings"),
            (":6", "lone surrogate"),
            (":7", "not UTF-8"),
            (":8", "longer than"),
        ],
    )


def test_json_nested_to_any_depth_is_a_segment_or_a_fault(tmp_path: Path) -> None:
    """Close to the interpreter's limit a line can be parsed and then not be looked through any more."""
    rows = [f'{{"de": "\\u00e4", "en": "a", "id": {"[" * n}{"]" * n}}}'.encode() for n in range(850, 1010)]
    segments, faults = readable(write(tmp_path / "x.jsonl", *rows))
    assert len(segments) + len(faults) == len(rows)


@pytest.mark.usefixtures("short_lines")
def test_a_bad_line_on_either_side_takes_its_pair_away_and_no_other(tmp_path: Path) -> None:
    german = write(tmp_path / "x.de", b"eins", LATIN, b"drei", LONG, LATIN, b"sechs")
    english = write(tmp_path / "x.en", b"one", b"two", LONG, b"four", LONG, b"six")
    segments, faults = readable(tmp_path / "x")
    assert segments == [Segment("eins", "one", f"{german}:1"), Segment("sechs", "six", f"{german}:6")]
    places = [message.partition(": ")[0] for message in faults]
    assert places == [f"{german}:2", f"{english}:3", f"{german}:4", f"{german}:5"]  # one fault a pair


def test_a_unit_with_a_character_that_nobody_declared_is_told_and_the_others_read(tmp_path: Path) -> None:
    named = unit("a", "b&copy;").replace(b"<tu>", b'<tu tuid="n-4">')
    units = [unit("a&nbsp;b", "c"), unit("zwei", "two"), unit("drei", "three"), named]
    assert_read(
        tmx(tmp_path / "x.tmx", *units),
        [("zwei", "two", "#2"), ("drei", "three", "#3")],
        [("#1", "entity &nbsp;"), ("#n-4", "entity &copy;")],
    )


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_that_is_too_long_is_never_held_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: bytes
) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 1 << 16)
    path = tmp_path / "x.tsv"
    path.write_bytes(b"a\tb\n" + b"x" * 20_000_000 + b"\nc\td\n" + b"x" * 20_000_000 + end)
    tracemalloc.start()
    segments, faults = readable(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [segment.origin for segment in segments] == [f"{path}:1", f"{path}:3"]
    assert [message.partition(": ")[0] for message in faults] == [f"{path}:2", f"{path}:4"]
    assert peak < 2_000_000


@pytest.mark.parametrize("over", [-1, 0, 1, 2, 1000])
def test_a_line_just_over_the_limit_does_not_swallow_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, over: int
) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 100)
    long = b"a\t" + b"b" * (100 + over - 3)  # with its line feed `over` bytes more than the limit
    segments, faults = readable(write(tmp_path / "x.tsv", long, tsv("zwei", "two")))
    assert len(faults) == (over > 0)
    assert segments[-1] == Segment("zwei", "two", f"{tmp_path}/x.tsv:2")


def missing(folder: Path) -> Path:
    return folder / "missing.tsv"


def cut_gzip(folder: Path) -> Path:
    path = folder / "x.tsv.gz"
    path.write_bytes(gzip.compress(b"a\tb\nbad\n" * 1000)[:-6])
    return path


def cut_in_a_long_line(folder: Path) -> Path:
    path = folder / "x.tsv.gz"
    path.write_bytes(gzip.compress(b"x" * 5000)[:-6])
    return path


def broken_xml(folder: Path) -> Path:
    return tmx(folder / "x.tmx", unit("a&nbsp;", "b"), b"<tu></seg>")


def entity_without_document_type(folder: Path) -> Path:
    """By the rules of XML only a document type can leave an entity open; without one the file is broken."""
    return tmx(folder / "x.tmx", unit("a&nbsp;", "b"), doctype=b"")


def shorter_partner(folder: Path) -> Path:
    write(folder / "x.en", b"a")
    return write(folder / "x.de", LATIN, b"b")


def shorter_partner_beside_a_bad_last_line(folder: Path) -> Path:
    write(folder / "x.de", b"a")
    return write(folder / "x.en", b"a", LATIN)


def first_object_in_other_languages(folder: Path) -> Path:
    return write(folder / "x.jsonl", b"no json", b'{"fr": "a", "en": "b"}', jsonl("a", "b"))


def memory_in_other_languages(folder: Path) -> Path:
    return tmx(folder / "x.tmx", unit("a&nbsp;", "b").replace(b'"de"', b'"fr"'))


def catalog_in_another_language(folder: Path) -> Path:
    return write(folder / "fr.po", b'msgid "a"', b'msgstr "b"')


def broken_catalog(folder: Path) -> Path:
    return write(folder / "x.po", b'msgid "a"', b'msgstr "b"', b"", b"no catalog")


@pytest.mark.parametrize(
    ("make", "kind", "reason"),
    [
        (missing, UsageError, "no such file"),
        (cut_gzip, DataError, "corrupt gzip"),
        (cut_in_a_long_line, DataError, "corrupt gzip"),
        (broken_xml, DataError, "invalid XML"),
        (entity_without_document_type, DataError, "invalid XML"),
        (shorter_partner, DataError, r"x\.de:2: .*x\.en has only 1 lines"),
        (shorter_partner_beside_a_bad_last_line, DataError, r"x\.en:2: .*x\.de has only 1 lines"),
        (first_object_in_other_languages, UsageError, r"x\.jsonl:2: no text for 'de'"),
        (memory_in_other_languages, UsageError, "none of its 1 units has both"),
        (catalog_in_another_language, UsageError, "the catalog is 'fr'"),
        (broken_catalog, DataError, r"x\.po:4: corrupt catalog"),
    ],
)
@pytest.mark.usefixtures("short_lines")
def test_what_is_wrong_with_a_whole_file_is_raised_all_the_same(
    tmp_path: Path, make: Callable[[Path], Path], kind: type[KnnmtError], reason: str
) -> None:
    with pytest.raises(kind, match=reason):
        readable(make(tmp_path))


def test_whoever_is_told_may_count_over_several_corpora_or_stop_the_reading(tmp_path: Path) -> None:
    table = write(tmp_path / "x.tsv", tsv("eins", "one"), b"bad", b"bad", tsv("zwei", "two"))
    memory = tmx(tmp_path / "x.tmx", unit("&nbsp;", "a"), unit("drei", "three"))
    report = CleanReport()

    def count(fault: DataError) -> None:
        report.dropped[Reason.UNREADABLE] += 1
        if report.dropped[Reason.UNREADABLE] > 3:
            raise fault

    for segment in read_all([table, memory], DE_EN, bad=count):
        report.kept += bool(segment)
    assert str(report) == "kept 3 of 6 segments; dropped 3 unreadable"
    with pytest.raises(DataError, match=r"x\.tsv:2"):
        list(read_all([table], DE_EN, bad=count))


LINE = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufeff\ufffe\uffff"), max_size=20)
PAIR = st.tuples(LINE, LINE)
BAD_ROWS = {
    "tsv": [b"no tab", b"a\tb\tc\td", LATIN, b"a\t" + LATIN, LONG],
    "jsonl": [b"{", b"[]", b'"\\ud800"', b'{"de": 1, "en": "a"}', b'{"de": "\\udfff", "en": "a"}', LATIN, LONG],
}
many = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@many
@given(data=st.data(), packed=st.sampled_from(["", ".gz"]), suffix=st.sampled_from(["tsv", "jsonl"]))
@pytest.mark.usefixtures("short_lines")
def test_rows_among_any_bad_ones_come_out_as_without_them(
    tmp_path: Path, data: st.DataObject, packed: str, suffix: str
) -> None:
    encode = {"tsv": tsv, "jsonl": jsonl}[suffix]
    items = data.draw(st.lists(PAIR | st.sampled_from(BAD_ROWS[suffix]), max_size=12))
    path = write(tmp_path / f"x.{suffix}{packed}", *(i if isinstance(i, bytes) else encode(*i) for i in items))
    segments, faults = readable(path)
    sound = {number: item for number, item in enumerate(items, start=1) if not isinstance(item, bytes)}
    assert segments == [Segment(*texts, f"{path}:{number}") for number, texts in sound.items()]
    assert [message.partition(": ")[0] for message in faults] == [
        f"{path}:{number}" for number in range(1, len(items) + 1) if number not in sound
    ]


@many
@given(pairs=st.lists(st.tuples(*[LINE | st.sampled_from([LATIN, LONG])] * 2), max_size=12))
@pytest.mark.usefixtures("short_lines")
def test_lines_of_a_pair_stay_in_step_around_any_bad_ones(
    tmp_path: Path, pairs: list[tuple[str | bytes, str | bytes]]
) -> None:
    for side, code in enumerate(("de", "en")):
        raw = [text.encode() if isinstance(text, str) else text for text in (pair[side] for pair in pairs)]
        write(tmp_path / f"x.{code}", *raw)
    segments, faults = readable(tmp_path / "x")
    assert segments == [
        Segment(source, target, f"{tmp_path}/x.de:{number}")
        for number, (source, target) in enumerate(pairs, start=1)
        if isinstance(source, str) and isinstance(target, str)
    ]
    assert len(faults) == len(pairs) - len(segments)


@many
@given(items=st.lists(PAIR | st.sampled_from([unit("&nbsp;", "a"), unit("a", "<hi>b&x;</hi>")]), max_size=8))
def test_units_among_any_bad_ones_come_out_as_without_them(
    tmp_path: Path, items: list[tuple[str, str] | bytes]
) -> None:
    path = tmx(tmp_path / "x.tmx", *(i if isinstance(i, bytes) else unit(*map(escape, i)) for i in items))
    segments, faults = readable(path)
    assert segments == [
        Segment(*item, f"{path}#{number}") for number, item in enumerate(items, start=1) if not isinstance(item, bytes)
    ]
    assert len(faults) == len(items) - len(segments)
