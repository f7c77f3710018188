"""Symmetrising and covering links, against slow plain versions and by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.align.bitext import Bitext, Links
from knnmt.align.links import cover, symmetrise
from knnmt.errors import DataError

from ..oracle import align as oracle
from .examples import linked, links_of, segments_of


@st.composite
def directions(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]]]:
    """For each segment a source position (or -1) a target token, and the reverse."""
    forward, backward = [], []
    for _ in range(draw(st.integers(0, 3))):
        n, m = draw(st.integers(0, 7)), draw(st.integers(0, 7))
        forward.append(draw(st.lists(st.integers(-1, n - 1), min_size=m, max_size=m)))
        backward.append(draw(st.lists(st.integers(-1, m - 1), min_size=n, max_size=n)))
    return forward, backward


@given(directions())
@settings(max_examples=300, deadline=None)
def test_symmetrisation_is_the_oracles(both: tuple[list[list[int]], list[list[int]]]) -> None:
    forward, backward = both
    bitext = Bitext.from_pairs(zip([[0] * len(b) for b in backward], [[0] * len(f) for f in forward], strict=True))
    flat = [np.array([i for part in side for i in part], np.int32) for side in both]
    expected = [
        oracle.grow_diag_final_and(
            {(i, j) for j, i in enumerate(f) if i >= 0}, {(i, j) for i, j in enumerate(b) if j >= 0}
        )
        for f, b in zip(forward, backward, strict=True)
    ]
    assert segments_of(symmetrise(bitext, *flat)) == segments_of(links_of(expected))


def test_symmetrisation_by_hand() -> None:
    """(0,0) is common; (1,1) grows from it; (3,3) has free ends; (3,0) is far, its target taken."""
    bitext = Bitext.from_pairs(zip([[0] * 4], [[0] * 4], strict=True))
    forward = np.array([0, 1, -1, 3], np.int32)
    backward = np.array([0, -1, -1, 0], np.int32)
    assert symmetrise(bitext, forward, backward).segment(0) == [(0, 0), (1, 1), (3, 3)]


@given(linked(), st.sampled_from([100, 1 << 22]))
@settings(max_examples=300, deadline=None)
def test_covering_is_the_oracles(drawn: tuple[Bitext, Links], block: int) -> None:
    bitext, links = drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("knnmt.csr.BLOCK_SIZE", block)
        covered = cover(links, bitext)
    sizes = zip(bitext.source_lengths.tolist(), bitext.target_lengths.tolist(), strict=True)
    expected = [oracle.cover(set(links.segment(index)), n, m) for index, (n, m) in enumerate(sizes)]
    assert segments_of(covered) == segments_of(links_of(expected))
    assert [array.dtype.name for array in (covered.source, covered.target, covered.offsets)] == [
        "int32",
        "int32",
        "int64",
    ]


def test_an_unaligned_token_joins_its_nearest_neighbour_and_the_left_of_two() -> None:
    bitext = Bitext.from_pairs(zip([[1] * 4, [1] * 3, []], [[1] * 6, [1] * 6, [1]], strict=True))
    links = links_of([{(3, 1), (2, 1), (0, 3)}, set(), set()])
    first, second, third = segments_of(cover(links, bitext))
    assert first == [(2, 0), (3, 0), (2, 1), (3, 1), (2, 2), (3, 2), (0, 3), (0, 4), (0, 5)]
    assert second == [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (2, 5)]
    assert third == []


def test_covering_wants_links_of_the_same_segments() -> None:
    with pytest.raises(DataError, match="links for 1 segments, but the bitext has 2"):
        cover(links_of([set()]), Bitext.from_pairs(zip([[1], [2]], [[1], [2]], strict=True)))


def test_linked_counts_target_tokens_once() -> None:
    assert links_of([{(0, 0), (1, 0), (2, 3)}, set(), {(0, 3)}, {(0, 0)}]).linked == 4
    assert links_of([set(), set()]).linked == 0
