"""A journal gives back every record that was acknowledged, and nothing else; what is damaged is refused."""

import contextlib
import errno
import itertools
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.errors import StoreError
from knnmt.store.journal import Cut, Journal, Repaired, repair

RECORDS = [b"one", b"", b"x" * 1000, b"last"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal of some records."""
    journal = Journal(tmp_path / "journal")
    for record in RECORDS:
        journal.append(record)
    return journal.path


def test_records_come_back_in_order_and_each_once(path: Path) -> None:
    reader = Journal(path)
    assert list(reader.read()) == RECORDS
    assert list(reader.read()) == []
    writer = Journal(path)
    assert len(list(writer.read())) == 4
    writer.append(b"new")
    assert list(reader.read()) == [b"new"]


def test_there_may_be_no_journal_yet(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert list(journal.read()) == []
    journal.append(b"first")
    assert list(Journal(journal.path).read()) == [b"first"]


def test_half_a_record_was_never_acknowledged(path: Path) -> None:
    """Whatever is cut off the end: whole records before it are read, and the next writer goes on from there."""
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        journal = Journal(path)
        found = list(journal.read())
        assert found == RECORDS[: len(found)]
        journal.append(b"after")
        assert list(Journal(path).read()) == [*found, b"after"]


def test_pages_that_never_reached_the_disk_are_half_a_record(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(100))
    assert list(Journal(path).read()) == RECORDS
    path.write_bytes(whole[: -len(RECORDS[-1])] + bytes(len(RECORDS[-1])))
    assert list(Journal(path).read()) == RECORDS[:-1]


@given(place=st.integers(0), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused_or_costs_the_last_record_alone(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
) -> None:
    path = tmp_path_factory.mktemp("flip") / "journal"
    journal = Journal(path)
    for record in RECORDS:
        journal.append(record)
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)
    found = None
    with contextlib.suppress(StoreError):
        found = list(Journal(path).read())
    assert found in (None, RECORDS[:-1])


def test_what_is_no_journal_is_refused(path: Path) -> None:
    path.write_bytes(b"something else altogether")
    with pytest.raises(StoreError, match="invalid file header"):
        list(Journal(path).read())


def test_a_write_that_fails_leaves_the_journal_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()
    journal = Journal(path)
    list(journal.read())

    def full(handle: int) -> None:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            journal.append(b"too much")
    assert path.read_bytes() == before
    journal.append(b"after")
    assert list(Journal(path).read()) == [*RECORDS, b"after"]


# -------------------------------------------------------------------------------------------------------- a full disk


class FullDisk:
    """Takes so many bytes more, and then none; `cuts` says whether a file can still be cut."""

    def __init__(self, patched: pytest.MonkeyPatch, room: int, cuts: bool = True) -> None:
        self.room, self.write, self.cut = room, os.write, os.ftruncate
        patched.setattr(os, "write", self.take)
        if not cuts:
            patched.setattr(os, "ftruncate", self.refuse)

    def take(self, file: int, content: bytes) -> int:
        taken = min(self.room, len(content))
        if not taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.room -= taken
        return self.write(file, content[:taken])

    def refuse(self, file: int, size: int) -> None:
        if os.fstat(file).st_size != size:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("cuts", [True, False])
@pytest.mark.parametrize("before", [0, 2])
def test_a_disk_that_is_full_at_any_byte_costs_nothing_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, cuts: bool
) -> None:
    refused = b"not taken" * 9
    for room in range(len(refused) + 48):
        path = tmp_path / f"journal {room}"
        journal = Journal(path)
        for record in RECORDS[:before]:
            journal.append(record)
        size = path.stat().st_size if before else 0
        with monkeypatch.context() as patched:
            FullDisk(patched, room, cuts)
            if room < len(refused) + 32 + (0 if before else 16):
                with pytest.raises(OSError, match="No space"):
                    journal.append(refused)
            else:  # all of it went in
                continue
        assert path.stat().st_size == size + (0 if cuts else room)
        other = Journal(path)
        assert list(other.read()) == RECORDS[:before]
        assert repair(path) == Repaired(before)
        for writer in (journal, other):
            assert list(writer.read()) in ([], [b"after"])
            writer.append(b"after")
        assert list(Journal(path).read()) == [*RECORDS[:before], b"after", b"after"]


# ------------------------------------------------------------------------------------------------------------- repair


def starts_of(path: Path) -> list[int]:
    """Where each record begins, and where the last one ends."""
    return [16, *(16 + end for end in itertools.accumulate(32 + len(record) for record in RECORDS))]


def test_a_tail_that_is_no_record_is_cut_and_saved(path: Path) -> None:
    """What a full disk left once: the rest of a buffer, written behind the last record."""
    sound = path.read_bytes()
    tail = bytes(range(7, 256)) * 3
    path.write_bytes(sound + tail)
    with pytest.raises(
        StoreError, match=rf"invalid record header at byte {len(sound)}; run `knnmt repair {path.parent}`"
    ):
        list(Journal(path).read())
    repaired = repair(path)
    assert repaired == Repaired(len(RECORDS), (Cut(len(sound), len(tail)),), path.with_name("journal.damaged"))
    assert path.read_bytes() == sound
    assert path.with_name("journal.damaged").read_bytes() == tail
    assert repair(path) == Repaired(len(RECORDS))
    path.write_bytes(sound + tail)
    assert repair(path).saved == path.with_name("journal.2.damaged")  # nothing that was saved is overwritten


def test_one_damaged_record_costs_no_other(path: Path) -> None:
    """Wherever a byte is wrong: in a content, in a length, in a digest, in the file's first bytes."""
    whole, starts = path.read_bytes(), starts_of(path)
    for place in (0, 15, *(start + more for start in starts[:-1] for more in (0, 3, 8, 20, 31)), starts[2] + 500):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF
        path.write_bytes(damaged)
        hit = max((number for number, start in enumerate(starts) if start <= place), default=None)
        repaired = repair(path)
        expected = [record for number, record in enumerate(RECORDS) if number != hit]
        assert list(Journal(path).read()) == expected, place
        assert repaired.records == len(expected)
        (cut,) = repaired.cuts
        assert cut.start == (0 if hit is None else starts[hit])
        assert cut.size == (16 if hit is None else starts[hit + 1] - starts[hit])
        assert repaired.saved is not None
        assert repaired.saved.read_bytes() == damaged[cut.start : cut.start + cut.size]


def test_who_had_read_the_journal_before_a_repair_sees_that_it_was_replaced(path: Path) -> None:
    reader = Journal(path)
    assert list(reader.read()) == RECORDS
    damaged = bytearray(path.read_bytes())
    damaged[16 + 40] ^= 1  # of what was read long ago
    path.write_bytes(damaged)
    before = reader.replaced
    repair(path)
    assert (before, reader.replaced) == (False, True)
    assert list(reader.read()) == []
