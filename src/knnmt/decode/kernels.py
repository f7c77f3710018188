"""What a step of the search does with its logits on a CPU, compiled with numba: rank, extend the beams.

torch needs some forty operations on a few numbers each for that, and several passes over the vocabulary.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.loops import compiled, largest

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

BLOCK = 64  # entries of the vocabulary that are skipped at once where none of them is good enough
WORTH = 1 << 17  # entries of the vocabulary that are worth a thread


@compiled
def extend(
    first: int, last: int, logits: Floats, normaliser: Floats, banned: Ints, limits: Ints, end: int, forced_end: bool,
    early_stopping: bool, never: float, step: int, length: float, tokens: Ints, parents: Ints, running: Floats,
    done: Flags, score: Floats, ended_at: Ints, ended_beam: Ints, ended_token: Ints, history: Any,
) -> None:  # fmt: skip
    """Extend the beams of sentences by a token each, in place: what `Search.step` of `decode.beam` does with tensors.

    logits: (B, K, V); normaliser, tokens, parents, running: (B, K); limits, done: (B,); score and the three after it:
    (B, K), the finished hypotheses; history: (2, B, steps, K); length: that of the step, to the power of the penalty
    """
    beams = running.shape[1]
    best, place = np.empty(2 * beams, np.float32), np.empty(2 * beams, np.int64)
    beam_of, token_of = np.empty(2 * beams, np.int64), np.empty(2 * beams, np.int64)
    ends = np.empty(2 * beams, np.bool_)
    for sentence in range(first, last):
        closing = limits[sentence] == step + 1
        if closing and forced_end:  # each beam ends, at no cost
            for rank in range(2 * beams):
                best[rank] = running[sentence, rank] if rank < beams else -np.inf
                beam_of[rank], token_of[rank] = rank % beams, end
        else:
            for token in banned:
                logits[sentence, :, token] = -np.inf
            top(logits[sentence], running[sentence] - normaliser[sentence], best, place)
            for rank in range(2 * beams):
                beam_of[rank], token_of[rank] = place[rank] // logits.shape[2], place[rank] % logits.shape[2]
        for rank in range(2 * beams):
            ends[rank] = closing or token_of[rank] == end
            counted = ends[rank] and rank < beams and not done[sentence] and best[rank] > never / 2
            if counted:
                finish(
                    sentence, best[rank] / length, step, beam_of[rank], token_of[rank], score, ended_at, ended_beam,
                    ended_token,
                )  # fmt: skip
        chosen = 0
        for last_resort in (False, True):  # ended ones continue only where nothing else is left
            for rank in range(2 * beams):
                if chosen < beams and ends[rank] == last_resort:
                    running[sentence, chosen] = never if last_resort else best[rank]
                    tokens[sentence, chosen], parents[sentence, chosen] = token_of[rank], beam_of[rank]
                    chosen += 1
        worst = score[sentence, beams - 1]
        enough = worst > never / 2 if early_stopping else running[sentence, 0] / length <= worst
        done[sentence] = done[sentence] or closing or enough
        history[0, sentence, step] = tokens[sentence]
        history[1, sentence, step] = parents[sentence]


@compiled
def top(logits: Floats, shift: Floats, best: Floats, place: Ints) -> None:
    """Fill in the best of logits (K, V) + shift (K,), falling, and their places in K·V; the earlier one on ties."""
    count, vocabulary = len(best), logits.shape[1]
    best[:] = -np.inf
    place[:] = 0
    for beam in range(logits.shape[0]):
        row, added = logits[beam], shift[beam]
        for start in range(0, vocabulary, BLOCK):
            block = row[start : min(start + BLOCK, vocabulary)]
            if largest(block) + added <= best[count - 1]:
                continue
            for number in range(len(block)):
                value = block[number] + added
                if value > best[count - 1]:
                    at = count - 1
                    while at > 0 and best[at - 1] < value:
                        best[at], place[at] = best[at - 1], place[at - 1]
                        at -= 1
                    best[at], place[at] = value, beam * vocabulary + start + number


@compiled
def finish(
    sentence: int, value: float, step: int, beam: int, token: int, score: Floats, ended_at: Ints, ended_beam: Ints,
    ended_token: Ints,
) -> None:  # fmt: skip
    """Rank a finished hypothesis among the best of its sentence, behind those that are as good."""
    at = score.shape[1]
    while at > 0 and score[sentence, at - 1] < value:
        at -= 1
        if at + 1 < score.shape[1]:
            score[sentence, at + 1] = score[sentence, at]
            ended_at[sentence, at + 1] = ended_at[sentence, at]
            ended_beam[sentence, at + 1] = ended_beam[sentence, at]
            ended_token[sentence, at + 1] = ended_token[sentence, at]
    if at < score.shape[1]:
        score[sentence, at], ended_at[sentence, at] = value, step
        ended_beam[sentence, at], ended_token[sentence, at] = beam, token
