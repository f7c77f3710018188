"""Names on a command line: both sides of a pair are one corpus, what is named twice is read once, and it is said."""

import gzip
from pathlib import Path

import pytest

from knnmt.corpus import Languages, files_of, read_all
from knnmt.errors import DataError, UsageError

DE_EN = Languages.parse("de-en")
TMX = (
    '<tmx version="1.4"><body><tu><tuv xml:lang="de"><seg>drei</seg></tuv><tuv xml:lang="en"><seg>three</seg></tuv>'
    "</tu></body></tmx>"
)


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())
    return path


def pair(folder: Path, source: str = "train.de", target: str = "train.en") -> tuple[Path, Path]:
    return write(folder / source, "eins\nzwei\n"), write(folder / target, "one\ntwo\n")


def texts(*paths: Path) -> list[tuple[str, str]]:
    return [(segment.source, segment.target) for segment in read_all(paths, DE_EN)]


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize("order", [1, -1])
def test_both_files_of_a_pair_are_one_corpus(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, packed: str, order: int
) -> None:
    files = pair(tmp_path, f"train.de{packed}", f"train.en{packed}")
    pair(tmp_path)  # the files that are named are read, whatever else is there
    given = files[::order]
    assert texts(*given) == [("eins", "one"), ("zwei", "two")]
    assert caplog.messages == [f"{given[0]} and {given[1]}: read as one parallel corpus"]
    assert files_of(given, DE_EN) == list(files)


def test_a_pair_beside_other_corpora(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source, target = pair(tmp_path)
    memory = write(tmp_path / "m.tmx", TMX)
    other = pair(tmp_path, "other.de", "other.en")
    expected = [("eins", "one"), ("zwei", "two")]
    assert texts(source, memory, target, other[0]) == [*expected, ("drei", "three"), *expected]
    assert files_of([source, memory, target, other[0]], DE_EN) == [source, target, memory, *other]
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("name", ["train.de", "train", "m.tmx"])
def test_what_is_named_twice_is_read_once(tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str) -> None:
    pair(tmp_path)
    write(tmp_path / "m.tmx", TMX)
    again = {"train": tmp_path / "train.en"}.get(name, tmp_path / name)
    assert texts(tmp_path / name, again) == texts(tmp_path / name)
    assert caplog.messages == [f"{again}: same files as {tmp_path / name}, skipped"]
    assert files_of([tmp_path / name, again], DE_EN) == files_of(tmp_path / name, DE_EN)


@pytest.mark.parametrize(
    ("source", "target"),
    [("src.txt", "tgt.txt"), ("train.src", "train.trg"), ("x.de.txt", "x.en.txt"), ("a.de", "b.en"), ("de", "en")],
)
def test_two_files_of_other_names_are_a_pair_and_it_is_said_which_is_which(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, source: str, target: str
) -> None:
    files = pair(tmp_path, source, target)
    assert texts(*files) == [("eins", "one"), ("zwei", "two")]
    assert caplog.messages == [f"{files[0]} as de and {files[1]} as en: read as one parallel corpus"]
    if "de" in source:  # names tell more than their order
        assert texts(*files[::-1]) == [("eins", "one"), ("zwei", "two")]


def test_what_is_no_pair_is_refused(tmp_path: Path) -> None:
    source, target = pair(tmp_path, "a.txt", "b.txt")
    with pytest.raises(UsageError, match=r"a\.txt: the suffix '\.txt' is neither"):
        read_all([source], DE_EN)
    with pytest.raises(UsageError, match="ambiguous pairs"):
        read_all([source, target, write(tmp_path / "c.txt", "x\n")], DE_EN)
    german, french = pair(tmp_path, "a.de", "a.fr")
    with pytest.raises(UsageError, match=r"a\.fr: the suffix '\.fr' is neither"):
        read_all([german, french], DE_EN)
    with pytest.raises(UsageError, match=r"a\.de: no partner"):
        files_of([german, write(tmp_path / "b.de", "x\n")], DE_EN)
    with pytest.raises(DataError, match="are not parallel"):
        list(read_all([german, write(tmp_path / "c.en", "x\n")], DE_EN))
