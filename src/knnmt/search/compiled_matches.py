"""`match` on a CPU, compiled with numba: each sentence counts its segments in a small table of its own.

The tables have open addressing, and are at most two thirds full: (slots, 2), a segment + 1 and its score. Where a store
has few segments, each has a slot of its own. Several parts are taken one after the other, all sentences at a time.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.loops import compiled, share_out
from knnmt.search.matches import Asked, Index, Limits, Matches
from knnmt.search.nearest import Buffers

Ints = NDArray[np.integer[Any]]
Floats = NDArray[np.float32]
Bytes = NDArray[np.int8]

WORTH = 1 << 13  # postings or candidates that are worth a thread
LEAST = 1 << 4  # slots of a table
FEW = 1 << 16  # segments that have a slot each
MIXED = 2_654_435_769  # 2^32 by the golden ratio: neighbouring segments lie far apart in a table
TOP = 1 << 31  # above the number of any segment


def match(buffers: Buffers, index: Index, asked: Asked, limits: Limits) -> Matches:
    """Find the matches by compiled loops."""
    return _Matching(buffers, index, asked, limits).matches()


class _Matching:
    """A batch of sentences while their matches are found."""

    def __init__(self, buffers: Buffers, index: Index, asked: Asked, limits: Limits) -> None:
        self.index, self.asked, self.limits, self.batch = index, asked, limits, len(limits.by_both)
        every = torch.arange(self.batch + 1)
        self.kinds, self.queries = (torch.searchsorted(owner, every).numpy() for owner in (asked.owner, asked.sentence))
        walked = torch.zeros(self.batch, dtype=torch.int64).index_add_(0, asked.owner, asked.walked.sum(dim=1))
        self.walked = walked.numpy()
        few = index.segments <= FEW
        slots = torch.full_like(walked, index.segments) if few else 1.5 * walked
        shifts = 32 - slots.clamp_min(LEAST).log2().ceil().long()
        factor = 1 << int(shifts[0]) if few else MIXED
        offsets = torch.nn.functional.pad((1 << (32 - shifts)).cumsum(0), (1, 0))
        tables = buffers.lend(self, (int(offsets[-1]), 2)).view(torch.int32)
        self.tables = np.uint32(factor), offsets.numpy(), shifts.numpy(), tables.numpy()
        hidden = index.hidden
        self.hidden = np.empty(0, np.bool_) if hidden is None else hidden.numpy()
        lists = buffers.lend(self, (len(asked.kind), limits.offered, 3))
        self.lists = lists.numpy(), lists.view(torch.int32).numpy(), np.zeros(len(asked.kind), np.int64)

    def matches(self) -> Matches:
        """All of it."""
        asked, limits, last = self.asked, self.limits, len(self.index.parts) - 1
        best = np.empty((self.batch, limits.best), np.int64)
        scores = np.empty((self.batch, limits.best), np.int64)
        for number, part in enumerate(self.index.parts):
            arrays = part.segments.numpy(), part.shares.numpy(), self.hidden
            starts, _, ends = self._bounds(number)
            share_out(
                count, self.walked, WORTH, part.first_segment, number == 0, number == last, *arrays, self.kinds,
                starts, ends, *self.tables, best, scores,
            )  # fmt: skip
        told, per_sentence = asked.told.numpy(), np.full(self.batch, limits.best)
        for number, part in enumerate(self.index.parts):
            arrays = part.shares.numpy(), part.starts.numpy(), part.tokens.numpy()
            share_out(
                score_in_full, per_sentence, WORTH // 16, part.first_segment, number == last, *arrays, self.kinds,
                *self._bounds(number), told, *self.tables, best, scores,
            )  # fmt: skip
        total = asked.sizes.sum(dim=1).numpy()
        kind, work = asked.kind.numpy(), np.diff(self.queries) * limits.offered
        for number, (part, states, step) in enumerate(zip(self.index.parts, asked.states, asked.step, strict=True)):
            content = part.segments.numpy(), part.states.numpy(), part.starts.numpy(), part.tokens.numpy(), self.hidden
            share_out(
                offer, work, WORTH, part.first_segment, part.first_token, *content, states.numpy(), np.float32(step**2),
                self.kinds, *self._bounds(number)[:2], total, self.queries, kind, *self.tables, best,
                scores, *self.lists,
            )  # fmt: skip
        by_both, by_state = limits.by_both.numpy(), limits.by_state.numpy()
        most = int(by_both.max()), int(by_state.max())
        chosen = np.empty((len(kind), sum(most)), np.int64)
        sentence = asked.sentence.numpy()
        share_out(
            choose, np.maximum(self.lists[2], 1), WORTH, sentence, by_both, by_state, most[0], np.float32(limits.alike),
            *self.lists, chosen,
        )  # fmt: skip
        return Matches(torch.from_numpy(chosen), torch.from_numpy(best))

    def _bounds(self, part: int) -> tuple[Ints, Ints, Ints]:
        """Where the tokens of the U types begin in a part, where they end, and where those end that are walked."""
        starts, sizes, walked = (each[:, part] for each in (self.asked.starts, self.asked.sizes, self.asked.walked))
        return starts.contiguous().numpy(), (starts + sizes).numpy(), (starts + walked).numpy()


@compiled
def count(
    first: int, last: int, before: int, empty: bool, done: bool, segments: Ints, shares: Ints,
    hidden: NDArray[np.bool_], kinds: Ints, starts: Ints, ends: Ints, factor: int, offsets: Ints, shifts: Ints,
    tables: Ints, best: Ints, scores: Ints,
) -> None:  # fmt: skip
    """Add the postings of a part to the tables of sentences first to last, and when all parts are done list the best.

    before: segments of earlier parts; empty: whether nothing was added yet; kinds: (B + 1,), where each sentence's
    types begin; starts, ends: (U,), of each type's tokens that are walked
    """
    for sentence in range(first, last):
        table = tables[offsets[sentence] : offsets[sentence + 1]]
        if empty:
            table[:] = 0
        for kind in range(kinds[sentence], kinds[sentence + 1]):
            for at in range(starts[kind], ends[kind]):
                segment = before + segments[at]
                if len(hidden) == 0 or not hidden[segment]:
                    slot = _slot(table, factor, shifts[sentence], segment)
                    table[slot, 0] = segment + 1
                    table[slot, 1] += shares[at]
        if done:
            heap = np.zeros(best.shape[1], np.int64)
            least = np.int64(1)
            for slot in range(len(table)):
                if table[slot, 1] >= least:
                    _replace_least(heap, np.int64(table[slot, 1]) << 32 | (np.int64(TOP) - table[slot, 0]))
                    least = max(np.int64(1), heap[0] >> 32)
            _unpack(heap, best[sentence], scores[sentence])


@compiled
def score_in_full(
    first: int, last: int, before: int, done: bool, shares: Ints, begins: Ints, tokens: Ints, kinds: Ints,
    starts: Ints, stops: Ints, ends: Ints, told: NDArray[np.bool_], factor: int, offsets: Ints, shifts: Ints,
    tables: Ints, best: Ints, scores: Ints,
) -> None:  # fmt: skip
    """Add to the scores of the best segments what their tokens in a part add that were not walked; when all parts are
    done, order them again, and note the scores in the tables. begins, tokens: the tokens of each segment."""
    for sentence in range(first, last):
        for place in range(best.shape[1]):
            segment = best[sentence, place] - before
            if best[sentence, place] < 0 or segment < 0 or segment >= len(begins) - 1:
                continue
            kind, behind = kinds[sentence], kinds[sentence + 1]
            for at in range(begins[segment], begins[segment + 1]):
                token = tokens[at]
                while kind < behind and stops[kind] <= token:
                    kind += 1
                if kind == behind:
                    break
                if token >= ends[kind] and token >= starts[kind] and told[kind]:
                    scores[sentence, place] += shares[token]
        if done:
            table = tables[offsets[sentence] : offsets[sentence + 1]]
            heap = np.zeros(best.shape[1], np.int64)
            for place in range(best.shape[1]):
                if best[sentence, place] >= 0:
                    slot = _slot(table, factor, shifts[sentence], best[sentence, place])
                    table[slot, 1] = scores[sentence, place]
                    heap[place] = scores[sentence, place] << 32 | (np.int64(TOP) - best[sentence, place] - 1)
            _unpack(heap, best[sentence], scores[sentence])


@compiled
def offer(
    first: int, last: int, before: int, before_tokens: int, segments: Ints, rows: Bytes, begins: Ints, tokens: Ints,
    hidden: NDArray[np.bool_], states: Floats, unit: float, kinds: Ints, starts: Ints, stops: Ints, total: Ints,
    queries: Ints, of: Ints, factor: int, offsets: Ints, shifts: Ints, tables: Ints, best: Ints, scores: Ints,
    values: Floats, numbers: Ints, used: Ints,
) -> None:  # fmt: skip
    """List the candidates of a part for the tokens of sentences first to last: squared distance, segment similarity and
    number, (Q, offered, 3), `used` (Q,) of them.

    All tokens of its type if they are no more than that, else the first of them in the sentence's best segments.
    """
    most = values.shape[1]
    for sentence in range(first, last):
        table, begin, behind = tables[offsets[sentence] : offsets[sentence + 1]], kinds[sentence], kinds[sentence + 1]
        highest = np.float32(max(1, scores[sentence, 0]))
        # the hits of each type that is frequent, as a list: `following` of a hit is the next one's place, or -1
        heads, tails = np.full(behind - begin, -1, np.int64), np.full(behind - begin, -1, np.int64)
        longest = 0
        for place in range(best.shape[1]):
            segment = best[sentence, place] - before
            if best[sentence, place] >= 0 and 0 <= segment < len(begins) - 1:
                longest += begins[segment + 1] - begins[segment]
        found, similar, following = np.empty(longest, np.int64), np.empty(longest, np.float32), np.full(longest, -1)
        hit = 0
        for place in range(best.shape[1]):
            segment = best[sentence, place] - before
            if best[sentence, place] < 0 or segment < 0 or segment >= len(begins) - 1:
                continue
            kind = begin
            for at in range(begins[segment], begins[segment + 1]):
                token = tokens[at]
                while kind < behind and stops[kind] <= token:
                    kind += 1
                if kind == behind:
                    break
                if token >= starts[kind] and total[kind] > most:
                    found[hit], similar[hit] = token, np.float32(scores[sentence, place]) / highest
                    if heads[kind - begin] < 0:
                        heads[kind - begin] = hit
                    else:
                        following[tails[kind - begin]] = hit
                    tails[kind - begin] = hit
                    hit += 1
        for query in range(queries[sentence], queries[sentence + 1]):
            kind, place = of[query], used[query]
            state = states[query]
            if total[kind] <= most:
                for token in range(starts[kind], stops[kind]):
                    segment = before + segments[token]
                    if len(hidden) == 0 or not hidden[segment]:
                        values[query, place, 0] = unit * _squared(rows[token], state)
                        values[query, place, 1] = (
                            np.float32(table[_slot(table, factor, shifts[sentence], segment), 1]) / highest
                        )
                        numbers[query, place, 2] = before_tokens + token
                        place += 1
            else:
                at = heads[kind - begin]
                while at >= 0 and place < most:
                    values[query, place, 0] = unit * _squared(rows[found[at]], state)
                    values[query, place, 1] = similar[at]
                    numbers[query, place, 2] = before_tokens + found[at]
                    place += 1
                    at = following[at]
            used[query] = place


@compiled
def choose(
    first: int, last: int, sentences: Ints, by_both: Ints, by_state: Ints, apart: int, alike: float, values: Floats,
    numbers: Ints, used: Ints, chosen: Ints,
) -> None:  # fmt: skip
    """Choose the candidates of tokens first to last, by distance and segment, and from column `apart` by distance."""
    for query in range(first, last):
        chosen[query] = -1
        count = used[query]
        typical = np.float32(0.0)
        for place in range(count):
            typical += values[query, place, 0]
        scale = np.float32(1.0) / max(typical / np.float32(max(1, count)), np.float32(1e-6))
        both = np.full(min(by_both[sentences[query]], count), np.iinfo(np.int64).min)
        state = np.full(min(by_state[sentences[query]], count), np.iinfo(np.int64).min)
        for place in range(count):
            distance = values[query, place, 0]
            rank = distance * scale + alike * (np.float32(1.0) - values[query, place, 1])
            if len(both):
                _replace_least(both, -(np.int64(np.float32(rank).view(np.int32)) << 32 | place))
            if len(state):
                _replace_least(state, -(np.int64(np.float32(distance).view(np.int32)) << 32 | place))
        for place in range(len(both)):
            chosen[query, place] = numbers[query, -both[place] & 0xFFFFFFFF, 2]
        for place in range(len(state)):
            chosen[query, apart + place] = numbers[query, -state[place] & 0xFFFFFFFF, 2]


@compiled
def _squared(row: Bytes, state: Floats) -> Any:
    """The squared distance of a row in bytes (p,) to a state (p,)."""
    total = np.float32(0.0)
    for at in range(len(row)):
        apart = np.float32(row[at]) - state[at]
        total += apart * apart
    return total


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


@compiled
def _unpack(heap: Ints, segments: Ints, scores: Ints) -> None:
    """From packed scores and segments, 0 for none, to both, the best first; -1 and 0 for none."""
    heap[:] = np.sort(heap)[::-1]
    for place in range(len(heap)):
        scores[place] = heap[place] >> 32
        segments[place] = np.int64(TOP) - (heap[place] & 0xFFFFFFFF) - 1 if heap[place] > 0 else -1
