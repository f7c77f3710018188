"""The entries that sentences see, gathered on a CPU by a compiled loop, where torch needs thirty operations.

A sentence looks into all parts of a store, which are as many arrays: the loop has their addresses.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.loops import compiled, element, last_begun, share_out
from knnmt.search.entries import PartLinks
from knnmt.search.matches import ALIKE, BITS, Matches

Ints = NDArray[np.integer[Any]]
Flags = NDArray[np.bool_]

WORTH = 1 << 12  # entries that are worth a thread
DIGIT = 10  # bits of numbers that are sorted at once
LAST = (1 << DIGIT) - 1
# columns of the table of parts: addresses, and the first numbers in the store
LINK_OFFSETS, LINK_ENTRIES, TARGET_OFFSETS, FIRST_TOKEN, FIRST_SEGMENT, FIRST_ENTRY = range(6)


def gather_entries(
    parts: Sequence[PartLinks], hidden: Tensor | None, sentence: Tensor, matches: Matches
) -> tuple[Tensor, Tensor]:
    """`search.entries.gather_entries` by a compiled loop."""
    batch = len(matches.segments)
    queries = torch.searchsorted(sentence, torch.arange(batch + 1)).numpy()
    table = np.array([(*(each.data_ptr() for each in part[:3]), *part[3:]) for part in parts])
    counts = np.empty(batch, np.int64)
    tokens, tokens_alike, segments, segments_alike = (each.numpy() for each in matches)
    count_entries(table, queries, tokens, segments, counts)
    rows = np.empty((batch, max(1, int(counts.max(initial=0)))), np.int64)
    alike = np.empty(rows.shape, np.int64)
    flags = np.empty(0, np.bool_) if hidden is None else hidden.numpy()
    chosen = tokens, tokens_alike, segments, segments_alike
    share_out(fill_rows, counts.copy(), WORTH, table, flags, queries, *chosen, rows, alike, counts)
    longest = max(1, int(counts.max(initial=0)))
    return torch.from_numpy(rows[:, :longest]), torch.from_numpy(alike[:, :longest])


@compiled
def count_entries(parts: Ints, queries: Ints, tokens: Ints, segments: Ints, counts: Ints) -> None:
    """Count the entries that each sentence sees, as often as it does. (B,)."""
    for sentence in range(len(segments)):
        total = 0
        for query in range(queries[sentence], queries[sentence + 1]):
            for token in tokens[query]:
                if token >= 0:
                    begin, end, _ = _run(parts, FIRST_TOKEN, LINK_OFFSETS, token)
                    total += end - begin
        for segment in segments[sentence]:
            if segment >= 0:
                begin, end, _ = _run(parts, FIRST_SEGMENT, TARGET_OFFSETS, segment)
                total += end - begin
        counts[sentence] = total


@compiled
def fill_rows(
    first: int, last: int, parts: Ints, hidden: Flags, queries: Ints, tokens: Ints, tokens_alike: Ints, segments: Ints,
    segments_alike: Ints, rows: Ints, alike: Ints, counts: Ints,
) -> None:  # fmt: skip
    """Fill in the entries of sentences first to last, and how similar their segments are, both (B, N), and how many
    entries they are."""
    spare, often = np.empty(rows.shape[1], np.int64), np.empty(1 << DIGIT, np.int32)
    for sentence in range(first, last):
        row, at = rows[sentence], 0
        for query in range(queries[sentence], queries[sentence + 1]):
            for place in range(tokens.shape[1]):
                if tokens[query, place] >= 0:
                    begin, end, part = _run(parts, FIRST_TOKEN, LINK_OFFSETS, tokens[query, place])
                    for link in range(begin, end):
                        entry = parts[part, FIRST_ENTRY] + element(32, parts[part, LINK_ENTRIES], link)
                        row[at] = entry << BITS | np.int64(tokens_alike[query, place])
                        at += 1
        for place in range(segments.shape[1]):
            if segments[sentence, place] >= 0:
                begin, end, part = _run(parts, FIRST_SEGMENT, TARGET_OFFSETS, segments[sentence, place])
                for entry in range(begin, end):
                    row[at] = (parts[part, FIRST_ENTRY] + entry) << BITS | np.int64(segments_alike[sentence, place])
                    at += 1
        found = _sorted(row[:at], spare[:at], often)
        kept, before = 0, np.int64(-1)
        for both in found:  # which `row` may be
            entry = both >> BITS
            if both != before and (len(hidden) == 0 or not hidden[entry]):
                row[kept], alike[sentence, kept] = entry, both & ALIKE
                kept += 1
            before = both
        row[kept:], alike[sentence, kept:] = -1, 0
        counts[sentence] = kept


@compiled
def _sorted(numbers: Ints, spare: Ints, often: Ints) -> Ints:
    """Numbers (n,) by what they are above BITS, ascending: digit by digit, into `spare` (n,) and back.

    often: (1 << DIGIT,) int32, to count in
    """
    most = np.int64(0)
    for number in numbers:
        most = max(most, number)
    shift = BITS
    while most >> shift:
        often[:] = 0
        for number in numbers:
            often[number >> shift & LAST] += 1
        behind = np.int32(0)
        for digit in range(len(often)):
            often[digit], behind = behind, behind + often[digit]
        for number in numbers:
            digit = number >> shift & LAST
            spare[often[digit]] = number
            often[digit] += 1
        numbers, spare = spare, numbers
        shift += DIGIT
    return numbers


@compiled
def _run(parts: Ints, first: int, offsets: int, number: int) -> Any:
    """Where the run of a token or segment begins and ends in its part, and the part. first, offsets: columns."""
    part = last_begun(parts[:, first], number)
    at = number - parts[part, first]
    return element(64, parts[part, offsets], at), element(64, parts[part, offsets], at + 1), part
