"""A backup holds a store as it was at one moment, whoever writes to it meanwhile; restoring verifies all of it."""

import io
import shutil
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from knnmt.errors import DataError, StoreError, UsageError
from knnmt.store import backup as module
from knnmt.store.backup import backup, restore
from knnmt.store.manifest import MANIFEST, TUNED, journal_name, publish, read_manifest
from knnmt.store.store import Store

from .examples import joined, of_one_part


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    """Two stores of one part each."""
    return of_one_part(tmp_path, 5, [6, 7])


@pytest.fixture
def store(parts: list[Path], tmp_path: Path) -> Store:
    """A store of two parts with a journal, from which one segment was removed."""
    made = joined(tmp_path / "store", parts)
    made.remove(["id 2"])
    return made


def texts(path: Path) -> list[tuple[str, str]]:
    return [(segment.source, segment.target) for segment in Store(path).segments()]


def test_what_is_restored_is_what_was_saved(store: Store, tmp_path: Path) -> None:
    (store.path / TUNED).write_text("{}")
    archive = tmp_path / "backup.tar"
    saved = backup(store.path, archive)
    assert saved.size == archive.stat().st_size
    done = restore(archive, tmp_path / "again")
    assert (done.files, done.segments) == (saved.files, len(store))
    assert texts(tmp_path / "again") == texts(store.path)
    assert (tmp_path / "again" / TUNED).read_text() == "{}"
    assert read_manifest(tmp_path / "again") == store.manifest
    assert {path.name for path in tmp_path.iterdir()} == {"one-0", "one-1", "store", "again", "backup.tar"}


def test_a_store_that_was_taught_nothing_has_no_journal(parts: list[Path], tmp_path: Path) -> None:
    backup(parts[0], tmp_path / "backup.tar")
    restore(tmp_path / "backup.tar", tmp_path / "again")
    assert texts(tmp_path / "again") == texts(parts[0])
    Store(tmp_path / "again").remove(["id 0"])


def test_half_a_record_at_the_end_is_left_out(store: Store, tmp_path: Path) -> None:
    journal = store.path / store.manifest.journal
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole[16:40])
    backup(store.path, tmp_path / "backup.tar")
    restore(tmp_path / "backup.tar", tmp_path / "again")
    assert (tmp_path / "again" / journal.name).read_bytes() == whole


def test_lessons_taught_during_a_backup_are_whole_or_not_there(store: Store, tmp_path: Path) -> None:
    """Whatever the moment, the copy is the store after some number of removals."""
    names = [segment.id or "" for segment in store.segments()]
    states = [texts(store.path)]
    stop = threading.Event()

    def teach() -> None:
        writer = Store(store.path)
        for name in names[:8]:
            writer.remove([name])
        stop.set()

    copy = store.path.parent / "copy"
    shutil.copytree(store.path, copy)
    for name in names[:8]:
        Store(copy).remove([name])
        states.append(texts(copy))
    thread = threading.Thread(target=teach)
    thread.start()
    count = 0
    while not stop.is_set() or count == 0:
        count += 1
        backup(store.path, tmp_path / f"{count}.tar")
    thread.join()
    seen = []
    for number in range(1, count + 1):
        restore(tmp_path / f"{number}.tar", tmp_path / f"again-{number}")
        seen.append(states.index(texts(tmp_path / f"again-{number}")))
    assert seen == sorted(seen)


def test_a_store_that_is_replaced_meanwhile_is_copied_again(
    store: Store, parts: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`compact` publishes other parts and removes the old ones while they are being copied."""
    add, done = module._add_sealed, list[int]()

    def replace_then_add(*given: object) -> None:
        if not done:
            done.append(1)
            sealed = [read_manifest(parts[1]).parts[0]]
            changed = store.manifest.model_copy(update={"parts": sealed, "journal": journal_name(sealed)})
            publish(store.path, changed, {})
        add(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_add_sealed", replace_then_add)
    backup(store.path, tmp_path / "backup.tar")
    restore(tmp_path / "backup.tar", tmp_path / "again")
    assert texts(tmp_path / "again") == texts(parts[1])


def test_nothing_is_overwritten(store: Store, tmp_path: Path) -> None:
    archive = tmp_path / "backup.tar"
    backup(store.path, archive)
    content = archive.read_bytes()
    with pytest.raises(UsageError, match="exists already"):
        backup(store.path, archive)
    for taken in (store.path, tmp_path / "one-0"):
        with pytest.raises(UsageError, match="exists already"):
            restore(archive, taken)
    (tmp_path / "again.restoring").mkdir()
    with pytest.raises(UsageError, match="remove it first"):
        restore(archive, tmp_path / "again")
    with pytest.raises(UsageError, match=r"cannot make the folder .*; choose a place"):
        restore(archive, tmp_path / "nowhere" / "again")
    assert archive.read_bytes() == content


def test_a_corrupt_store_is_not_saved(store: Store, tmp_path: Path) -> None:
    path = next((store.path / store.manifest.parts[0].name).glob("text.npy"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="checksum"):
        backup(store.path, tmp_path / "backup.tar")
    with pytest.raises(StoreError, match="no datastore"):
        backup(tmp_path / "nothing", tmp_path / "backup.tar")
    assert not list(tmp_path.glob("*.tar*")) + list(tmp_path.glob(".*"))


def changed(archive: Path, change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]) -> Path:
    """The archive with other members."""
    with tarfile.open(archive) as tar:
        members = [(member, tar.extractfile(member).read()) for member in tar]  # type: ignore[union-attr]
    change(members)
    made = archive.with_name("forged.tar")
    with tarfile.open(made, "w") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return made


def named(name: str, content: bytes = b"x", kind: bytes = tarfile.REGTYPE) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "/etc/passwd" if kind == tarfile.SYMTYPE else ""
    member.size = len(content) if kind == tarfile.REGTYPE else 0
    return member, content if kind == tarfile.REGTYPE else b""


@pytest.mark.parametrize(
    "strange",
    [
        named("../escaped"),
        named("/tmp/escaped"),
        named("part-0000000000000000/../../escaped"),
        named("notes.txt"),
        named(MANIFEST),
        named(TUNED, kind=tarfile.SYMTYPE),
        named(TUNED, kind=tarfile.DIRTYPE),
    ],
)
def test_only_the_files_of_the_manifest_are_extracted(
    store: Store, tmp_path: Path, strange: tuple[tarfile.TarInfo, bytes]
) -> None:
    backup(store.path, tmp_path / "backup.tar")
    forged = changed(tmp_path / "backup.tar", lambda members: members.append(strange))
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match=r"forged\.tar is corrupt"):
        restore(forged, tmp_path / "again")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_archive_that_was_changed_is_refused(store: Store, tmp_path: Path) -> None:
    backup(store.path, tmp_path / "backup.tar")
    whole = (tmp_path / "backup.tar").read_bytes()

    def flip(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        member, content = members[3]
        members[3] = member, content[:-1] + bytes([content[-1] ^ 1])

    def lose(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        del members[3]

    def no_manifest(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        del members[0]

    def bad_journal(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        member, content = members[-1]
        members[-1] = member, content[:20] + bytes([content[20] ^ 1]) + content[21:]

    def bad_last_record(members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        member, content = members[-1]
        members[-1] = member, content[:-1] + bytes([content[-1] ^ 1])

    for change in (flip, lose, no_manifest, bad_journal, bad_last_record):
        with pytest.raises(DataError, match=r"forged\.tar is"):
            restore(changed(tmp_path / "backup.tar", change), tmp_path / "again")
    for content in (b"", b"no tar file" * 100, whole[: len(whole) // 2]):
        (tmp_path / "forged.tar").write_bytes(content)
        with pytest.raises(DataError, match=r"forged\.tar is"):
            restore(tmp_path / "forged.tar", tmp_path / "again")
    with pytest.raises(UsageError, match="no archive"):
        restore(tmp_path / "nothing.tar", tmp_path / "again")
    assert not (tmp_path / "again").exists()
    assert not (tmp_path / "again.restoring").exists()
