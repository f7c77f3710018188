"""The entries that sentences see, gathered by a compiled loop: those that torch gathers, in the same order."""

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from knnmt.search import compiled_entries, entries
from knnmt.search.entries import PartLinks
from knnmt.search.matches import ALIKE, BITS, Matches

from ..retrieval.examples import with_threads

SEGMENTS, TOKENS = 9, 60  # of a part


def part(made: np.random.Generator, number: int, size: int) -> PartLinks:
    """A part of so many entries, some of which several tokens link to, or none."""
    often = made.integers(0, 4, TOKENS)
    links = np.concatenate([np.sort(made.choice(size, many, replace=False)) for many in often]).astype(np.int32)
    cuts = np.sort(made.integers(0, size, SEGMENTS - 1))
    of_tokens, of_segments = np.concatenate(([0], often.cumsum())), np.concatenate(([0], cuts, [size]))
    arrays = torch.from_numpy(of_tokens), torch.from_numpy(links), torch.from_numpy(of_segments)
    return PartLinks(*arrays, number * TOKENS, number * SEGMENTS, number * size)


@pytest.mark.parametrize("size", [30, 1 << 10, 5_000])  # numbers of one digit and of two: `_sorted` ends here or there
@given(seed=st.integers(0, 2**32), batch=st.integers(1, 4), parts=st.integers(1, 3), hiding=st.booleans())
@settings(deadline=None, max_examples=40)
def test_entries_are_those_of_torch(size: int, seed: int, batch: int, parts: int, hiding: bool) -> None:
    made = np.random.default_rng(seed)
    links = [part(made, number, size) for number in range(parts)]
    alike = made.integers(0, ALIKE + 1, parts * SEGMENTS)  # of each segment: all its entries have the same
    of_entry = np.concatenate(
        [
            alike[own.first_segment : own.first_segment + SEGMENTS].repeat(np.diff(own.target_offsets.numpy()))
            for own in links
        ]
    )
    sentence = np.sort(made.integers(0, batch, 6))
    # the links of a token lead into one segment: those that are chosen here have one link
    single = [
        own.first_token + token
        for own in links
        for token in range(TOKENS)
        if own.link_offsets[token + 1] - own.link_offsets[token] == 1
    ]
    tokens = made.choice([-1, *single], (6, 5))
    tokens_alike = np.array([[alike_of(links, of_entry, token) for token in row] for row in tokens], np.int32)
    segments = np.array([made.choice(parts * SEGMENTS, 3, replace=False) for _ in range(batch)])
    segments[made.random(segments.shape) < 0.3] = -1
    columns = tokens, tokens_alike, segments, alike[segments].astype(np.int32)
    matches = Matches(*map(torch.from_numpy, columns))
    hidden = torch.from_numpy(made.random(parts * size) < 0.5) if hiding else None
    asked = links, hidden, torch.from_numpy(sentence), matches
    with with_threads(2), patch.object(compiled_entries, "WORTH", 1):
        found = compiled_entries.gather_entries(*asked)
    expected = entries.gather_entries(*asked)
    assert rows(*found) == rows(*expected)


def alike_of(links: list[PartLinks], of_entry: "np.ndarray[tuple[int], np.dtype[np.int64]]", token: int) -> int:
    """The similarity of the segment that a token's entry is in."""
    if token < 0:
        return 0
    own = links[token // TOKENS]
    return int(of_entry[own.first_entry + int(own.link_entries[int(own.link_offsets[token - own.first_token])])])


def rows(numbers: Tensor, alike: Tensor) -> list[list[tuple[int, int]]]:
    """The entries of each sentence, with their similarities."""
    each = zip(numbers.tolist(), alike.tolist(), strict=True)
    return [[pair for pair in zip(*row, strict=True) if pair[0] >= 0] for row in each]


def test_numbers_are_sorted_by_what_is_above_their_similarity() -> None:
    made = np.random.default_rng(1)
    for most in (1, 2, 1 << 10, 1 << 20, 1 << 31):
        numbers = made.integers(0, most, 500) << BITS
        expected, often = np.sort(numbers), np.empty(1 << compiled_entries.DIGIT, np.int32)
        found = compiled_entries._sorted(numbers, np.empty_like(numbers), often)
        np.testing.assert_array_equal(found, expected)
