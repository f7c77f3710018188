"""A step of the search with terms on a CPU, compiled with numba: what `Constraints.extend` does with tensors."""

import numpy as np

from knnmt.decode.kernels import Flags, Floats, Ints, finish, top
from knnmt.loops import compiled

MUST_NOT = -1  # instead of a node: no way leads there; below it, padding


@compiled
def extend_bound(
    first: int, last: int, logits: Floats, normaliser: Floats, banned: Ints, limits: Ints, end: int, never: float,
    step: int, length: float, tokens: Ints, parents: Ints, running: Floats, done: Flags, score: Floats,
    ended_at: Ints, ended_beam: Ints, ended_token: Ints, history: Ints, own: Ints, goto: Ints, change: Ints,
    below: Flags, complete: Flags, depth: Ints, need: Ints, longest: Ints, earliest: Ints, deadline: Ints, begin: Ints,
    starts: Flags, loose: Flags, banks: int, node: Ints, have: Ints,
) -> None:  # fmt: skip
    """Extend the beams of sentences by a token each, in place; those may end that have all they must.

    logits: (B, K, V), changed; what follows, up to `history`, as in `extend`; from `own` on, as in `Constraints`
    """
    beams, vocabulary, tied = running.shape[1], logits.shape[2], own.shape[1]
    most = beams * (tied + beams)
    value, bank = np.empty(most, np.float32), np.empty(most, np.int64)
    parent, token, place = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    best, found = np.empty(beams, np.float32), np.empty(beams, np.int64)
    new_have, turns = np.empty(have.shape[1:], np.int64), np.empty(most, np.int64)
    for sentence in range(first, last):
        wanted = begin[sentence, step] if step < begin.shape[1] else -1
        begun = True
        for later in range(step, begin.shape[1]):
            begun = begun and begin[sentence, later] < 0
        uncounted = wanted >= 0 or earliest[sentence] > step
        late = deadline[sentence] <= step
        count = 0
        for beam in range(beams):
            row, shift, at = logits[sentence, beam], running[sentence, beam] - normaliser[sentence, beam], 0
            if running[sentence, beam] <= never / 2:
                continue
            for each in banned:
                row[each] = -np.inf
            if begun and not done[sentence] and (have[sentence, beam] >= need[sentence]).all():
                finish(sentence, (row[end] + shift) / length, step, beam, end, score, ended_at, ended_beam, ended_token)
            row[end] = -np.inf
            if wanted >= 0:
                value[count], token[count], place[count] = row[wanted] + shift, wanted, loose[wanted]
                at = 1
            else:
                for number in range(tied):
                    there = goto[sentence, node[sentence, beam], number]
                    if there >= 0 or (uncounted and there == MUST_NOT):
                        each = own[sentence, number]
                        value[count + at], token[count + at] = row[each] + shift, each
                        place[count + at] = np.int64(loose[each]) if uncounted else there
                        at += 1
                for number in range(tied):
                    row[own[sentence, number]] = -np.inf
                if complete[sentence, node[sentence, beam]]:  # behind a whole term, a new word must begin
                    for each in range(vocabulary):
                        if not starts[each]:
                            row[each] = -np.inf
                top(logits[sentence, beam : beam + 1], np.full(1, shift, np.float32), best, found)
                for number in range(beams):
                    value[count + at], token[count + at] = best[number], found[number]
                    place[count + at] = loose[found[number]]
                    at += 1
            kept = count
            for number in range(count, count + at):
                bank[kept] = _bank(
                    have[sentence, beam], change[sentence, place[number]], below[sentence, place[number]],
                    need[sentence], longest[sentence], depth[sentence, place[number]],
                )  # fmt: skip
                if value[number] > never / 2 and not (late and bank[kept] == 0):
                    value[kept], token[kept], place[kept] = value[number], token[number], place[number]
                    parent[kept] = beam
                    kept += 1
            count = kept
        order = np.argsort(-value[:count], kind="mergesort")  # the earlier one on ties
        seen = np.zeros(banks, np.int64)
        for rank in range(count):  # the best of each bank, then the second best, …
            seen[bank[order[rank]]] += 1
            turns[rank] = seen[bank[order[rank]]] * banks - bank[order[rank]]
        stay = np.sort(np.argsort(turns[:count])[:beams])
        for rank in range(beams):
            if rank < len(stay):
                chosen = order[stay[rank]]
                running[sentence, rank], tokens[sentence, rank] = value[chosen], token[chosen]
                parents[sentence, rank] = parent[chosen]
                new_have[rank] = have[sentence, parent[chosen]] + change[sentence, place[chosen]]
                node[sentence, rank] = place[chosen]
            else:  # no way on
                running[sentence, rank], tokens[sentence, rank], parents[sentence, rank] = never, own[sentence, 0], 0
                new_have[rank], node[sentence, rank] = 0, 0
        have[sentence] = new_have
        enough = running[sentence, 0] / length <= score[sentence, beams - 1]
        done[sentence] = done[sentence] or limits[sentence] == step + 1 or enough
        history[0, sentence, step] = tokens[sentence]
        history[1, sentence, step] = parents[sentence]


@compiled
def _bank(have: Ints, change: Ints, below: Flags, need: Ints, longest: int, depth: int) -> int:
    """How many tokens of its terms a beam has: those of whole terms count as the longest."""
    whole, unmet = 0, False
    for group in range(len(need)):
        now = have[group] + change[group]
        whole += min(now, need[group])
        unmet = unmet or (below[group] and need[group] > now)
    return longest * whole + (depth if unmet else 0)
