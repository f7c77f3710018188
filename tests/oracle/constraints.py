"""Beam search with terms, slow and plain: a hypothesis is a list of tokens, and what it has is read from them anew."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from knnmt.decode.constraints import Edges, Forms, Wishes


class Reading(NamedTuple):
    """What a list of tokens has of each term, and whether it is in the middle of one, or at the end of one."""

    have: list[int]
    begun: tuple[int, ...]  # the tokens of the term, or of several, that the list ends with
    joined: bool  # these begin where no space is needed
    whole: bool


def read(tokens: list[int], wishes: Wishes, edges: Edges) -> Reading | None:
    """Read tokens from the left, behind the given beginning; None where they are not allowed."""
    given = max(len(wishes.prefix), wishes.earliest)
    if tuple(tokens[: len(wishes.prefix)]) != wishes.prefix[: len(tokens)]:
        return None
    have = [0] * len(wishes.wanted)
    begun: tuple[int, ...] = ()
    free = bool(edges.loose[tokens[given - 1]]) if given and len(tokens) >= given else True
    counted: list[tuple[int, int]] = []  # where in `begun` a term ended, and which
    joined = True
    for token in tokens[given:]:
        whole = bool(counted) and counted[-1][0] == len(begun)
        if begun and _possible((*begun, token), wishes, joined):
            begun = (*begun, token)
        elif whole and not edges.starts[token]:
            return None
        else:
            joined, counted = free, []
            begun = (token,) if _possible((token,), wishes, joined) else ()
        if whole and begun[:-1] and not edges.starts[token]:
            have[counted.pop()[1]] -= 1  # the word went on
        free = bool(edges.loose[token])
        if begun and _is(begun, wishes.forbidden, joined):
            return None
        for number, (forms, _) in enumerate(wishes.wanted):
            if begun and _is(begun, forms, joined):
                if counted:
                    have[counted[-1][1]] -= 1  # a longer term takes its place
                have[number] += 1
                counted.append((len(begun), number))
    whole = bool(begun and counted) and counted[-1][0] == len(begun)
    return Reading(have, begun, joined, whole)


def _sequences(forms: Forms, joined: bool) -> set[tuple[int, ...]]:
    return set(forms.spaced | (forms.joined if joined else frozenset()))


def _is(begun: tuple[int, ...], forms: Forms, joined: bool) -> bool:
    return begun in _sequences(forms, joined)


def _possible(begun: tuple[int, ...], wishes: Wishes, joined: bool) -> bool:
    every = [forms for forms, _ in wishes.wanted] + [wishes.forbidden]
    return any(some[: len(begun)] == begun for forms in every for some in _sequences(forms, joined))


def bank(reading: Reading, wishes: Wishes) -> int:
    """The number of terms, times the longest one, and the tokens of one more."""
    met = sum(min(have, need) for have, (_, need) in zip(reading.have, wishes.wanted, strict=True))
    begins = any(
        have < need
        and any(
            reading.begun and len(some) > len(reading.begun) and some[: len(reading.begun)] == reading.begun
            for some in _sequences(forms, reading.joined)
        )
        for have, (forms, need) in zip(reading.have, wishes.wanted, strict=True)
    )
    every = [forms for forms, _ in wishes.wanted] + [wishes.forbidden]
    longest = max(len(some) for forms in every for some in forms.spaced | forms.joined)
    return longest * met + begins * len(reading.begun)


def search(
    log_p: Callable[[list[int]], NDArray[np.float64]],
    wishes: Wishes,
    edges: Edges,
    end: int,
    limit: int,
    beams: int,
    penalty: float = 1.0,
) -> tuple[list[int], float] | None:
    """The best translation with all terms and its score; None if there is none. log_p: of the next token (V,)."""
    running: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    for step in range(limit):
        candidates: list[tuple[float, int, list[int]]] = []
        for score, tokens in running:
            next_p = log_p(tokens)
            now = read(tokens, wishes, edges)
            assert now is not None
            if step >= len(wishes.prefix) and all(
                have >= need for have, (_, need) in zip(now.have, wishes.wanted, strict=True)
            ):
                ended = (score + next_p[end]) / (step + 1) ** penalty
                finished = sorted([*finished, (ended, [*tokens, end])], key=lambda one: -one[0])[:beams]
            special = {token for forms in [f for f, _ in wishes.wanted] + [wishes.forbidden]
                       for some in forms.spaced | forms.joined for token in some}  # fmt: skip
            plain = 0
            for token in np.argsort(-next_p, kind="stable").tolist():
                if (
                    token == end
                    or not np.isfinite(next_p[token])
                    or (plain == beams and token not in (special | set(wishes.prefix[step : step + 1])))
                ):
                    continue
                if (reading := read([*tokens, token], wishes, edges)) is None:
                    continue
                if step >= wishes.deadline and not bank(reading, wishes):
                    continue
                plain += token not in special
                candidates.append((score + next_p[token], bank(reading, wishes), [*tokens, token]))
        candidates.sort(key=lambda one: -one[0])
        turns: dict[int, int] = {}
        ranked = []
        for candidate in candidates:
            turns[candidate[1]] = turns.get(candidate[1], 0) + 1
            ranked.append((turns[candidate[1]], -candidate[1], candidate))
        ranked.sort(key=lambda one: one[:2])
        running = sorted(((score, tokens) for _, _, (score, _, tokens) in ranked[:beams]), key=lambda one: -one[0])
        if not running or (len(finished) == beams and running[0][0] / (step + 1) ** penalty <= finished[-1][0]):
            break
    return (finished[0][1], finished[0][0]) if finished else None
