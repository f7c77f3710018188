"""Arrays that were forged, with checksums that fit, are refused when they are opened or verified."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from knnmt.datastore import Datastore
from knnmt.errors import StoreError
from knnmt.store.schema import ARRAYS

from .forging import VOCABULARY, WIDTH, content_of, part_of, reseal, touch, verify


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
def test_offsets_that_lead_elsewhere_are_refused(copied: Path, name: str, alter: Callable[[Any], None]) -> None:
    reseal(copied, altered(name, alter))
    with pytest.raises(StoreError, match=rf"{name}\.npy is corrupt: its offsets do not rise from 0 to"):
        touch(copied)


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", [-1, -(2**31), 2**31 - 1, "below"])
def test_numbers_out_of_range_are_refused(copied: Path, name: str, value: int | str) -> None:
    sizes = content_of(copied)["parts"][0]["sizes"]
    wrong = sizes[ARRAYS[name].below] if value == "below" else value

    def alter(array: Any) -> None:
        array[len(array) // 2] = wrong

    reseal(copied, altered(name, alter))
    with pytest.raises(StoreError, match=rf"{name}\.npy is corrupt: it holds numbers outside 0 to"):
        touch(copied)


@pytest.mark.parametrize("alter", [lambda pair: np.negative(pair, out=pair), lambda pair: np.add(pair, 99, out=pair)])
def test_coarse_ranges_out_of_range_are_refused(copied: Path, alter: Callable[[Any], None]) -> None:
    def change(part: Path) -> None:
        offsets = np.zeros(VOCABULARY + 1, np.int64)
        offsets[-1] = 1
        pair = np.array([[1, 2]])
        alter(pair)
        for name, array in {
            "coarse_offsets": offsets, "coarse_ranges": pair, "coarse_source": np.zeros((1, WIDTH), np.float16),
        }.items():  # fmt: skip
            np.save(part / f"{name}.npy", array)

    reseal(copied, change, coarse=1)
    with pytest.raises(StoreError, match=r"coarse_ranges\.npy is corrupt"):
        touch(copied)


@pytest.mark.parametrize(
    "other", [lambda a: a.view(np.uint32), lambda a: a.astype(">i4"), lambda a: a.reshape(1, -1), lambda a: a[:-1]]
)
def test_a_header_that_says_something_else_is_refused(copied: Path, other: Callable[[Any], Any]) -> None:
    reseal(copied, lambda part: np.save(part / "target_ids.npy", other(np.load(part / "target_ids.npy"))))
    with pytest.raises(StoreError, match=r"target_ids\.npy is corrupt"):
        Datastore.open(copied).parts[0]["target_ids"]


def test_an_array_in_fortran_order_is_refused(copied: Path) -> None:
    reseal(copied, lambda part: np.save(part / "target_keys.npy", np.asfortranarray(np.load(part / "target_keys.npy"))))
    with pytest.raises(StoreError, match=r"target_keys\.npy is corrupt: its header"):
        Datastore.open(copied).parts[0]["target_keys"]


class Bomb:
    """What runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_no_code_in_an_array_is_run(copied: Path, tmp_path: Path) -> None:
    bombs = np.array([Bomb(tmp_path / "went off")] * 3, dtype=object)
    reseal(copied, lambda part: np.save(part / "target_ids.npy", bombs, allow_pickle=True))
    with pytest.raises(StoreError):
        touch(copied)
    reseal(copied, lambda part: (part / "target_ids.npy").write_bytes(pickle.dumps(Bomb(tmp_path / "went off"))))
    with pytest.raises(StoreError):
        touch(copied)
    assert not (tmp_path / "went off").exists()
    np.load(part_of(copied) / "target_ids.npy", allow_pickle=True)  # the reader that we must not use
    assert (tmp_path / "went off").exists()


def test_a_text_that_is_cut_inside_a_character_is_refused(copied: Path) -> None:
    def change(text: Any) -> None:
        text[0] = 0xE4

    reseal(copied, altered("text", change))
    with pytest.raises(StoreError, match="segment 0 is not valid UTF-8"):
        Datastore.open(copied).segment(0)


def test_arrays_that_contradict_each_other_are_found(copied: Path) -> None:
    def change(tokens: Any) -> None:
        tokens[0] = (tokens[0] + 1) % VOCABULARY

    reseal(copied, altered("ranking_tokens", change))
    with pytest.raises(StoreError, match="ranked tokens are not those of their entries"):
        verify(copied)


def test_clusters_that_contradict_the_types_are_found(copied: Path) -> None:
    def change(offsets: Any) -> None:
        last = int(np.flatnonzero(np.diff(offsets))[-1])
        offsets[last] += 1  # the first cluster of the last type, to the type before it

    reseal(copied, altered("cluster_offsets", change))
    with pytest.raises(StoreError, match="clusters and types do not agree"):
        verify(copied)


def test_an_array_that_the_manifest_leaves_out_is_said_to_be_left_out(copied: Path) -> None:
    reseal(copied, lambda part: (part / "target_keys.npy").unlink())
    with pytest.raises(StoreError, match="was built without target_keys"):
        Datastore.open(copied).parts[0]["target_keys"]
