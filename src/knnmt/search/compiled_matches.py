"""`match` on a CPU, compiled with numba: one loop, sentence by sentence.

All that a sentence needs stays in the processor's cache while it is worked on, and is used again by the next. A
sentence looks into all parts of a store, which are as many arrays: the loop has their addresses.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.loops import compiled, element, fetch, share_out
from knnmt.search.matches import Asked, Index, Limits, Matches

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]

WORTH = 1 << 13  # postings or candidates that are worth a thread
LEAST = 4  # log2 of the slots of a table, at least
FEW = 1 << 16  # segments that have a slot each
SCATTERED = 2_654_435_769  # 2^32 by the golden ratio: neighbouring segments lie far apart in a table
TOP = 1 << 31  # above the number of any segment
AHEAD = 6  # rows that are on their way from memory while one is compared
# columns of the table of parts: addresses, numbers before it, its segments, the address of the states that it is asked
SEGMENTS, SHARES, STATES, STARTS, TOKENS, FIRST_TOKEN, FIRST_SEGMENT, COUNT, ASKED = range(9)


def match(index: Index, asked: Asked, limits: Limits) -> Matches:
    """Find the matches by a compiled loop."""
    batch, every = len(limits.by_both), torch.arange(len(limits.by_both) + 1)
    kinds, queries = (torch.searchsorted(owner, every).numpy() for owner in (asked.owner, asked.sentence))
    states = [each.contiguous() for each in asked.states]
    parts = np.array(
        [
            (*(each.data_ptr() for each in part[:5]), part.first_token, part.first_segment, len(part.starts) - 1,
             own.data_ptr())
            for part, own in zip(index.parts, states, strict=True)
        ]
    )  # fmt: skip
    ranges = torch.stack((asked.starts, asked.starts + asked.walked, asked.starts + asked.sizes)).numpy()
    walked = asked.walked.sum(dim=1).numpy()
    total = asked.sizes.sum(dim=1).numpy()
    by_both, by_state = limits.by_both.numpy(), limits.by_state.numpy()
    apart = int(by_both.max(initial=0))
    chosen = np.empty((len(asked.kind), apart + int(by_state.max(initial=0))), np.int64)
    best = np.empty((batch, limits.best), np.int64)
    work = np.diff(np.append(0, walked.cumsum())[kinds]) + np.diff(queries) * limits.offered
    share_out(
        match_sentences, work, WORTH, parts, np.square(asked.step, dtype=np.float32), index.segments,
        np.empty(0, np.bool_) if index.hidden is None else index.hidden.numpy(), kinds, ranges, walked, total,
        asked.told.numpy(), queries, asked.kind.numpy(), states[0].size(1), limits.offered, np.float32(limits.alike),
        by_both, by_state, apart, best, chosen,
    )  # fmt: skip
    return Matches(torch.from_numpy(chosen), torch.from_numpy(best))


@compiled
def match_sentences(
    first: int, last: int, parts: Ints, units: Floats, segments: int, hidden: Flags, kinds: Ints, ranges: Ints,
    walked: Ints, total: Ints, told: Flags, queries: Ints, of: Ints, width: int, offered: int, alike: float,
    by_both: Ints, by_state: Ints, apart: int, best: Ints, chosen: Ints,
) -> None:  # fmt: skip
    """Fill in the best segments (B, best) of sentences first to last, and what each token chose (Q, M).

    parts: (P, 9), by the columns above; units: (P,), what a squared distance counts; kinds, queries: (B + 1,), where
    the types and tokens of a sentence begin; ranges: (3, U, P), where the stored tokens of a type begin, where those
    end that are walked, and where all end; walked, total: (U,), how many these are; of: (Q,), the type of each token;
    width: numbers of a state; apart: the first column of those chosen by distance alone
    """
    wide = LEAST  # log2 of the slots of the largest table
    for sentence in range(first, last):
        wide = max(wide, _bits(segments, walked[kinds[sentence] : kinds[sentence + 1]].sum()))
    slots = np.empty((1 << wide, 2), np.int32)
    scores = np.empty(best.shape[1], np.int64)
    for sentence in range(first, last):
        begin, behind = kinds[sentence], kinds[sentence + 1]
        own, counts = ranges[:, begin:behind], total[begin:behind]
        bits = _bits(segments, walked[begin:behind].sum())
        table, shift = slots[: 1 << bits], 32 - bits
        factor = SCATTERED if segments > FEW else 1 << shift
        _count(table, factor, shift, parts, hidden, own)
        _list_best(table, best[sentence], scores)
        hits, bounds = _score_in_full(parts, own, told[begin:behind], counts > offered, best[sentence], scores)
        order = np.argsort(-(scores << 32 | (np.int64(TOP) - best[sentence] - 1)))  # of equals the lower number first
        highest = np.float32(max(1, scores[order[0]]))
        lists = np.empty((behind - begin, offered, 2), np.int64)  # the candidates of each type: number and part
        alikes, used = np.empty((behind - begin, offered), np.float32), np.zeros(behind - begin, np.int64)
        for place in order:
            if best[sentence, place] < 0:
                continue
            table[_slot(table, factor, shift, best[sentence, place]), 1] = scores[place]
            for hit in range(bounds[place], bounds[place + 1]):
                kind = hits[hit, 0]
                if used[kind] < offered:
                    lists[kind, used[kind], 0], lists[kind, used[kind], 1] = hits[hit, 1], hits[hit, 2]
                    alikes[kind, used[kind]] = np.float32(scores[place]) / highest
                    used[kind] += 1
        _offer_all(table, factor, shift, parts, hidden, own, counts, highest, lists, alikes, used)
        best[sentence] = best[sentence][order]
        for query in range(queries[sentence], queries[sentence + 1]):
            kind = of[query] - begin
            _choose(
                parts, units, query, width, lists[kind, : used[kind]], alikes[kind], alike, by_both[sentence],
                by_state[sentence], apart, chosen[query],
            )  # fmt: skip


@compiled
def _bits(segments: int, walked: int) -> int:
    """The log2 of the slots of a table: one for each segment if they are few, else half as many again as are walked."""
    wanted = segments if segments <= FEW else walked + walked // 2
    bits = LEAST
    while (1 << bits) < wanted + 1:
        bits += 1
    return bits


@compiled
def _count(table: Ints, factor: int, shift: int, parts: Ints, hidden: Flags, ranges: Ints) -> None:
    """Add the postings that a sentence walks to a table of segments and their scores."""
    table[:] = 0
    for part in range(len(parts)):
        segments, shares, before = parts[part, SEGMENTS], parts[part, SHARES], parts[part, FIRST_SEGMENT]
        for kind in range(ranges.shape[1]):
            for at in range(ranges[0, kind, part], ranges[1, kind, part]):
                segment = before + element(32, segments, at)
                if len(hidden) == 0 or not hidden[segment]:
                    # where each segment has a slot, not to look for it saves a fifth of all the time here
                    slot = segment if factor == 1 << shift else _slot(table, factor, shift, segment)
                    table[slot, 0] = segment + 1
                    table[slot, 1] += element(16, shares, at)


@compiled
def _list_best(table: Ints, best: Ints, scores: Ints) -> None:
    """List the best segments of a table, in no certain order, with their scores; -1 and 0 for none."""
    heap = np.zeros(len(best), np.int64)
    least = np.int64(1)
    for slot in range(len(table)):
        if table[slot, 1] >= least:
            _replace_least(heap, np.int64(table[slot, 1]) << 32 | (np.int64(TOP) - table[slot, 0]))
            least = max(np.int64(1), heap[0] >> 32)
    for place in range(len(heap)):
        scores[place] = heap[place] >> 32
        best[place] = np.int64(TOP) - (heap[place] & 0xFFFFFFFF) - 1 if heap[place] > 0 else -1


@compiled
def _score_in_full(parts: Ints, ranges: Ints, told: Flags, frequent: Flags, best: Ints, scores: Ints) -> Any:
    """Walk the tokens of the best segments: add what was not walked to their scores, and list the tokens of frequent
    types: type, number in the part, and part. (hits, 3), and where those of each segment begin, (best + 1,)."""
    longest = 0
    for place in range(len(best)):
        if best[place] >= 0:
            part = _part(parts, FIRST_SEGMENT, best[place])
            at = best[place] - parts[part, FIRST_SEGMENT]
            longest += element(64, parts[part, STARTS], at + 1) - element(64, parts[part, STARTS], at)
    hits, bounds = np.empty((longest, 3), np.int64), np.zeros(len(best) + 1, np.int64)
    hit, kinds = 0, ranges.shape[1]
    for place in range(len(best)):
        if best[place] >= 0:
            part = _part(parts, FIRST_SEGMENT, best[place])
            segment, kind = best[place] - parts[part, FIRST_SEGMENT], 0
            begins = parts[part, STARTS]
            for at in range(element(64, begins, segment), element(64, begins, segment + 1)):
                token = element(32, parts[part, TOKENS], at)
                while kind < kinds and ranges[2, kind, part] <= token:
                    kind += 1
                if kind == kinds:
                    break
                if token >= ranges[0, kind, part]:
                    if told[kind] and token >= ranges[1, kind, part]:
                        scores[place] += element(16, parts[part, SHARES], token)
                    if frequent[kind]:
                        hits[hit, 0], hits[hit, 1], hits[hit, 2] = kind, token, part
                        hit += 1
        bounds[place + 1] = hit
    return hits, bounds


@compiled
def _offer_all(
    table: Ints, factor: int, shift: int, parts: Ints, hidden: Flags, ranges: Ints, total: Ints, highest: Any,
    lists: Ints, alikes: Floats, used: Ints,
) -> None:  # fmt: skip
    """List all stored tokens of the types that are not frequent, with the similarity of their segments."""
    for kind in range(len(used)):
        if total[kind] > alikes.shape[1]:
            continue
        for part in range(len(parts)):
            for token in range(ranges[0, kind, part], ranges[2, kind, part]):
                segment = parts[part, FIRST_SEGMENT] + element(32, parts[part, SEGMENTS], token)
                if len(hidden) == 0 or not hidden[segment]:
                    lists[kind, used[kind], 0], lists[kind, used[kind], 1] = token, part
                    score = table[_slot(table, factor, shift, segment), 1]
                    alikes[kind, used[kind]] = np.float32(score) / highest
                    used[kind] += 1


@compiled
def _choose(
    parts: Ints, units: Floats, query: int, width: int, tokens: Ints, alikes: Floats, alike: float, by_both: int,
    by_state: int, apart: int, chosen: Ints,
) -> None:  # fmt: skip
    """Choose of the tokens offered (n, 2) by distance and segment, and from column `apart` on by distance."""
    chosen[:] = -1
    count = len(tokens)
    distances = np.empty(count, np.float32)
    typical = np.float32(0.0)
    for place in range(min(AHEAD, count)):
        fetch(parts[tokens[place, 1], STATES] + tokens[place, 0] * width, width)
    for place in range(count):
        if place + AHEAD < count:
            fetch(parts[tokens[place + AHEAD, 1], STATES] + tokens[place + AHEAD, 0] * width, width)
        part = tokens[place, 1]
        row, state = parts[part, STATES] + tokens[place, 0] * width, parts[part, ASKED] + 4 * query * width
        distances[place] = units[part] * _squared(row, state, width)
        typical += distances[place]
    scale = np.float32(1.0) / max(typical / np.float32(max(1, count)), np.float32(1e-6))
    both = np.full(min(by_both, count), np.iinfo(np.int64).min)
    state_only = np.full(min(by_state, count), np.iinfo(np.int64).min)
    for place in range(count):
        distance = distances[place]
        rank = distance * scale + alike * (np.float32(1.0) - alikes[place])
        if len(both):
            _replace_least(both, -(np.int64(np.float32(rank).view(np.int32)) << 32 | place))
        if len(state_only):
            _replace_least(state_only, -(np.int64(np.float32(distance).view(np.int32)) << 32 | place))
    for place in range(len(both)):
        taken = -both[place] & 0xFFFFFFFF
        chosen[place] = parts[tokens[taken, 1], FIRST_TOKEN] + tokens[taken, 0]
    for place in range(len(state_only)):
        taken = -state_only[place] & 0xFFFFFFFF
        chosen[apart + place] = parts[tokens[taken, 1], FIRST_TOKEN] + tokens[taken, 0]


@compiled
def _squared(row: int, state: int, width: int) -> Any:
    """The squared distance of a row in bytes to a state, both (width,), by their addresses."""
    total = np.float32(0.0)
    for at in range(width):
        apart = np.float32(element(8, row, at)) - element(0, state, at)
        total += apart * apart
    return total


@compiled
def _part(parts: Ints, column: int, number: int) -> int:
    """The part that something with a number of the store is in."""
    part = len(parts) - 1
    while part > 0 and parts[part, column] > number:
        part -= 1
    return part


@compiled
def _slot(table: Ints, factor: int, shift: int, segment: Any) -> Any:
    """Where a segment is in a table, or the empty slot where it belongs."""
    slot: Any = np.int64(np.uint32(np.uint32(segment) * np.uint32(factor)) >> np.uint32(shift))
    while (table[slot, 0] != segment + 1) & (table[slot, 0] != 0):  # one branch, which is seldom taken
        slot = slot + 1 if slot + 1 < len(table) else 0
    return slot


@compiled
def _replace_least(heap: Ints, item: Any) -> None:
    """Put an item into a heap whose first item is the least, in place of that, if it is greater."""
    if item <= heap[0]:
        return
    at, child = 0, 1
    while child < len(heap):
        if child + 1 < len(heap) and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= item:
            break
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    heap[at] = item
