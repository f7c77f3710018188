"""A bitext holds what it was given, and refuses what is none."""

import numpy as np
import pytest

from knnmt.align.bitext import Bitext
from knnmt.csr import blocks
from knnmt.errors import DataError

from .examples import links_of


def test_segments_are_joined_and_measured() -> None:
    bitext = Bitext.from_pairs(zip([[5, 6], [], [7]], [[1], [2, 3], [4, 8, 9]], strict=True))
    assert len(bitext) == 3
    assert [array.tolist() for array in bitext.arrays] == [[5, 6, 7], [0, 2, 2, 3], [1, 2, 3, 4, 8, 9], [0, 1, 3, 6]]
    assert [array.dtype.name for array in bitext.arrays] == ["int32", "int64"] * 2
    assert bitext.source_lengths.tolist() == [2, 0, 1]
    assert bitext.target_lengths.tolist() == [1, 2, 3]
    assert bitext.cells.tolist() == [0, 2, 2, 5]


def test_links_are_read_segment_by_segment() -> None:
    links = links_of([{(1, 0), (0, 1)}, set(), {(2, 2)}])
    assert [links.segment(index) for index in range(len(links))] == [[(1, 0), (0, 1)], [], [(2, 2)]]


def test_blocks_are_full_but_never_cut_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knnmt.csr.BLOCK_SIZE", 10)
    assert list(blocks(np.array([0, 4, 10, 11, 40, 40, 45]))) == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert list(blocks(np.array([0]))) == []


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([-1], [0, 1], [1], [0, 1]), "source id -1 is negative"),
        (([1], [0, 2], [1], [0, 1]), "source offsets do not ascend from 0 to 1"),
        (([1], [0, 1], [1, 1], [0, 3, 2]), "target offsets do not ascend"),
        (([1], [1], [1], [0, 1]), "source offsets do not ascend"),
        (([1], [], [1], [0, 1]), "source offsets do not ascend"),
        (([1], [0, 1], [1], [0, 0, 1]), "1 source segments, but 2 target segments"),
    ],
)
def test_a_bitext_that_is_none_is_refused(arrays: tuple[list[int], ...], message: str) -> None:
    source_ids, source_offsets, target_ids, target_offsets = (np.array(array, np.int64) for array in arrays)
    with pytest.raises(DataError, match=message):
        Bitext(source_ids.astype(np.int32), source_offsets, target_ids.astype(np.int32), target_offsets)
