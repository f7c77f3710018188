"""A store that was damaged, or made to do harm, is refused with a reason: it never passes, crashes or runs code."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from knnmt.datastore import Datastore
from knnmt.errors import KnnmtError, StoreError
from knnmt.files import digest
from knnmt.retrieval.session import Retriever
from knnmt.store.manifest import INDEX, MANIFEST, read_manifest
from knnmt.systems.settings import RetrievalSettings

from .forging import aligner_in, content_of, forge, part_of, touch, verify


def test_a_sound_store_passes(sound: Path) -> None:
    touch(sound)
    every = {str(path.relative_to(sound)) for path in sound.rglob("*") if path.is_file()}
    assert set(verify(sound)) == every - {MANIFEST}


# ------------------------------------------------------------------------------------------------------- accidents


def damages(copied: Path, count: int) -> Iterator[tuple[Path, bytes, str]]:
    """Random damage to a file: a byte that is another, or an end that is missing."""
    rng = np.random.default_rng(7)
    files = sorted(path for path in copied.rglob("*") if path.is_file())
    assert len(files) > 20
    for number in range(count):
        path = files[number % len(files)]
        content = path.read_bytes()
        at = int(rng.integers(len(content)))
        if rng.random() < 0.25:
            yield path, content[:at], f"cut at {at}"
        else:
            other = content[at] ^ int(rng.integers(1, 256))
            yield path, content[:at] + bytes([other]) + content[at + 1 :], f"byte {at} is {other}"


def test_verification_finds_every_flipped_byte_and_every_cut(copied: Path) -> None:
    for path, content, what in damages(copied, 200):
        before = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(StoreError) as refused:
            verify(copied)
        assert path.name in str(refused.value) or "format" in str(refused.value), (path.name, what)
        with suppress(KnnmtError):  # and whoever did not verify meets wrong numbers or this, nothing else
            touch(copied)
        path.write_bytes(before)
    verify(copied)


def test_no_byte_of_the_manifest_can_change(copied: Path) -> None:
    path = copied / MANIFEST
    before = path.read_bytes()
    rng = np.random.default_rng(0)
    with path.open("r+b", buffering=0) as file:  # in its place: to write the whole file takes longer than to read it
        for at in range(len(before)):
            os.pwrite(file.fileno(), bytes([before[at] ^ int(rng.integers(1, 256))]), at)
            with pytest.raises(StoreError):
                read_manifest(copied)
            os.pwrite(file.fileno(), before[at : at + 1], at)
    assert path.read_bytes() == before
    read_manifest(copied)


@pytest.mark.parametrize("name", ["text.npy", "target_keys.npy", INDEX, "aligner"])
def test_a_missing_file_is_named_when_the_store_is_opened(copied: Path, name: str) -> None:
    path = part_of(copied) / name if name != "aligner" else aligner_in(copied)
    path.unlink()
    with pytest.raises(StoreError, match=rf"{path} is missing"):
        Datastore.open(copied)


def test_a_missing_part_is_noticed(copied: Path) -> None:
    shutil.rmtree(part_of(copied))
    with pytest.raises(StoreError, match="is missing"):
        Datastore.open(copied)


def test_a_file_that_does_not_belong_is_named(copied: Path) -> None:
    (part_of(copied) / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"do not belong to it: notes\.txt"):
        verify(copied)


def test_a_folder_in_the_place_of_a_file_is_refused(copied: Path) -> None:
    (copied / MANIFEST).unlink()
    (copied / MANIFEST).mkdir()
    with pytest.raises(StoreError):
        Datastore.open(copied)


@pytest.mark.parametrize("folder", ["nowhere", "file", "empty", "."])
def test_a_folder_that_is_no_store_is_said_to_be_none(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("text")
    Path("empty").mkdir()
    with pytest.raises(StoreError, match="no datastore"):
        Datastore.open(folder)


def test_a_build_that_was_begun_is_mentioned(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store.building").mkdir()
    with pytest.raises(StoreError, match="run the same command again to resume it"):
        Datastore.open(tmp_path / "store")


# ------------------------------------------------------------------------------------------- files that are no arrays


def test_an_index_is_read_only_after_its_checksum(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAISS trusts what it reads, so that a damaged file must never come to it."""
    read: list[str] = []

    def read_index(path: str) -> Any:
        read.append(path)
        return SimpleNamespace(ntotal=Datastore.open(copied).parts[0].sizes["entries"])

    monkeypatch.setitem(sys.modules, "faiss", SimpleNamespace(read_index=read_index))
    path, settings = part_of(copied) / INDEX, RetrievalSettings(system="knn", index=True)
    ids = torch.zeros((1, 1), dtype=torch.int64)

    def look() -> None:
        retriever = Retriever(Datastore.open(copied), torch.device("cpu"), settings)
        retriever.look(ids, ids == 0, torch.zeros(1, 1, retriever.store.sizes["width"]))

    look()
    assert read == [str(path)]

    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"index\.faiss is corrupt: its checksum"):
        look()
    with pytest.raises(StoreError, match=r"index\.faiss is corrupt: its checksum"):
        Datastore.open(copied).parts[0].file(INDEX)
    assert len(read) == 1


def test_an_aligner_is_read_only_after_its_checksum(copied: Path) -> None:
    path = aligner_in(copied)
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(StoreError, match=rf"{path} is corrupt: its checksum"):
        Datastore.open(copied).aligner()


def test_nothing_waits_for_a_file_that_is_none(copied: Path) -> None:
    """A pipe has no bytes, and whoever opens it waits for somebody to write."""
    content = content_of(copied)
    empty = {"size": 0, "checksum": digest(b"")}
    content["parts"][0]["files"][INDEX] = empty
    forge(copied, content)
    path = part_of(copied) / INDEX
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreError, match=r"index\.faiss"):
        verify(copied)
