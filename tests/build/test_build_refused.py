"""What goes wrong in a build is one clear error, and costs nothing that was done."""

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from knnmt.build.build import build
from knnmt.datastore import Datastore
from knnmt.errors import DataError, KnnmtError, StoreError, UsageError
from knnmt.model.checkpoint import Model

from .examples import parallel_text
from .small import SETTINGS, files, leftovers, settings


@pytest.mark.parametrize("out", ["nowhere/store", "file", "file/store"])
def test_a_place_that_cannot_be_is_a_wrong_call(model: Model, corpus: Path, tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="cannot build"):
        build([corpus], model, tmp_path / out, "de-en", SETTINGS)
    assert leftovers(tmp_path) == {"file"}


def test_a_folder_that_cannot_be_written_is_one_clear_error(model: Model, corpus: Path) -> None:
    """Nobody can make a folder in /proc, not even root."""
    with pytest.raises(UsageError, match=r"cannot make the folder /proc/store\.building: .*; choose a place"):
        build([corpus], model, Path("/proc/store"), "de-en", SETTINGS)


@pytest.fixture
def file_limit() -> Iterator[Callable[[int | None], None]]:
    """Limit the size of files, which is how a disk that is full can be had without one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size: int | None) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft if size is None else size, hard))

    yield limit
    limit(None)


def test_a_full_disk_is_one_clear_error_and_the_work_goes_on_when_there_is_room(
    model: Model, corpus: Path, built: Path, tmp_path: Path, file_limit: Callable[[int | None], None]
) -> None:
    largest = max(map(len, files(built).values()))  # the keys, whose room is reserved before any is computed
    stops = {"read": (0, 200), "align": (1, 200), "represent": (6, largest - 1), "cluster": (9, 200)}
    for full, (done, room) in stops.items():

        def progress(stage: str, some: int, total: int | None, full: str = full, room: int = room) -> None:
            if stage == full or room > 200:
                file_limit(room)

        with pytest.raises((OSError, KnnmtError)) as failed:
            build([corpus], model, tmp_path / "store", "de-en", SETTINGS, progress=progress)
        file_limit(None)
        assert str(failed.value)
        assert len(list((tmp_path / "store.building").glob("*.done"))) == done, full
        with pytest.raises(StoreError, match="there is no datastore"):
            Datastore.open(tmp_path / "store")
    build([corpus], model, tmp_path / "store", "de-en", SETTINGS)
    assert files(tmp_path / "store") == files(built)
    assert leftovers(tmp_path) == {"store"}


def test_bad_lines_are_counted_and_the_others_kept(model: Model, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.tsv"
    good = parallel_text(corpus, 20).read_bytes().splitlines(keepends=True)
    bad = [b"no tab\n", b"\xff\tdog\n", b"a\tb\tc\td\n"]
    corpus.write_bytes(b"".join([bad[0], *good[:10], bad[1], *good[10:], bad[2], good[3], b" \tdog\n"]))
    report = build([corpus], model, tmp_path / "store", "de-en", SETTINGS)
    assert report.kept == 20
    assert report.dropped == {"unreadable": 3, "duplicate": 1, "empty": 1}
    store = Datastore.open(tmp_path / "store")
    assert store.manifest.dropped == report.dropped
    assert [segment.id for segment in store.segments()] == [str(number) for number in range(20)]
    assert store.segment(10).origin == f"{corpus}:13"


def test_without_cleaning_a_bad_line_stops_the_build(model: Model, tmp_path: Path) -> None:
    (tmp_path / "corpus.tsv").write_text("Hund\tdog\nno tab\n")
    with pytest.raises(DataError, match=r"corpus\.tsv:2: no tab"):
        build([tmp_path / "corpus.tsv"], model, tmp_path / "store", "de-en", settings(clean=None))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("content", [b"", b"no tab\n" * 5, b" \t \n"], ids=["empty", "bad", "blank"])
def test_a_corpus_of_nothing_makes_no_store(model: Model, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "corpus.tsv").write_bytes(content)
    with pytest.raises(DataError, match=r"there is nothing to store: (kept 0 of|the corpus has no segments)"):
        build([tmp_path / "corpus.tsv"], model, tmp_path / "store", "de-en", SETTINGS)
    assert leftovers(tmp_path) == set()  # nor anything to resume
