"""A file in another encoding than UTF-8 is refused as a whole, with its probable encoding and the way out."""

import gzip
import io
from pathlib import Path

import pytest

from knnmt import terminal
from knnmt.corpus import Languages, files_of, read
from knnmt.errors import DataError

DE_EN = Languages.parse("de-en")
ROWS = [f"Grüße an alle Bären Nummer {number}\tGreetings to all bears, number {number}" for number in range(40)]


@pytest.mark.parametrize(
    ("encoding", "told"),
    [
        ("utf-16", "it is UTF-16, by its byte order mark; .*iconv -f UTF-16 "),
        ("utf-16-le", ":1: byte 2 of the line is NUL; the text is probably UTF-16LE, .*iconv -f UTF-16LE "),
        ("utf-16-be", ":1: byte 1 of the line is NUL; the text is probably UTF-16BE, "),
        ("utf-32", "it is UTF-32, by its byte order mark"),
        ("latin-1", ":1: byte 3 of the line is not UTF-8; the text is probably WINDOWS-1252, .*iconv -f WINDOWS-1252 "),
    ],
)
@pytest.mark.parametrize("name", ["x.tsv", "x.tsv.gz", "x.jsonl", "x.de"])
def test_other_encodings_are_refused_before_anything_is_read(
    tmp_path: Path, name: str, encoding: str, told: str
) -> None:
    data = "\n".join(ROWS).encode(encoding)
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    (tmp_path / "x.en").write_text("\n".join(ROWS), encoding="utf-8")
    for refuse in (files_of, read):
        with pytest.raises(DataError, match=told) as caught:
            refuse(path, DE_EN)
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)


def test_a_damaged_line_is_left_out_and_a_file_that_turns_out_to_be_another_encoding_is_refused(tmp_path: Path) -> None:
    path, faults = tmp_path / "x.tsv", list[str]()
    rows = [row.encode() for row in ROWS]
    path.write_bytes(b"\n".join([*rows, "schön\tnice".encode("latin-1")]))
    assert len(list(read(path, DE_EN, bad=lambda fault: faults.append(str(fault))))) == 40
    assert [fault.partition(": ")[0] for fault in faults] == [f"{path}:41"]
    late = [b"plain\tplain"] * 30_000 + ["schön\tnice".encode("latin-1")] * 5_000
    path.write_bytes(b"\n".join(late))
    with pytest.raises(DataError, match=r"x\.tsv:30001: .*WINDOWS-1252"):
        list(read(path, DE_EN, bad=lambda fault: None))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "latin-1"])
def test_text_to_translate_or_to_score_is_refused_too(encoding: str) -> None:
    source = io.BytesIO("\n".join(ROWS).encode(encoding))
    with pytest.raises(DataError, match=r"^standard input.*iconv -f "):
        list(terminal.lines_of(source, None))
