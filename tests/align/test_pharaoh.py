"""Pharaoh files: what is written is read back, and what is wrong is refused with its line."""

from pathlib import Path

import pytest
from hypothesis import given, settings

from knnmt.align.bitext import Bitext, Links
from knnmt.align.pharaoh import read_pharaoh, write_pharaoh
from knnmt.errors import DataError, UsageError

from .examples import linked, segments_of


@given(linked())
@settings(max_examples=100, deadline=None)
def test_files_round_trip(tmp_path_factory: pytest.TempPathFactory, drawn: tuple[Bitext, Links]) -> None:
    bitext, links = drawn
    path = tmp_path_factory.mktemp("pharaoh") / "links"
    write_pharaoh(links, path)
    assert len(path.read_text().splitlines()) == len(bitext)
    back = read_pharaoh(path, bitext)
    assert segments_of(back) == segments_of(links)
    assert [array.dtype.name for array in (back.source, back.target, back.offsets)] == ["int32", "int32", "int64"]


def test_lines_of_other_tools(tmp_path: Path) -> None:
    """Unsorted and repeated links, CRLF, spaces, an empty line within, no newline at the end."""
    path = tmp_path / "links"
    path.write_bytes(b" 2-0 0-1\t0-0 0-1 \r\n\r\n0-0")
    bitext = Bitext.from_pairs(zip([[1] * 3, [1], [1]], [[1] * 2, [1], [1]], strict=True))
    assert segments_of(read_pharaoh(path, bitext)) == [[(0, 0), (2, 0), (0, 1)], [], [(0, 0)]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0-0\n0-0 1:0\n", r"links:2: invalid link '1:0'"),
        (b"0-0\n0-0-0\n", r":2: invalid link '0-0-0'"),
        (b"-1-0\n0-0\n", r":1: invalid link '-1-0'"),
        (b"0-\xff\n0-0\n", r":1: invalid link '0-\ufffd'"),
        (b"0-0\n9999999999-0\n", r":2: invalid link '9999999999-0'"),
        (b"0-0\n0-0 2-0\n", r":2: link 2-0 is out of range .* 2 source and 3 target"),
        (b"0-3\n\n", r":1: link 0-3 is out of range"),
        (b"0-0\n", r":2: unexpected end of file; the corpus has 2 segments"),
        (b"0-0\n0-0\n\n", r":3: more lines than the 2 segments"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "links"
    path.write_bytes(content)
    bitext = Bitext.from_pairs(zip([[1, 1], [1, 1]], [[1, 1, 1], [1, 1, 1]], strict=True))
    with pytest.raises(DataError, match=message):
        read_pharaoh(path, bitext)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_pharaoh(tmp_path / "none", Bitext.from_pairs(zip([], [], strict=True)))
