"""`match` on a CPU, compiled with numba: one loop, sentence by sentence.

All that a sentence needs stays in the processor's cache while it is worked on, and is used again by the next. A
sentence looks into all parts of a store, which are as many arrays: the loop has their addresses.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.loops import compiled, element, fetch, share_out
from knnmt.search.compiled_squares import squared
from knnmt.search.matches import ALIKE, Asked, Index, Limits, Matches

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]

WORTH = 1 << 13  # postings or candidates that are worth a thread
LEAST = 4  # log2 of the slots of a table, at least
BLOCK = 1 << LEAST  # slots that are skipped at once where none of them is good enough
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
    chosen_alike, best_alike = np.empty(chosen.shape, np.int32), np.empty(best.shape, np.int32)
    work = np.diff(np.append(0, walked.cumsum())[kinds]) + np.diff(queries) * limits.offered
    share_out(
        match_sentences, work, WORTH, parts, np.square(asked.step, dtype=np.float32), index.segments,
        np.empty(0, np.bool_) if index.hidden is None else index.hidden.numpy(), kinds, ranges, walked, total,
        asked.told.numpy(), queries, asked.kind.numpy(), states[0].size(1), limits.offered, np.float32(limits.alike),
        by_both, by_state, apart, best, best_alike, chosen, chosen_alike,
    )  # fmt: skip
    return Matches(*map(torch.from_numpy, (chosen, chosen_alike, best, best_alike)))


@compiled
def match_sentences(
    first: int, last: int, parts: Ints, units: Floats, segments: int, hidden: Flags, kinds: Ints, ranges: Ints,
    walked: Ints, total: Ints, told: Flags, queries: Ints, of: Ints, width: int, offered: int, alike: float,
    by_both: Ints, by_state: Ints, apart: int, best: Ints, best_alike: Ints, chosen: Ints, chosen_alike: Ints,
) -> None:  # fmt: skip
    """Fill in the best segments (B, best) of sentences first to last, and what each token chose (Q, M), both with their
    similarities.

    parts: (P, 9), by the columns above; units: (P,), what a squared distance counts; kinds, queries: (B + 1,), where
    the types and tokens of a sentence begin; ranges: (3, U, P), where the stored tokens of a type begin, where those
    end that are walked, and where all end; walked, total: (U,), how many these are; of: (Q,), the type of each token;
    width: numbers of a state; apart: the first column of those chosen by distance alone
    """
    wide = LEAST  # log2 of the slots of the largest table
    for sentence in range(first, last):
        wide = max(wide, _bits(segments, walked[kinds[sentence] : kinds[sentence + 1]].sum()))
    dense = segments <= FEW  # each segment has the slot of its number, and no table says whose one is
    slots, keys = np.empty(1 << wide, np.int32), np.empty(0 if dense else 1 << wide, np.int32)
    scores = np.empty(best.shape[1], np.int64)
    for sentence in range(first, last):
        begin, behind = kinds[sentence], kinds[sentence + 1]
        own, counts = ranges[:, begin:behind], total[begin:behind]
        bits = _bits(segments, walked[begin:behind].sum())
        table = keys[: 0 if dense else 1 << bits], slots[: 1 << bits], 32 - bits
        _count(table, parts, hidden, own)
        _list_best(table, best[sentence], scores)
        hits, bounds, in_part = _score_in_full(parts, own, told[begin:behind], counts > offered, best[sentence], scores)
        order = np.argsort(-(scores << 32 | (np.int64(TOP) - best[sentence] - 1)))  # of equals the lower number first
        highest = np.float32(max(1, scores[order[0]]))
        lists = np.empty((behind - begin, offered, 2), np.int64)  # the candidates of each type: number and part
        alikes, used = np.empty((behind - begin, offered), np.float32), np.zeros(behind - begin, np.int64)
        for place in order:
            if best[sentence, place] < 0:
                continue
            table[1][_slot(table, best[sentence, place])] = scores[place]
            part, alike_it = in_part[place], np.float32(scores[place]) / highest
            for hit in range(bounds[place], bounds[place + 1]):
                kind = hits[hit, 0]
                if used[kind] < offered:
                    lists[kind, used[kind], 0], lists[kind, used[kind], 1] = hits[hit, 1], part
                    alikes[kind, used[kind]] = alike_it
                    used[kind] += 1
                    fetch(parts[part, STATES] + hits[hit, 1] * width, width)
        _offer_all(table, parts, hidden, own, counts, highest, lists, alikes, used)
        best[sentence] = best[sentence][order]
        for place in range(len(order)):
            best_alike[sentence, place] = _level(np.float32(scores[order[place]]) / highest)
        for query in range(queries[sentence], queries[sentence + 1]):
            kind = of[query] - begin
            _choose(
                parts, units, query, width, lists[kind, : used[kind]], alikes[kind], alike, by_both[sentence],
                by_state[sentence], apart, chosen[query], chosen_alike[query],
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
def _count(table: Any, parts: Ints, hidden: Flags, ranges: Ints) -> None:
    """Add the postings that a sentence walks to a table of segments and their scores.

    A table: whose slot each is, as number + 1, or nothing where each segment has its own; the scores; and by how much
    the hash of a segment is shifted
    """
    keys, scores, _ = table
    keys[:], scores[:] = 0, 0
    for part in range(len(parts)):
        segments, shares, before = parts[part, SEGMENTS], parts[part, SHARES], parts[part, FIRST_SEGMENT]
        for kind in range(ranges.shape[1]):
            for at in range(ranges[0, kind, part], ranges[1, kind, part]):
                segment = before + element(32, segments, at)
                if len(hidden) == 0 or not hidden[segment]:
                    slot = _slot(table, segment)
                    if len(keys):
                        keys[slot] = segment + 1
                    scores[slot] += element(16, shares, at)


@compiled
def _list_best(table: Any, best: Ints, scores: Ints) -> None:
    """List the best segments of a table, in no certain order, with their scores; -1 and 0 for none.

    As many blocks of slots as there are to be best have a score that is at least as high as the least of their highest
    ones: what is lower is not among the best.
    """
    keys, found, _ = table
    highest = np.empty(len(found) // BLOCK, np.int32)
    for block in range(len(highest)):  # of 2^bits slots
        most = np.int32(0)
        for slot in range(block * BLOCK, (block + 1) * BLOCK):
            most = max(most, found[slot])
        highest[block] = most
    least = np.int32(1)
    if len(highest) > len(best):
        least = max(least, np.partition(highest, len(highest) - len(best))[len(highest) - len(best)])
    listed, count = np.empty(len(found), np.int64), 0
    for block in range(len(highest)):
        if highest[block] >= least:
            for slot in range(block * BLOCK, (block + 1) * BLOCK):
                number = np.int64(keys[slot]) if len(keys) else np.int64(slot + 1)
                listed[count] = np.int64(found[slot]) << 32 | (np.int64(TOP) - number)
                count += 1 if found[slot] >= least else 0
    listed = listed[:count]
    if count > len(best):
        listed = np.partition(listed, count - len(best))[count - len(best) :]
    for place in range(len(best)):
        there = place < len(listed)
        scores[place] = listed[place] >> 32 if there else 0
        best[place] = np.int64(TOP) - (listed[place] & 0xFFFFFFFF) - 1 if there else -1


@compiled
def _score_in_full(parts: Ints, ranges: Ints, told: Flags, frequent: Flags, best: Ints, scores: Ints) -> Any:
    """Walk the tokens of the best segments: add what was not walked to their scores, and list the tokens of frequent
    types: type and number in the part (hits, 2), where those of each segment begin (best + 1,), and the part of each
    segment (best,)."""
    in_part, spans = np.zeros(len(best), np.int64), np.zeros((len(best), 2), np.int64)
    longest = 0
    for place in range(len(best)):
        if best[place] >= 0:
            part = _part(parts, FIRST_SEGMENT, best[place])
            at, starts = best[place] - parts[part, FIRST_SEGMENT], parts[part, STARTS]
            in_part[place], spans[place, 0], spans[place, 1] = (
                part,
                element(64, starts, at),
                element(64, starts, at + 1),
            )
            longest += spans[place, 1] - spans[place, 0]
            fetch(parts[part, TOKENS] + 4 * spans[place, 0], 4 * (spans[place, 1] - spans[place, 0]))
    hits, bounds = np.empty((longest, 2), np.int32), np.zeros(len(best) + 1, np.int64)
    hit, kinds = 0, ranges.shape[1]
    for place in range(len(best)):
        part, kind = in_part[place], 0
        tokens, shares = parts[part, TOKENS], parts[part, SHARES]
        for at in range(spans[place, 0], spans[place, 1]):
            token = element(32, tokens, at)
            while kind < kinds and ranges[2, kind, part] <= token:
                kind += 1
            if kind == kinds:
                break
            if token >= ranges[0, kind, part]:
                if told[kind] and token >= ranges[1, kind, part]:
                    scores[place] += element(16, shares, token)
                hits[hit, 0], hits[hit, 1] = kind, token
                hit += 1 if frequent[kind] else 0
        bounds[place + 1] = hit
    return hits, bounds, in_part


@compiled
def _offer_all(
    table: Any, parts: Ints, hidden: Flags, ranges: Ints, total: Ints, highest: Any, lists: Ints, alikes: Floats,
    used: Ints,
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
                    score = table[1][_slot(table, segment)]
                    alikes[kind, used[kind]] = np.float32(score) / highest
                    used[kind] += 1


@compiled
def _choose(
    parts: Ints, units: Floats, query: int, width: int, tokens: Ints, alikes: Floats, alike: float, by_both: int,
    by_state: int, apart: int, chosen: Ints, chosen_alike: Ints,
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
        distances[place] = units[part] * squared(row, state, width)
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
        chosen_alike[place] = _level(alikes[taken])
    for place in range(len(state_only)):
        taken = -state_only[place] & 0xFFFFFFFF
        chosen[apart + place] = parts[tokens[taken, 1], FIRST_TOKEN] + tokens[taken, 0]
        chosen_alike[apart + place] = _level(alikes[taken])


@compiled
def _level(alike: Any) -> Any:
    """A similarity of up to 1 as a whole number."""
    return np.int32(np.rint(np.float32(ALIKE) * alike))


@compiled
def _part(parts: Ints, column: int, number: int) -> int:
    """The part that something with a number of the store is in."""
    part = len(parts) - 1
    while part > 0 and parts[part, column] > number:
        part -= 1
    return part


@compiled
def _slot(table: Any, segment: Any) -> Any:
    """Where a segment is in a table, or the empty slot where it belongs."""
    keys, _, shift = table
    if len(keys) == 0:
        return np.int64(segment)
    slot: Any = np.int64(np.uint32(np.uint32(segment) * np.uint32(SCATTERED)) >> np.uint32(shift))
    while (keys[slot] != segment + 1) & (keys[slot] != 0):  # one branch, which is seldom taken
        slot = slot + 1 if slot + 1 < len(keys) else 0
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
