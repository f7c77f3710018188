"""A manifest that was forged, with a checksum that fits, is refused before anything is opened or allocated."""

import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from knnmt.datastore import Datastore
from knnmt.errors import StoreError
from knnmt.store import arrays
from knnmt.store.manifest import MANIFEST, Manifest

from .forging import WIDTH, content_of, forge, part_of, reseal, touch, verify


@pytest.mark.parametrize(
    "manifest",
    [
        b"", b"\0", b"\xff\xfe", b"[]", b"3", b"null", b'"knnmt"', b"{}", b'{"knnmt": 3}', b'{"knnmt": []}', b"NaN",
        b'{"knnmt": {"format": 1}}', b'{"knnmt": {"format": "1"}}', b'{"knnmt": {"format": {}}}', b"[" * 100_000,
        b'{"knnmt":' * 100_000, b"9" * 100_000, b'{"knnmt": {"format": 1' + b"0" * 5000 + b"}}",
    ],
    ids=lambda manifest: manifest[:20].decode("ascii", "replace"),
)  # fmt: skip
def test_what_is_no_manifest_is_refused(copied: Path, manifest: bytes) -> None:
    (copied / MANIFEST).write_bytes(manifest)
    with pytest.raises(StoreError, match="corrupt"):
        Datastore.open(copied)


@pytest.mark.parametrize("number", [4, 5, 10**30])
def test_a_newer_format_is_said_to_be_newer(copied: Path, number: int) -> None:
    forge(copied, {"format": number, "what": "comes then"})
    with pytest.raises(StoreError, match=f"has format {number} and this knnmt reads up to 3: upgrade"):
        Datastore.open(copied)


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
def test_a_manifest_with_wrong_content_is_refused(copied: Path, change: dict[str, Any]) -> None:
    forge(copied, content_of(copied) | change)
    with pytest.raises(StoreError):
        Datastore.open(copied)


@pytest.mark.parametrize("field", Manifest.model_fields)
def test_a_manifest_that_lacks_a_field_is_refused(copied: Path, field: str) -> None:
    content = content_of(copied)
    del content[field]
    forge(copied, content)
    with pytest.raises(StoreError):
        Datastore.open(copied)


@pytest.mark.parametrize("name", ["../x.npy", "/etc/passwd", "x.pkl", "X.npy", "text", "text.npy/x", "", ".", "a\0b"])
def test_a_manifest_cannot_name_other_files(copied: Path, name: str) -> None:
    content = content_of(copied)
    content["parts"][0]["files"][name] = content["parts"][0]["files"]["text.npy"]
    forge(copied, content)
    with pytest.raises(StoreError, match="names a file that no store has"):
        Datastore.open(copied)


@pytest.mark.parametrize("name", ["..", "part-0/../../x", "/part-0123456789abcdef", "part-0123456789abcdef\n", ""])
def test_a_manifest_cannot_name_other_folders(copied: Path, name: str) -> None:
    content = content_of(copied)
    content["parts"][0]["name"] = name
    forge(copied, content)
    with pytest.raises(StoreError, match="corrupt"):
        Datastore.open(copied)


def test_a_part_that_is_named_twice_is_refused(copied: Path) -> None:
    content = content_of(copied)
    forge(copied, content | {"parts": content["parts"] * 2})
    with pytest.raises(StoreError, match="names a part twice"):
        Datastore.open(copied)


@pytest.mark.parametrize("journal", ["journal-0", "../journal-0123456789abcdef", "journal-0123456789abcdef\n", ""])
def test_a_manifest_cannot_name_another_journal(copied: Path, journal: str) -> None:
    forge(copied, content_of(copied) | {"journal": journal})
    with pytest.raises(StoreError, match="corrupt"):
        Datastore.open(copied)


def test_an_array_that_nobody_declared_is_checked_and_never_opened(copied: Path) -> None:
    """Those of a system that is installed elsewhere."""
    reseal(copied, lambda part: (part / "of_another_system.npy").write_bytes(pickle.dumps(3)))
    assert any(name.endswith("/of_another_system.npy") for name in verify(copied))
    path = part_of(copied) / "of_another_system.npy"
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(StoreError, match=r"of_another_system\.npy is corrupt: its checksum"):
        verify(copied)
    path.unlink()
    with pytest.raises(StoreError, match=r"of_another_system\.npy is missing"):
        Datastore.open(copied)


SIZES = (
    "bytes", "segments", "entries", "tokens", "links", "clusters", "ranked", "coarse", "prototypes",
    "members", "target_small", "target_numbers", "source_small", "width", "subspaces", "subwidth", "source_vocabulary",
    "target_vocabulary",
)  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("value", [None, -1, 10**6, 2**62, 2**63, 10**30, 10**400])
def test_wrong_sizes_are_refused_before_anything_is_allocated(copied: Path, size: str, value: int | None) -> None:
    content = content_of(copied)
    sizes = content["parts"][0]["sizes"]
    assert set(sizes) == set(SIZES)
    if value is None:
        del sizes[size]
    else:
        sizes[size] = value
    forge(copied, content)
    if size == "target_vocabulary" and value is not None and 0 < value < 2**40:
        touch(copied)  # no array is as large as that: numbers need only be below it
        return
    with pytest.raises(StoreError):
        touch(copied)  # what is imported at the first use takes memory too
    tracemalloc.start()
    try:
        with pytest.raises(StoreError):
            touch(copied)
        assert tracemalloc.get_traced_memory()[1] < 1 << 22
    finally:
        tracemalloc.stop()


def test_sizes_whose_product_fits_are_refused_too(copied: Path) -> None:
    """Minus 4 rows of minus so many numbers are as many bytes as without the signs."""
    entries = content_of(copied)["parts"][0]["sizes"]["entries"]

    def change(part: Path) -> None:
        path = part / "target_keys.npy"
        numbers = path.read_bytes()[len(arrays.header("float16", (entries, WIDTH))) :]
        path.write_bytes(arrays.header("float16", (-entries, -WIDTH)) + numbers)

    reseal(copied, change, entries=-entries, width=-WIDTH)
    with pytest.raises(StoreError):
        Datastore.open(copied).parts[0]["target_keys"]


def test_an_empty_array_of_endless_rows_is_refused(copied: Path) -> None:
    def change(part: Path) -> None:
        for name in ("coarse_source", "target_keys", "source_keys", "cluster_source", "cluster_target"):
            (part / f"{name}.npy").write_bytes(arrays.header("float16", (0, 2**62)))

    reseal(copied, change, width=2**62, coarse=0, entries=0, tokens=0, clusters=0)
    with pytest.raises(StoreError):
        Datastore.open(copied).parts[0]["coarse_source"]
