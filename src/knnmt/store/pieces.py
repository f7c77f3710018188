"""A segment that is too long for the model, in pieces that are translations of each other.

The source is cut as it is cut when it is translated, so that the states of the pieces are those that a translation of
this text will have. The target is cut into as many pieces, where the fewest links between the two texts cross the cuts.
"""

from itertools import accumulate, pairwise, repeat

import numpy as np
from numpy.typing import NDArray

from knnmt.align.bitext import Bitext
from knnmt.align.fastalign import Aligner
from knnmt.corpus.segment import Segment
from knnmt.corpus.split import CUTS, split
from knnmt.model.represent import StateModel

Pair = tuple[list[int], list[int]]  # ids of a source piece and of its target piece

WORSE = 3.0  # links that may cross a cut between sentences sooner than one between clauses, and so on
SHORTEST = 8  # tokens of a source piece: to cut shorter ones would help nobody


def target_room(model: StateModel) -> int:
    """The most tokens of a target text that the model takes."""
    return model.transformer.architecture.max_positions - len(model.special.prefix) - 1


def fits(model: StateModel, source: list[int], target: list[int]) -> bool:
    """Whether the model takes a segment of these tokens as a whole."""
    return len(source) <= model.max_source and len(target) <= target_room(model)


def in_pieces(segment: Segment, model: StateModel, aligner: Aligner) -> list[Pair] | None:
    """The pieces of a segment that does not fit, in order; None where its sides cannot be cut alike.

    The source is cut shorter than a translation cuts it only where the pieces of the target would be too long else.
    """
    limit = model.max_source
    while limit >= SHORTEST:
        texts = split(segment.source, lambda some: [len(ids) for ids in model.tokenizer.encode_source(some)], limit)
        sources = model.tokenizer.encode_source(texts)
        targets = _targets(segment.target, sources, model, aligner) if len(sources) > 1 else None
        if targets is not None and all(map(fits, repeat(model), sources, targets)) and all(targets):
            return list(zip(sources, targets, strict=True))
        limit //= 2
    return None


def _targets(text: str, sources: list[list[int]], model: StateModel, aligner: Aligner) -> list[list[int]] | None:
    """The ids of the pieces of a target text that belong to these pieces of the source."""
    atoms, levels = _atoms(text, letters=len(text) >= SHORTEST * len(sources))
    if len(atoms) < len(sources):
        return None
    ids = model.tokenizer.encode_target(atoms)
    tokens = np.array([0, *accumulate(map(len, ids))])  # before each atom
    joined = [token for piece in sources for token in piece]
    bitext = Bitext.from_pairs([(joined, [*(token for atom in ids for token in atom), model.special.end])])
    links = np.array(aligner.align(bitext).segment(0), np.int64).reshape(-1, 2)
    bounds = list(accumulate(map(len, sources)))[:-1]
    costs = np.stack([_crossing(links, bound, tokens) for bound in bounds]) + WORSE * np.array([0, *levels, 0])
    cuts = _cheapest(costs, tokens, target_room(model))
    if cuts is None:
        return None
    return model.tokenizer.encode_target(["".join(atoms[a:b]).strip() for a, b in pairwise([0, *cuts, len(atoms)])])


def _atoms(text: str, letters: bool) -> tuple[list[str], list[int]]:
    """A text in the smallest pieces that it may be cut into, and how bad the cut between each two is, from 0.

    Words with the space behind them; letters, if that is allowed, in a text that has no spaces.
    """
    ends: dict[int, int] = {}
    for level in reversed(range(len(CUTS))):
        ends |= {found.end(): level for found in CUTS[level].finditer(text)}
    if not ends and letters:
        ends = {place: 0 if text[place - 1] in "。！？…" else len(CUTS) for place in range(1, len(text))}
    places = sorted(ends)
    return [text[a:b] for a, b in pairwise([0, *places, len(text)])], [ends[place] for place in places]


def _crossing(links: NDArray[np.int64], bound: int, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    """How many links cross a cut at this source token and each of these target tokens. (A + 1,)."""
    before = links[:, 0] < bound
    left, right = (np.sort(links[side, 1]) for side in (before, ~before))
    behind = left.size - np.searchsorted(left, tokens)  # from the left of the source to the right of the target
    crossing: NDArray[np.float64] = (behind + np.searchsorted(right, tokens)).astype(np.float64)
    return crossing


def _cheapest(costs: NDArray[np.float64], tokens: NDArray[np.int64], room: int) -> list[int] | None:
    """The cuts before these atoms, one for each row of costs (C, A + 1), with the least sum: they rise, and between two
    there is something, and at most `room` tokens. None where there are no such cuts."""
    count = len(tokens) - 1
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    came: list[NDArray[np.int64]] = []
    for row in np.vstack((costs, np.zeros(count + 1))):
        total, origin = np.full(count + 1, np.inf), np.zeros(count + 1, np.int64)
        for at in range(1, count + 1):
            first = int(np.searchsorted(tokens, tokens[at] - room))
            if first < at:
                origin[at] = first + int(best[first:at].argmin())
                total[at] = best[origin[at]] + row[at]
        best = total
        came.append(origin)
    if not np.isfinite(best[count]):
        return None
    cuts = [count]
    for origin in reversed(came):
        cuts.append(int(origin[cuts[-1]]))
    return cuts[-2:0:-1]
