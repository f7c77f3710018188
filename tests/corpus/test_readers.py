"""The files behind a name: those that are read, and none where reading is refused."""

from pathlib import Path

import pytest

from knnmt.corpus import Languages, files_of, read
from knnmt.errors import UsageError

DE_EN = Languages.parse("de-en")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("x.tsv", "y.TMX.gz", "z.po", "train.de.gz", "train.en", "train.fr", "alone.de", "n.mo", "n.en"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x.tsv", ["x.tsv"]),
        ("y.TMX.gz", ["y.TMX.gz"]),
        ("z.po", ["z.po"]),
        ("train", ["train.de.gz", "train.en"]),
        ("train.de.gz", ["train.de.gz", "train.en"]),
        ("train.en", ["train.de.gz", "train.en"]),
    ],
)
def test_a_name_stands_for_one_file_or_for_both_of_a_pair_source_first(
    folder: Path, name: str, expected: list[str]
) -> None:
    assert files_of(folder / name, DE_EN) == [folder / file for file in expected]
    assert files_of(str(folder / name), Languages.parse("en-de"))[::-1] == [folder / file for file in expected]


def test_the_name_given_chooses_the_format_and_not_the_file_found(folder: Path) -> None:
    """`mo` is Moldavian too: `n` is a plain pair with it, `n.mo` is a compiled catalog."""
    moldavian = Languages.parse("mo-en")
    (folder / "n.mo").write_text("unu\n")
    (folder / "n.en").write_text("one\n")
    assert files_of(folder / "n", moldavian) == [folder / "n.mo", folder / "n.en"]
    assert [(s.source, s.target) for s in read(folder / "n", moldavian)] == [("unu", "one")]
    assert files_of(folder / "n.mo", moldavian) == [folder / "n.mo"]


@pytest.mark.parametrize("name", ["missing.tsv", "missing", "alone", "alone.de", "train.fr", "", "nowhere/x.po"])
def test_what_reading_refuses_has_no_files(folder: Path, name: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(folder / name, DE_EN)
    with pytest.raises(UsageError) as caught:
        files_of(folder / name, DE_EN)
    assert str(caught.value) == str(refused.value)
