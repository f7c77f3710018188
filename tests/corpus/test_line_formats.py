"""Plain pairs, TSV and JSONL: found by their names, streamed line by line, refused with file and line."""

import gzip
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from knnmt.corpus import Languages, Segment, files, read, read_all
from knnmt.errors import DataError, UsageError

DE_EN = Languages.parse("de-en")


def texts(segments: Iterator[Segment]) -> list[tuple[str, str]]:
    return [(segment.source, segment.target) for segment in segments]


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def plain_pair(folder: Path, source: str | bytes = "eins\nzwei\n", target: str | bytes = "one\ntwo\n") -> Path:
    write(folder / "train.de", source)
    write(folder / "train.en", target)
    return folder / "train"


@pytest.mark.parametrize("name", ["train", "train.de", "train.en"])
def test_a_plain_pair_is_named_by_either_file_or_by_its_prefix(tmp_path: Path, name: str) -> None:
    plain_pair(tmp_path)
    assert list(read(tmp_path / name, DE_EN)) == [
        Segment("eins", "one", f"{tmp_path}/train.de:1"),
        Segment("zwei", "two", f"{tmp_path}/train.de:2"),
    ]


def test_the_direction_asked_for_decides_which_file_is_the_source(tmp_path: Path) -> None:
    plain_pair(tmp_path)
    assert texts(read(str(tmp_path / "train.de"), Languages.parse("en-de"))) == [
        ("one", "eins"),
        ("two", "zwei"),
    ]


def test_a_prefix_may_hold_dots_and_either_side_may_be_gzipped(tmp_path: Path) -> None:
    write(tmp_path / "corpus.v1.de.gz", "eins\n")
    write(tmp_path / "corpus.v1.en", "one\n")
    for name in ("corpus.v1", "corpus.v1.de.gz", "corpus.v1.en"):
        assert texts(read(tmp_path / name, DE_EN)) == [("eins", "one")]


def test_regional_suffixes_serve_and_backups_do_not(tmp_path: Path) -> None:
    write(tmp_path / "x.de-AT", "Jänner\n")
    write(tmp_path / "x.en", "January\n")
    write(tmp_path / "x.de.bak", "alt\n")
    assert texts(read(tmp_path / "x", DE_EN)) == [("Jänner", "January")]
    write(tmp_path / "x.de-DE", "Januar\n")
    with pytest.raises(UsageError, match=r"x\.de-AT.*x\.de-DE.*all match"):
        read(tmp_path / "x", DE_EN)
    assert texts(read(tmp_path / "x", Languages.parse("de-DE-en"))) == [("Januar", "January")]
    assert texts(read(tmp_path / "x.de-AT", DE_EN)) == [("Jänner", "January")]
    write(tmp_path / "x.de", "Januar (exakt)\n")
    assert texts(read(tmp_path / "x", DE_EN)) == [("Januar (exakt)", "January")]


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    odd = "a\u2028b\u2029c\x0bd\x0ce\x1cf\x85g\rh"
    plain_pair(tmp_path, f"{odd}\nzwei", "one\ntwo\n")
    assert texts(read(tmp_path / "train", DE_EN)) == [(odd, "one"), ("zwei", "two")]


def test_a_byte_order_mark_and_windows_line_ends_are_no_text(tmp_path: Path) -> None:
    plain_pair(tmp_path, "\ufeffeins\r\nzwei\r\n", "one\ntwo\n")
    assert texts(read(tmp_path / "train", DE_EN)) == [("eins", "one"), ("zwei", "two")]


def test_empty_lines_of_a_plain_pair_keep_their_place(tmp_path: Path) -> None:
    plain_pair(tmp_path, "\nzwei\n", "one\n\n")
    assert texts(read(tmp_path / "train", DE_EN)) == [("", "one"), ("zwei", "")]


@pytest.mark.parametrize(
    ("source", "target", "place", "short"),
    [("a\nb\nc\n", "a\nb\n", "train.de:3", "train.en"), ("a\n", "a\nb\nc\n", "train.en:2", "train.de")],
)
def test_sides_of_unequal_length_are_an_error_and_never_a_cut(
    tmp_path: Path, source: str, target: str, place: str, short: str
) -> None:
    stream = read(plain_pair(tmp_path, source, target), DE_EN)
    with pytest.raises(DataError, match=f"{place}: .*{short} has only") as caught:
        list(stream)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["train.de", "x.tsv", "x.jsonl"])
@pytest.mark.parametrize("packed", ["", ".gz"])
def test_bytes_that_are_not_utf8_are_named_by_file_and_line(tmp_path: Path, name: str, packed: str) -> None:
    good = {
        "train.de": b"eins\n",
        "x.tsv": b"eins\tone\n",
        "x.jsonl": b'{"source": "eins", "target": "one"}\n',
    }[name]
    write(tmp_path / (name + packed), good + "schön\tnice\n".encode("latin-1"))
    write(tmp_path / "train.en", "one\nnice\n")
    with pytest.raises(DataError, match=rf"{name}{packed}:2: byte 4 .*not UTF-8; .*WINDOWS-1252.*iconv"):
        list(read(tmp_path / (name + packed), DE_EN))


def test_a_file_without_line_ends_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LINE", 100)
    write(tmp_path / "x.tsv", "a\tb\n" + "a" * 50 + "\t" + "b" * 49 + "\n")
    with pytest.raises(DataError, match=r"x\.tsv:2: line longer"):
        list(read(tmp_path / "x.tsv", DE_EN))


def test_reading_is_lazy(tmp_path: Path) -> None:
    write(tmp_path / "x.tsv", b"eins\tone\nzwei\ttwo\nbroken\n")
    assert texts(islice(read(tmp_path / "x.tsv", DE_EN), 2)) == [("eins", "one"), ("zwei", "two")]


def test_tsv_rows_have_two_columns_and_perhaps_an_id(tmp_path: Path) -> None:
    path = write(tmp_path / "x.tsv", 'eins\tone\nzwei\ttwo\tid-2\n\n"drei"\tthree\t\n')
    assert list(read(path, DE_EN)) == [
        Segment("eins", "one", f"{path}:1"),
        Segment("zwei", "two", f"{path}:2", "id-2"),
        Segment('"drei"', "three", f"{path}:4"),
    ]


@pytest.mark.parametrize(("row", "found"), [("no tab here", "no tab"), ("a\tb\tc\td", "4 columns")])
def test_a_tsv_row_of_another_shape_is_refused(tmp_path: Path, row: str, found: str) -> None:
    path = write(tmp_path / "x.tsv", f"eins\tone\n{row}\n")
    with pytest.raises(DataError, match=rf"x\.tsv:2: {found}; .*source<TAB>target"):
        list(read(path, DE_EN))


def test_jsonl_objects_name_their_sides_by_role_or_by_language(tmp_path: Path) -> None:
    rows = [
        '{"source": "eins", "target": "one", "id": 7}',
        '{"de": "zwei", "en": "two", "id": "b"}',
        "",
        '{"en_US": "three", "de-DE": "drei"}',
        '{"id": "c", "translation": {"de": "vier", "en": "four"}}',
        '{"source": "f\\u00fcnf \\ud83d\\ude00", "target": "five", "id": null}',
    ]
    path = write(tmp_path / "x.jsonl", "\n".join(rows))
    assert list(read(path, DE_EN)) == [
        Segment("eins", "one", f"{path}:1", "7"),
        Segment("zwei", "two", f"{path}:2", "b"),
        Segment("drei", "three", f"{path}:4"),
        Segment("vier", "four", f"{path}:5", "c"),
        Segment("fünf 😀", "five", f"{path}:6"),
    ]


def test_jsonl_prefers_the_very_language_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"pt": "allgemein", "pt-BR": "Brasil", "en": "x"}\n')
    assert texts(read(path, Languages.parse("en-pt-BR"))) == [("x", "Brasil")]


def test_jsonl_in_other_languages_is_a_wrong_request_that_names_the_keys(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", '{"fr": "un", "en": "one"}\n')
    with pytest.raises(UsageError, match=r"x\.jsonl:1: no text for 'de'; keys here: 'fr', 'en'"):
        list(read(path, DE_EN))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"source": "a", ', "invalid JSON"),
        ('["a", "b"]', "not a JSON object"),
        ("[" * 100_000, "invalid JSON"),
        ('{"source": "a", "target": null}', "must be strings"),
        ('{"source": "a"}', "no text for"),
        ('{"source": "\\ud800", "target": "b"}', "lone surrogate"),
    ],
)
def test_a_broken_jsonl_row_is_refused_with_its_line(tmp_path: Path, row: str, reason: str) -> None:
    path = write(tmp_path / "x.jsonl", f'{{"source": "eins", "target": "one"}}\n{row}\n')
    with pytest.raises(DataError, match=rf"x\.jsonl:2: .*{reason}") as caught:
        list(read(path, DE_EN))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".tsv", ".jsonl", ".tmx", ".po", ".mo", ".tsv.gz", ".tmx.gz", ".mo.gz"])
def test_an_empty_file_has_no_segments(tmp_path: Path, suffix: str) -> None:
    assert list(read(write(tmp_path / f"x{suffix}", ""), DE_EN)) == []


def test_an_empty_plain_pair_has_no_segments(tmp_path: Path) -> None:
    assert list(read(plain_pair(tmp_path, "", ""), DE_EN)) == []


@pytest.mark.parametrize("name", ["x", "x.de", "x.tsv", "x.jsonl.gz", "x.tmx", "x.po", "x.mo", "nowhere/x", "x.doc"])
def test_a_missing_file_is_refused_before_the_first_segment_is_asked_for(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=r"no such file.*check the path"):
        read(tmp_path / name, DE_EN)


def test_a_folder_an_unknown_suffix_and_a_missing_partner_each_get_their_own_remedy(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder; name a file in it"):
        read(tmp_path, DE_EN)
    with pytest.raises(UsageError, match="is a folder"):
        read("/", DE_EN)
    (tmp_path / "y.tmx").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        read(tmp_path / "y.tmx", DE_EN)
    with pytest.raises(UsageError, match=r"suffix '\.fr' is neither a known format .* nor a language of de-en"):
        read(write(tmp_path / "x.fr", "un\n"), DE_EN)
    write(tmp_path / "x.en.gz", "one\n")
    for name in ("x", "x.en.gz"):
        with pytest.raises(UsageError, match=r"x\.en\.gz: no partner .*x\.de; name the two"):
            read(tmp_path / name, DE_EN)


def test_a_file_that_may_not_be_opened_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.tsv", "a\tb\n")

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", forbidden)
    with pytest.raises(UsageError, match="Permission denied"):
        read(path, DE_EN)


@pytest.mark.parametrize("cut", [15, -4])
def test_broken_gzip_data_are_a_data_error(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "x.tsv.gz"
    path.write_bytes(gzip.compress(b"eins\tone\n" * 1000)[:cut])
    with pytest.raises(DataError, match=r"x\.tsv\.gz: corrupt gzip"):
        list(read(path, DE_EN))


def test_a_file_that_is_only_called_gz_is_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "x.tsv.gz"
    path.write_bytes(b"eins\tone\n")
    with pytest.raises(DataError, match="corrupt gzip"):
        list(read(path, DE_EN))


def test_several_corpora_follow_each_other_and_all_are_looked_for_first(tmp_path: Path) -> None:
    prefix = plain_pair(tmp_path)
    table = write(tmp_path / "x.tsv", "drei\tthree\n")
    assert texts(read_all([prefix, table], DE_EN)) == [("eins", "one"), ("zwei", "two"), ("drei", "three")]
    with pytest.raises(UsageError, match="no such file"):
        read_all([prefix, tmp_path / "missing.tsv"], DE_EN)


# Texts of any characters that UTF-8 can hold; a carriage return or line feed would be another line, NUL no text.
LINE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n\t\ufeff"), max_size=30)
PAIRS = st.lists(st.tuples(LINE, LINE), max_size=8)
fast = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@fast
@given(pairs=PAIRS, packed=st.sampled_from(["", ".gz"]))
def test_any_text_comes_back_from_a_plain_pair(tmp_path: Path, pairs: list[tuple[str, str]], packed: str) -> None:
    for side, code in enumerate(("de", "en")):
        (tmp_path / packed[1:]).mkdir(exist_ok=True)
        write(tmp_path / packed[1:] / f"any.{code}{packed}", "".join(pair[side] + "\n" for pair in pairs))
    assert texts(read(tmp_path / packed[1:] / "any", DE_EN)) == pairs


@fast
@given(pairs=PAIRS)
def test_any_text_comes_back_from_tsv(tmp_path: Path, pairs: list[tuple[str, str]]) -> None:
    path = write(tmp_path / "any.tsv", "".join(f"{source}\t{target}\n" for source, target in pairs))
    assert texts(read(path, DE_EN)) == pairs


@fast
@given(
    pairs=st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), max_size=8),
    ascii_only=st.booleans(),
)
def test_any_text_comes_back_from_jsonl(tmp_path: Path, pairs: list[tuple[str, str]], ascii_only: bool) -> None:
    rows = [json.dumps({"source": s, "target": t}, ensure_ascii=ascii_only) + "\n" for s, t in pairs]
    assert texts(read(write(tmp_path / "any.jsonl", "".join(rows)), DE_EN)) == pairs
