"""A journal gives back every record that was acknowledged, and nothing else; what is damaged is refused."""

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.datastore.journal import Journal
from knnmt.errors import StoreError

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
    with pytest.raises(StoreError, match="does not begin as a journal"):
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
