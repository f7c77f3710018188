"""A store that was damaged, or made to do harm, is refused with a reason: it never passes, crashes or runs code."""

import json
import os
import pickle
import shutil
import sys
import tracemalloc
from collections.abc import Callable, Iterator
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
from knnmt.store import arrays
from knnmt.store.manifest import INDEX, MANIFEST, Manifest, aligner_name, read_manifest, seal, seal_file
from knnmt.store.schema import ARRAYS
from knnmt.systems.settings import RetrievalSettings

from ..build.examples import written
from ..oracle import datastore as oracle
from ..oracle import prototypes, similar

VOCABULARY, WIDTH = 5, 4


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small store with every kind of file: arrays, codes of a product quantizer, an aligner, an index."""
    rng = np.random.default_rng(4)
    segments = oracle.random_segments(rng, count=12, types=VOCABULARY - 1, width=WIDTH)
    plain = oracle.build(segments, oracle.random_clusters(rng, segments), VOCABULARY, 7)
    assert len(plain["link_entries"]) > 20
    assert len(plain["cluster_source"]) > 5
    plain |= prototypes.gathered(plain, 2)
    projection = rng.normal(size=(WIDTH, 3)).astype(np.float32)
    plain |= similar.gathered(plain, {"source": projection, "target": projection})
    plain["cluster_members"] = np.arange(len(plain["source_keys"]), dtype=np.int32)  # the oracle has them by cluster
    plain["type_segments"] = np.zeros(VOCABULARY, np.int32)
    folder = tmp_path_factory.mktemp("sound") / "store"
    written(plain, folder, vocabulary=VOCABULARY, k_max=7, quantized=True)

    def complete(part: Path) -> None:
        for side in ("target", "source"):
            arrays.write(part / f"{side}_keys.npy", plain[f"{side}_keys"])
        segments, links = len(plain["target_offsets"]) - 1, len(plain["link_entries"])
        arrays.write(part / "given_offsets.npy", np.array([0] * segments + [links]))
        arrays.write(part / "given_links.npy", np.zeros((links, 2), np.int32))
        arrays.write(part / "cluster_members.npy", np.arange(len(plain["source_keys"]), dtype=np.int32))
        arrays.write(part / "type_segments.npy", np.zeros(VOCABULARY, np.int32))
        (part / INDEX).write_bytes(rng.bytes(300))

    reseal(folder, complete)
    (folder / "aligner").write_bytes(rng.bytes(300))
    aligner = seal_file(folder / "aligner")
    (folder / "aligner").rename(folder / aligner_name(aligner))
    forge(folder, content_of(folder) | {"aligner": aligner.model_dump(mode="json")})
    assert {name.removesuffix(".npy") for name in Datastore.open(folder).parts[0].files} == {*ARRAYS, INDEX}
    return folder


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return shutil.copytree(sound, tmp_path / "store")


def part_of(store: Path) -> Path:
    (part,) = store.glob("part-*")
    return part


def aligner_in(store: Path) -> Path:
    (aligner,) = store.glob("aligner-*")
    return aligner


def content_of(store: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((store / MANIFEST).read_bytes())["knnmt"]
    return content


def forge(store: Path, content: Any) -> None:
    """Write a manifest with a fitting checksum, whatever it says: who means harm can compute one too."""
    own = digest(json.dumps(content).encode())
    signed = json.dumps({"knnmt": content, "checksum": own}, indent=1).encode() + b"\n"
    (store / MANIFEST).write_bytes(signed)


def reseal(store: Path, change: Callable[[Path], object], **sizes: int) -> None:
    """Change the files of a part, and then make all checksums fit."""
    content, part = content_of(store), part_of(store)
    change(part)
    sealed = seal(part, content["parts"][0]["sizes"]).model_dump(mode="json")
    part.rename(store / sealed["name"])
    forge(store, content | {"parts": [sealed | {"sizes": sealed["sizes"] | sizes}]})


def verify(store: Path) -> list[str]:
    return list(Datastore.open(store).verify())


def touch(folder: Path) -> None:
    """Use a store without verifying it: open everything it has."""
    store = Datastore.open(folder)
    for name in ARRAYS:
        if name in store.parts[0]:
            np.asarray(store.parts[0][name]).sum()
    assert len(list(store.segments())) == len(store)
    store.where(np.arange(store.sizes["entries"]))
    store.parts[0].file(INDEX)


def test_a_sound_store_passes(sound: Path) -> None:
    touch(sound)
    every = {str(path.relative_to(sound)) for path in sound.rglob("*") if path.is_file()}
    assert set(verify(sound)) == every - {MANIFEST}


# ------------------------------------------------------------------------------------------------------- accidents


def damages(store: Path, count: int) -> Iterator[tuple[Path, bytes, str]]:
    """Random damage to a file: a byte that is another, or an end that is missing."""
    rng = np.random.default_rng(7)
    files = sorted(path for path in store.rglob("*") if path.is_file())
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


def test_verification_finds_every_flipped_byte_and_every_cut(store: Path) -> None:
    for path, content, what in damages(store, 200):
        before = path.read_bytes()
        path.write_bytes(content)
        with pytest.raises(StoreError) as refused:
            verify(store)
        assert path.name in str(refused.value) or "format" in str(refused.value), (path.name, what)
        with suppress(KnnmtError):  # and whoever did not verify meets wrong numbers or this, nothing else
            touch(store)
        path.write_bytes(before)
    verify(store)


def test_no_byte_of_the_manifest_can_change(store: Path) -> None:
    path = store / MANIFEST
    before = path.read_bytes()
    rng = np.random.default_rng(0)
    for at in range(len(before)):
        path.write_bytes(before[:at] + bytes([before[at] ^ int(rng.integers(1, 256))]) + before[at + 1 :])
        with pytest.raises(StoreError):
            read_manifest(store)
    path.write_bytes(before)
    read_manifest(store)


@pytest.mark.parametrize("name", ["text.npy", "target_keys.npy", INDEX, "aligner"])
def test_a_missing_file_is_named_when_the_store_is_opened(store: Path, name: str) -> None:
    path = part_of(store) / name if name != "aligner" else aligner_in(store)
    path.unlink()
    with pytest.raises(StoreError, match=rf"{path} is missing"):
        Datastore.open(store)


def test_a_missing_part_is_noticed(store: Path) -> None:
    shutil.rmtree(part_of(store))
    with pytest.raises(StoreError, match="is missing"):
        Datastore.open(store)


def test_a_file_that_does_not_belong_is_named(store: Path) -> None:
    (part_of(store) / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"do not belong to it: notes\.txt"):
        verify(store)


def test_a_folder_in_the_place_of_a_file_is_refused(store: Path) -> None:
    (store / MANIFEST).unlink()
    (store / MANIFEST).mkdir()
    with pytest.raises(StoreError):
        Datastore.open(store)


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
    with pytest.raises(StoreError, match="give the same command again to resume it"):
        Datastore.open(tmp_path / "store")


# -------------------------------------------------------------------------------------------------- forged manifests


@pytest.mark.parametrize(
    "manifest",
    [
        b"", b"\0", b"\xff\xfe", b"[]", b"3", b"null", b'"knnmt"', b"{}", b'{"knnmt": 3}', b'{"knnmt": []}', b"NaN",
        b'{"knnmt": {"format": 1}}', b'{"knnmt": {"format": "1"}}', b'{"knnmt": {"format": {}}}', b"[" * 100_000,
        b'{"knnmt":' * 100_000, b"9" * 100_000, b'{"knnmt": {"format": 1' + b"0" * 5000 + b"}}",
    ],
    ids=lambda manifest: manifest[:20].decode("ascii", "replace"),
)  # fmt: skip
def test_what_is_no_manifest_is_refused(store: Path, manifest: bytes) -> None:
    (store / MANIFEST).write_bytes(manifest)
    with pytest.raises(StoreError, match="corrupt"):
        Datastore.open(store)


@pytest.mark.parametrize("number", [3, 4, 10**30])
def test_a_newer_format_is_said_to_be_newer(store: Path, number: int) -> None:
    forge(store, {"format": number, "what": "comes then"})
    with pytest.raises(StoreError, match=f"has format {number} and this knnmt reads up to 2: upgrade"):
        Datastore.open(store)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "change",
    [
        {"format": 0}, {"format": -1}, {"format": True}, {"format": 1.0}, {"format": "1"}, {"parts": []}, {"parts": {}},
        {"more": 1}, {"metric": "manhattan"}, {"scale": "1"}, {"scale": float("nan")}, {"scale": float("inf")},
        {"settings": []}, {"settings": {"deep": nested(300)}}, {"settings": {"deep": nested(900)}},
        {"settings": {"\ud800": "\udfff"}}, {"model": "\ud800"}, {"kept": "many"}, {"dropped": {"x": 0.5}},
    ],
    ids=lambda change: str(change)[:30],
)  # fmt: skip
def test_a_manifest_with_wrong_content_is_refused(store: Path, change: dict[str, Any]) -> None:
    forge(store, content_of(store) | change)
    with pytest.raises(StoreError):
        Datastore.open(store)


@pytest.mark.parametrize("field", Manifest.model_fields)
def test_a_manifest_that_lacks_a_field_is_refused(store: Path, field: str) -> None:
    content = content_of(store)
    del content[field]
    forge(store, content)
    with pytest.raises(StoreError):
        Datastore.open(store)


@pytest.mark.parametrize("name", ["../x.npy", "/etc/passwd", "x.pkl", "X.npy", "text", "text.npy/x", "", ".", "a\0b"])
def test_a_manifest_cannot_name_other_files(store: Path, name: str) -> None:
    content = content_of(store)
    content["parts"][0]["files"][name] = content["parts"][0]["files"]["text.npy"]
    forge(store, content)
    with pytest.raises(StoreError, match="names a file that no store has"):
        Datastore.open(store)


@pytest.mark.parametrize("name", ["..", "part-0/../../x", "/part-0123456789abcdef", "part-0123456789abcdef\n", ""])
def test_a_manifest_cannot_name_other_folders(store: Path, name: str) -> None:
    content = content_of(store)
    content["parts"][0]["name"] = name
    forge(store, content)
    with pytest.raises(StoreError, match="corrupt"):
        Datastore.open(store)


def test_a_part_that_is_named_twice_is_refused(store: Path) -> None:
    content = content_of(store)
    forge(store, content | {"parts": content["parts"] * 2})
    with pytest.raises(StoreError, match="names a part twice"):
        Datastore.open(store)


@pytest.mark.parametrize("journal", ["journal-0", "../journal-0123456789abcdef", "journal-0123456789abcdef\n", ""])
def test_a_manifest_cannot_name_another_journal(store: Path, journal: str) -> None:
    forge(store, content_of(store) | {"journal": journal})
    with pytest.raises(StoreError, match="corrupt"):
        Datastore.open(store)


def test_an_array_that_nobody_declared_is_checked_and_never_opened(store: Path) -> None:
    """Those of a system that is installed elsewhere."""
    reseal(store, lambda part: (part / "of_another_system.npy").write_bytes(pickle.dumps(3)))
    assert any(name.endswith("/of_another_system.npy") for name in verify(store))
    path = part_of(store) / "of_another_system.npy"
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(StoreError, match=r"of_another_system\.npy is corrupt: its checksum"):
        verify(store)
    path.unlink()
    with pytest.raises(StoreError, match=r"of_another_system\.npy is missing"):
        Datastore.open(store)


SIZES = (
    "bytes", "segments", "entries", "tokens", "links", "clusters", "ranked", "coarse", "prototypes",
    "members", "target_small", "source_small", "width", "subspaces", "subwidth", "source_vocabulary",
    "target_vocabulary",
)  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("value", [None, -1, 10**6, 2**62, 2**63, 10**30, 10**400])
def test_wrong_sizes_are_refused_before_anything_is_allocated(store: Path, size: str, value: int | None) -> None:
    content = content_of(store)
    sizes = content["parts"][0]["sizes"]
    assert set(sizes) == set(SIZES)
    if value is None:
        del sizes[size]
    else:
        sizes[size] = value
    forge(store, content)
    if size == "target_vocabulary" and value is not None and 0 < value < 2**40:
        touch(store)  # no array is as large as that: numbers need only be below it
        return
    tracemalloc.start()
    try:
        with pytest.raises(StoreError):
            touch(store)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_sizes_whose_product_fits_are_refused_too(store: Path) -> None:
    """Minus 4 rows of minus so many numbers are as many bytes as without the signs."""
    entries = content_of(store)["parts"][0]["sizes"]["entries"]

    def change(part: Path) -> None:
        path = part / "target_keys.npy"
        numbers = path.read_bytes()[len(arrays.header("float16", (entries, WIDTH))) :]
        path.write_bytes(arrays.header("float16", (-entries, -WIDTH)) + numbers)

    reseal(store, change, entries=-entries, width=-WIDTH)
    with pytest.raises(StoreError):
        Datastore.open(store).parts[0]["target_keys"]


def test_an_empty_array_of_endless_rows_is_refused(store: Path) -> None:
    def change(part: Path) -> None:
        for name in ("coarse_source", "target_keys", "source_keys", "cluster_source", "cluster_target"):
            (part / f"{name}.npy").write_bytes(arrays.header("float16", (0, 2**62)))

    reseal(store, change, width=2**62, coarse=0, entries=0, tokens=0, clusters=0)
    with pytest.raises(StoreError):
        Datastore.open(store).parts[0]["coarse_source"]


# ---------------------------------------------------------------------------------------------------- forged arrays


def altered(name: str, alter: Callable[[Any], None]) -> Callable[[Path], None]:
    def change(part: Path) -> None:
        array = np.load(part / f"{name}.npy")
        alter(array)
        np.save(part / f"{name}.npy", array)

    return change


OFFSETS = [name for name, array in ARRAYS.items() if array.offsets_into is not None]
NUMBERS = [name for name, array in ARRAYS.items() if array.below is not None and name != "coarse_ranges"]


def fall(offsets: Any) -> None:
    offsets[1] = offsets[-1] + 1


def begin_late(offsets: Any) -> None:
    offsets[0] = 1


def begin_early(offsets: Any) -> None:
    offsets[0] = -1


def end_late(offsets: Any) -> None:
    offsets[-1] += 1


def wrap_around(offsets: Any) -> None:
    """From one end of the integers to the other, every difference is positive: it overflows."""
    offsets[1], offsets[2] = 2**63 - 1, -2


@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.parametrize("alter", [fall, begin_late, begin_early, end_late, wrap_around])
def test_offsets_that_lead_elsewhere_are_refused(store: Path, name: str, alter: Callable[[Any], None]) -> None:
    reseal(store, altered(name, alter))
    with pytest.raises(StoreError, match=rf"{name}\.npy is corrupt: its offsets do not rise from 0 to"):
        touch(store)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, -(2**31), 2**31 - 1, "below"])
def test_numbers_out_of_range_are_refused(store: Path, name: str, value: int | str) -> None:
    sizes = content_of(store)["parts"][0]["sizes"]
    wrong = sizes[ARRAYS[name].below] if value == "below" else value

    def alter(array: Any) -> None:
        array[len(array) // 2] = wrong

    reseal(store, altered(name, alter))
    with pytest.raises(StoreError, match=rf"{name}\.npy is corrupt: it holds numbers outside 0 to"):
        touch(store)


@pytest.mark.parametrize("alter", [lambda pair: np.negative(pair, out=pair), lambda pair: np.add(pair, 99, out=pair)])
def test_coarse_ranges_out_of_range_are_refused(store: Path, alter: Callable[[Any], None]) -> None:
    def change(part: Path) -> None:
        offsets = np.zeros(VOCABULARY + 1, np.int64)
        offsets[-1] = 1
        pair = np.array([[1, 2]])
        alter(pair)
        for name, array in {
            "coarse_offsets": offsets, "coarse_ranges": pair, "coarse_source": np.zeros((1, WIDTH), np.float16),
        }.items():  # fmt: skip
            np.save(part / f"{name}.npy", array)

    reseal(store, change, coarse=1)
    with pytest.raises(StoreError, match=r"coarse_ranges\.npy is corrupt"):
        touch(store)


@pytest.mark.parametrize(
    "other", [lambda a: a.view(np.uint32), lambda a: a.astype(">i4"), lambda a: a.reshape(1, -1), lambda a: a[:-1]]
)
def test_a_header_that_says_something_else_is_refused(store: Path, other: Callable[[Any], Any]) -> None:
    reseal(store, lambda part: np.save(part / "target_ids.npy", other(np.load(part / "target_ids.npy"))))
    with pytest.raises(StoreError, match=r"target_ids\.npy is corrupt"):
        Datastore.open(store).parts[0]["target_ids"]


def test_an_array_in_fortran_order_is_refused(store: Path) -> None:
    reseal(store, lambda part: np.save(part / "target_keys.npy", np.asfortranarray(np.load(part / "target_keys.npy"))))
    with pytest.raises(StoreError, match=r"target_keys\.npy is corrupt: its header"):
        Datastore.open(store).parts[0]["target_keys"]


class Bomb:
    """What runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_no_code_in_an_array_is_run(store: Path, tmp_path: Path) -> None:
    bombs = np.array([Bomb(tmp_path / "went off")] * 3, dtype=object)
    reseal(store, lambda part: np.save(part / "target_ids.npy", bombs, allow_pickle=True))
    with pytest.raises(StoreError):
        touch(store)
    reseal(store, lambda part: (part / "target_ids.npy").write_bytes(pickle.dumps(Bomb(tmp_path / "went off"))))
    with pytest.raises(StoreError):
        touch(store)
    assert not (tmp_path / "went off").exists()
    np.load(part_of(store) / "target_ids.npy", allow_pickle=True)  # the reader that we must not use
    assert (tmp_path / "went off").exists()


def test_a_text_that_is_cut_inside_a_character_is_refused(store: Path) -> None:
    def change(text: Any) -> None:
        text[0] = 0xE4

    reseal(store, altered("text", change))
    with pytest.raises(StoreError, match="segment 0 is not valid UTF-8"):
        Datastore.open(store).segment(0)


def test_arrays_that_contradict_each_other_are_found(store: Path) -> None:
    def change(tokens: Any) -> None:
        tokens[0] = (tokens[0] + 1) % VOCABULARY

    reseal(store, altered("ranking_tokens", change))
    with pytest.raises(StoreError, match="ranked tokens are not those of their entries"):
        verify(store)


def test_clusters_that_contradict_the_types_are_found(store: Path) -> None:
    def change(offsets: Any) -> None:
        last = int(np.flatnonzero(np.diff(offsets))[-1])
        offsets[last] += 1  # the first cluster of the last type, to the type before it

    reseal(store, altered("cluster_offsets", change))
    with pytest.raises(StoreError, match="clusters and types do not agree"):
        verify(store)


def test_an_array_that_the_manifest_leaves_out_is_said_to_be_left_out(store: Path) -> None:
    reseal(store, lambda part: (part / "target_keys.npy").unlink())
    with pytest.raises(StoreError, match="was built without target_keys"):
        Datastore.open(store).parts[0]["target_keys"]


# ------------------------------------------------------------------------------------------- files that are no arrays


def test_an_index_is_read_only_after_its_checksum(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAISS trusts what it reads, so that a damaged file must never come to it."""
    read: list[str] = []

    def read_index(path: str) -> Any:
        read.append(path)
        return SimpleNamespace(ntotal=Datastore.open(store).parts[0].sizes["entries"])

    monkeypatch.setitem(sys.modules, "faiss", SimpleNamespace(read_index=read_index))
    path, settings = part_of(store) / INDEX, RetrievalSettings(system="knn", index=True)
    ids = torch.zeros((1, 1), dtype=torch.int64)

    def look() -> None:
        retriever = Retriever(Datastore.open(store), torch.device("cpu"), settings)
        retriever.look(ids, ids == 0, torch.zeros(1, 1, retriever.store.sizes["width"]))

    look()
    assert read == [str(path)]

    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"index\.faiss is corrupt: its checksum"):
        look()
    with pytest.raises(StoreError, match=r"index\.faiss is corrupt: its checksum"):
        Datastore.open(store).parts[0].file(INDEX)
    assert len(read) == 1


def test_an_aligner_is_read_only_after_its_checksum(store: Path) -> None:
    path = aligner_in(store)
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(StoreError, match=rf"{path} is corrupt: its checksum"):
        Datastore.open(store).aligner()


def test_nothing_waits_for_a_file_that_is_none(store: Path) -> None:
    """A pipe has no bytes, and whoever opens it waits for somebody to write."""
    content = content_of(store)
    empty = {"size": 0, "checksum": digest(b"")}
    content["parts"][0]["files"][INDEX] = empty
    forge(store, content)
    path = part_of(store) / INDEX
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(StoreError, match=r"index\.faiss"):
        verify(store)
