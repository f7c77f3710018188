"""Greedy and beam search over a batch of sentences.

Each sentence has its own limit, finished hypotheses and stopping rule, so the result does not depend on the rest of
the batch. Ties aside, scores are those of Hugging Face's `generate()`: the log-probability divided by length^penalty,
and a search that stops when no running beam can beat the worst of K finished ones (or, with `early_stopping`, as soon
as there are K).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.decode.cache import Cache
from knnmt.decode.repetition import EVERY, ends, runs_at_end
from knnmt.model.tokenizer import SpecialTokens
from knnmt.model.transformer import Encoded, States, Transformer
from knnmt.trace import NO_TRACE, Trace

NEVER = -1.0e9  # score of an impossible hypothesis; finite, so that sums stay comparable
LEAVE_AT = 0.2  # fraction of finished sentences at which they leave the batch, which copies the caches
BLOCK = 64  # vocabulary entries per block in `_top`


class Lookup(Protocol):
    """Changes the logits of each step, given the decoder states: all that decoding knows about retrieval."""

    def mix(self, states: States, logits: Tensor, normaliser: Tensor) -> Tensor:
        """Change logits (B, K, V) in place and return their new normaliser (B, K): log p = logit - normaliser."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Keep only these sentences. rows: (N,) int64, ascending."""
        ...


@dataclass(frozen=True)
class Hypothesis:
    """A translation: its tokens, with prefix and end, and its score."""

    tokens: tuple[int, ...]
    score: float


class _Finished(NamedTuple):
    """The K best finished hypotheses of each sentence, as the ends of their paths. All (B, K)."""

    score: Tensor
    step: Tensor
    beam: Tensor  # the beam before the last token
    token: Tensor

    def merged(self, other: "_Finished") -> "_Finished":
        """The best K of both; on ties, the earlier ones come first."""
        score, order = torch.cat((self.score, other.score), dim=1).topk(self.score.size(1), dim=1)
        rest = (torch.cat(pair, dim=1).gather(1, order) for pair in zip(self[1:], other[1:], strict=True))
        return _Finished(score, *rest)

    def keep(self, rows: Tensor) -> "_Finished":
        return _Finished(*(field[rows] for field in self))


@torch.inference_mode()
def search(
    model: Transformer,
    source: Encoded,
    special: SpecialTokens,
    limits: Sequence[int],
    *,
    beams: int = 5,
    length_penalty: float = 1.0,
    early_stopping: bool = False,
    n_best: int = 1,
    lookup: Lookup | None = None,
    longest_runs: Sequence[int] | None = None,
    between: Callable[[], None] | None = None,
    trace: Trace = NO_TRACE,
) -> list[list[Hypothesis]]:
    """Translate encoded sentences; limits[b] is the maximum length of sentence b in tokens, with the end.

    Returns up to n_best hypotheses per sentence, best first. `beams=1` with `early_stopping` is greedy search.
    longest_runs[b]: sentence b ends when its best beam repeats itself for this many tokens.
    `between` is called before each step, may block, and ends the search if it raises.
    """
    device, batch = source.states.device, source.states.size(0)
    results: list[list[Hypothesis]] = [[] for _ in range(batch)]
    cache = Cache(model, source, beams)
    here = np.arange(batch)  # the sentence of each row
    # at least the prefix and an end, at most the model's positions
    limit = np.clip(limits, len(special.prefix) + 1, model.architecture.max_positions)
    longest = int(limit.max())
    history = torch.zeros(2, batch, longest, beams, dtype=torch.int64, device=device)  # tokens and parents

    tokens = torch.full((batch, beams), special.start, device=device)
    running = torch.full((batch, beams), NEVER, device=device)
    running[:, 0] = 0.0
    nothing = torch.zeros((batch, beams), dtype=torch.int64, device=device)
    finished = _Finished(torch.full((batch, beams), NEVER, device=device), nothing, nothing, nothing)
    done = torch.zeros(batch, dtype=torch.bool, device=device)
    same = torch.arange(beams, device=device).expand(batch, beams)

    for step in range(longest):
        if between is not None:
            between()
        trace.step(len(here))
        states = model.step(tokens, step, source, cache)
        if step < len(special.prefix):
            tokens = torch.full_like(tokens, special.prefix[step])
            parents = same[: len(here)]
        else:
            logits = model.logits(states.output)
            normaliser = logits[:, :, 0] - logits.log_softmax(dim=-1)[:, :, 0]  # twice as fast as logsumexp
            if lookup is not None:
                with trace.stage("combine"):
                    normaliser = lookup.mix(states, logits, normaliser)
            logits[:, :, list(special.banned)] = -torch.inf
            closing = torch.from_numpy(limit == step + 1).to(device) if step + 1 >= limit.min() else None
            if closing is not None and special.forced_end:
                logits[closing] = -torch.inf
                logits[closing, :, special.end] = normaliser[closing]

            scores, candidates = _top(logits, running - normaliser, 2 * beams)
            vocabulary = logits.size(2)
            parents, candidates = candidates // vocabulary, candidates % vocabulary
            ended = candidates == special.end
            if closing is not None:
                ended |= closing[:, None]

            counted = ended[:, :beams] & ~done[:, None] & (scores[:, :beams] > NEVER / 2)
            score = torch.where(counted, scores[:, :beams] / (step + 1) ** length_penalty, NEVER)
            ends = torch.full_like(parents[:, :beams], step)
            finished = finished.merged(_Finished(score, ends, parents[:, :beams], candidates[:, :beams]))

            running, order = torch.where(ended, NEVER, scores).topk(beams, dim=1)
            parents, tokens = parents.gather(1, order), candidates.gather(1, order)
            worst = finished.score[:, -1]
            done |= worst > NEVER / 2 if early_stopping else running[:, 0] / (step + 1) ** length_penalty <= worst
            if closing is not None:
                done |= closing
        history[0, :, step] = tokens
        history[1, :, step] = parents
        if longest_runs is not None and (step + 1) % EVERY == 0:
            looping = _loops(history, step, np.asarray(longest_runs)[here])
            limit = np.where(looping, np.minimum(limit, step + 2), limit)

        left = int(done.sum())
        if left == len(here) or left >= LEAVE_AT * len(here) + 1:
            rows = done.nonzero().flatten()
            for sentence, found in zip(
                here[rows.cpu().numpy()], _paths(history[:, rows], finished.keep(rows), n_best), strict=True
            ):
                results[sentence] = found
            if left == len(here):
                break
            rows = (~done).nonzero().flatten()
            here, limit = here[rows.cpu().numpy()], limit[rows.cpu().numpy()]
            tokens, running, parents, done = tokens[rows], running[rows], parents[rows], done[rows]
            history, finished, source = history[:, rows], finished.keep(rows), source.keep(rows)
            cache.keep(rows)
            if lookup is not None:
                with trace.stage("lookup"):
                    lookup.keep(rows)
        cache.advance(parents)
    return results


def _loops(history: Tensor, step: int, longest: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which sentences repeat themselves for `longest` (B,) tokens. history: (2, B, steps, K); (B,)."""
    count = min(step + 1, int(longest.max()))
    if count < longest.min():
        return np.zeros(len(longest), dtype=np.bool_)
    found: NDArray[np.bool_] = runs_at_end(ends(history.cpu().numpy(), step, count)) >= longest
    return found


def _top(logits: Tensor, shift: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` best of logits (B, K, V) + shift (B, K), and their indices into K·V. Both (B, count).

    Two steps: the best blocks of the vocabulary by their maxima, then the best entries of those blocks. The best
    `count` entries lie in the best `count` blocks, and maxima are many times faster than a top-k of everything.
    """
    vocabulary = logits.size(2)
    blocks = vocabulary // BLOCK
    if blocks <= count:
        scores, at = (logits + shift[:, :, None]).flatten(1).topk(count, dim=1)
        return scores, at
    whole = logits[:, :, : blocks * BLOCK].unflatten(2, (blocks, BLOCK)).amax(dim=3)
    if vocabulary % BLOCK:
        rest = logits[:, :, blocks * BLOCK :].amax(dim=2, keepdim=True)
        whole, blocks = torch.cat((whole, rest), dim=2), blocks + 1
    best = (whole + shift[:, :, None]).flatten(1).topk(count, dim=1, sorted=False).indices
    beam, inside = best // blocks, best % blocks
    entry = inside[:, :, None] * BLOCK + torch.arange(BLOCK, device=logits.device)
    at = beam[:, :, None] * vocabulary + entry.clamp(max=vocabulary - 1)
    found = logits.flatten(1).gather(1, at.flatten(1)).view_as(at) + shift.gather(1, beam)[:, :, None]
    scores, order = found.masked_fill_(entry >= vocabulary, -torch.inf).flatten(1).topk(count, dim=1)
    return scores, at.flatten(1).gather(1, order)


def _paths(history: Tensor, finished: _Finished, n_best: int) -> list[list[Hypothesis]]:
    """Trace the best hypotheses back from their ends. history: (2, B, steps, K)."""
    tokens, parents = history.cpu().numpy()
    score, step, beam, last = (field[:, :n_best].cpu().numpy() for field in finished)
    found: list[list[Hypothesis]] = []
    for row in range(len(score)):
        best = []
        for rank in range(score.shape[1]):
            if score[row, rank] <= NEVER / 2:
                break
            path, at = [int(last[row, rank])], int(beam[row, rank])
            for before in range(int(step[row, rank]) - 1, -1, -1):
                path.append(int(tokens[row, before, at]))
                at = int(parents[row, before, at])
            best.append(Hypothesis(tuple(reversed(path)), float(score[row, rank])))
        found.append(best)
    return found
