"""A store may be left at any step of being published: whoever opens it finds what was there before, or what is new."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from knnmt import files, host
from knnmt.store import manifest as publishing
from knnmt.store.journal import Journal
from knnmt.store.lessons import Record
from knnmt.store.manifest import (
    DAMAGED,
    MANIFEST,
    Manifest,
    aligner_name,
    journal_name,
    publish,
    read_manifest,
    seal_file,
)  # fmt: skip
from knnmt.store.records import to_bytes
from knnmt.store.store import Store

from .examples import joined, of_one_part


class CutOff(BaseException):
    """The process ends here."""


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Four stores of one part each."""
    return of_one_part(tmp_path, 3, [4, 5, 6, 7])


Change = Callable[[], tuple[Manifest, dict[str, Path]]]


@pytest.fixture
def change(parts: list[Path], tmp_path: Path) -> tuple[Path, Change]:
    """A store of parts 0 and 1 with a journal, and what makes it one of parts 1, 2 and 3, a new aligner and journal."""
    store = joined(tmp_path / "store", parts[:2])
    store.remove(["id 2"])
    (store.path / f"{store.manifest.journal}{DAMAGED}").write_bytes(b"what a repair saved")

    def make() -> tuple[Manifest, dict[str, Path]]:
        made = {}
        sealed = [read_manifest(path).parts[0] for path in parts[1:]]
        for path, part in zip(parts[2:], sealed[1:], strict=True):
            made[part.name] = tmp_path / f"work-{part.name}"
            shutil.rmtree(made[part.name], ignore_errors=True)
            shutil.copytree(path / part.name, made[part.name])
        (tmp_path / "work-aligner").write_bytes(b"an aligner")
        aligner = seal_file(tmp_path / "work-aligner")
        made[aligner_name(aligner)] = tmp_path / "work-aligner"
        update = {"parts": sealed, "aligner": aligner, "journal": journal_name(sealed), "plan": "new"}
        changed = read_manifest(store.path).model_copy(update=update)
        journal = store.path / changed.journal
        journal.unlink(missing_ok=True)
        Journal(journal).append(to_bytes(Record((), (), (0,))))
        return changed, made

    return store.path, make


def steps_until(limit: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let this many writes happen, and then cut the process off; gives the names of those that happened."""
    done: list[str] = []

    def guarded(name: str, work: Callable[..., object]) -> Callable[..., object]:
        def step(*given: object) -> object:
            if len(done) == limit:
                raise CutOff
            done.append(name)
            return work(*given)

        return step

    for module, name in ((host, "replace"), (host, "discard"), (host, "sync"), (publishing, "write_whole")):
        monkeypatch.setattr(module, name, guarded(name, getattr(module, name)))
    return done


def content(path: Path) -> tuple[list[str], set[int]]:
    store = Store.open(path)
    assert list(store.verify())
    return [segment.target for segment in store.segments()], store.removed


@pytest.mark.parametrize("again", [True, False], ids=["made again", "as it was left"])
def test_a_store_is_whole_at_every_step(
    change: tuple[Path, Change], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Published again, with what is left of the work or with work that was done again, it is what it should be."""
    store, make = change
    sound = shutil.copytree(store, tmp_path / "before")
    before = content(store)
    seen = []
    for limit in range(1000):
        shutil.rmtree(store)
        shutil.copytree(sound, store)
        manifest, made = make()
        with monkeypatch.context() as patch:
            done = steps_until(limit, patch)
            finished = False
            with suppress(CutOff):
                publish(store, manifest, made)
                finished = True
        now = read_manifest(store).plan
        if now != "new":
            assert content(store) == before
        seen.append(now)
        if again:
            manifest, made = make()
        publish(store, manifest, made)
        after, removed = content(store)
        assert len(after) == 5 + 6 + 7 - 1
        assert removed == {0}
        assert {path.name for path in store.iterdir()} == {
            MANIFEST, "lock", manifest.journal, f"{read_manifest(sound).journal}{DAMAGED}",
            *(part.name for part in manifest.parts), *(name for name in made if name.startswith("aligner-")),
        }  # fmt: skip
        if finished:
            break
    assert {"replace", "discard", "sync", "write_whole"} == set(done)
    assert seen == sorted(seen)  # "" and then "new"
    assert set(seen) == {"", "new"}


def test_a_part_that_was_cut_off_in_the_store_is_replaced(change: tuple[Path, Change]) -> None:
    """On some systems a folder is moved file by file."""
    store, make = change
    manifest, made = make()
    name = manifest.parts[-1].name
    (store / name).mkdir()
    (store / name / "text.npy").write_bytes(b"half")
    publish(store, manifest, made)
    assert list(Store.open(store).verify())


def test_a_reader_has_what_it_opened_until_it_refreshes(change: tuple[Path, Change]) -> None:
    store, make = change
    reader = Store.open(store)
    before = list(reader.segments())
    publish(store, *make())
    assert list(reader.segments()) == before
    assert reader.refresh()
    assert len(list(reader.segments())) == 17


def test_a_store_that_is_replaced_while_it_is_opened_is_opened(
    change: tuple[Path, Change], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, make = change
    read = publishing.read_manifest
    times: list[int] = []

    def replaced_meanwhile(folder: Path) -> Manifest:
        found = read(folder)
        if not times:
            times.append(1)
            publish(store, *make())
        return found

    monkeypatch.setattr("knnmt.store.store.read_manifest", replaced_meanwhile)
    assert len(Store.open(store)) == 17


def test_a_file_is_there_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    files.write_whole(path, b"old")
    monkeypatch.setattr(host, "sync", lambda path: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full") as refused:
        files.write_whole(path, b"new")
    assert refused.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
