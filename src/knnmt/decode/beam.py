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

from knnmt.decode import ranking
from knnmt.decode.batches import going_on, room
from knnmt.decode.cache import Cache, StaticCache
from knnmt.decode.constraint_kernels import extend_bound
from knnmt.decode.constraints import Constraints
from knnmt.decode.graph import Replayed
from knnmt.decode.kernels import WORTH, extend
from knnmt.decode.paths import PathCache, SourceKeys
from knnmt.decode.ranking import NEVER
from knnmt.decode.repetition import EVERY, ends, runs_at_end
from knnmt.loops import share_evenly
from knnmt.model.normalise import normalise
from knnmt.model.shortlist import Shortlist
from knnmt.model.tokenizer import SpecialTokens
from knnmt.model.transformer import Encoded, States, Transformer
from knnmt.ready import ready
from knnmt.trace import NO_TRACE, Trace

ASKED = 4  # steps on a GPU after which it is asked how many sentences have finished


class Lookup(Protocol):
    """Changes the logits of each step, given the decoder states: all that decoding knows about retrieval."""

    @property
    def static(self) -> bool:
        """Whether every `mix` does the same and asks nothing of the host, so that it can be replayed."""
        ...

    @property
    def normalises(self) -> bool:
        """Whether `mix`, on a CPU, finds the normaliser of logits by itself where it is given None."""
        ...

    def mix(self, states: States, logits: Tensor, normaliser: Tensor | None, over: Tensor) -> Tensor:
        """Change logits (B, K, V) in place and return their new normaliser (B, K): log p = logit - normaliser.

        over: (B,) bool, sentences whose search has ended: nothing of them is wanted any more
        """
        ...

    def keep(self, rows: Tensor) -> None:
        """Keep only these sentences. rows: (N,) int64, ascending; on a GPU the last may be there several times."""
        ...


@dataclass(frozen=True)
class Hypothesis:
    """A translation: its tokens, with prefix and end, its score, and its log-probability."""

    tokens: tuple[int, ...]
    score: float
    log_p: float


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


class _Beams(NamedTuple):
    """What a step changes."""

    step: Tensor  # (1,), its number
    tokens: Tensor  # (B, K), the last token of each beam
    parents: Tensor  # (B, K), the beam of the step before that each continues
    running: Tensor  # (B, K), their log-probabilities, falling
    done: Tensor  # (B,), whether the search of a sentence has ended
    finished: _Finished

    def flat(self) -> list[Tensor]:
        return [*self[:-1], *self.finished]

    def keep(self, rows: Tensor) -> "_Beams":
        step, *fields = self.flat()
        kept = [field[rows] for field in fields]
        return _Beams(step, kept[0], kept[1], kept[2], kept[3], _Finished(*kept[4:]))


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
    shortlist: Shortlist | None = None,
    longest_runs: Sequence[int] | None = None,
    constraints: Constraints | None = None,
    between: Callable[[], None] | None = None,
    trace: Trace = NO_TRACE,
) -> list[list[Hypothesis]]:
    """Translate encoded sentences; limits[b] is the maximum length of sentence b in tokens, with the end.

    Returns up to n_best hypotheses per sentence, best first. `beams=1` with `early_stopping` is greedy search.
    shortlist: the tokens that each sentence may give, the lookup's included; None for the whole vocabulary.
    longest_runs[b]: sentence b ends when its best beam repeats itself for this many tokens.
    constraints: what the translations must have; a sentence that cannot have it within its limit gets no hypothesis.
    `between` is called before each step, may block, and ends the search if it raises.
    """
    batch = source.states.size(0)
    results: list[list[Hypothesis]] = [[] for _ in range(batch)]
    here = np.arange(batch)  # the sentence of each row; -1 where it is searched no more, and only fills the batch up
    # at least the prefix and an end, at most the model's positions
    limit = np.clip(limits, len(special.prefix) + 1, model.architecture.max_positions)
    longest = int(limit.max())
    state = _Search(model, source, special, limit, beams, length_penalty, early_stopping, lookup, shortlist, trace)
    state.constraints = constraints
    captured = (lookup is None or lookup.static) and constraints is None and not trace.detailed
    step_once = Replayed(state.step, source.states.device, capture=captured)

    if state.static and constraints is None and room(batch) > batch:
        here = np.pad(here, (0, room(batch) - batch), constant_values=-1)
        limit = limit[here]
        state.fill(here)
    for step in range(longest):
        if between is not None:
            between()
        trace.step(len(here))
        if state.cache.reserve(step + 1 if state.static else step):
            step_once.changed()
        if step < len(special.prefix):
            state.force(state.special.prefix[step])
        else:
            state.number, state.closes = step, state.static or step + 1 >= limit.min()
            step_once()
        if longest_runs is not None and (step + 1) % EVERY == 0:
            looping = _loops(state.history, step, np.asarray(longest_runs)[here])
            limit = np.where(looping, np.minimum(limit, step + 2), limit)
            state.limit.copy_(torch.from_numpy(limit))

        if state.static and (step + 1) % ASKED and step + 1 < longest:
            continue  # to ask a GPU is to wait for it
        done = state.beams.done.cpu().numpy()
        running = len(done) - int(done.sum())
        count = going_on(running, len(done), static=state.static)
        if running and count == len(done):
            continue
        (ended,) = (done & (here >= 0)).nonzero()
        for sentence, found in zip(here[ended], state.paths(torch.from_numpy(ended), n_best), strict=True):
            results[sentence] = found
        if not running:
            break
        here[ended] = -1
        rows = np.sort(done.argsort(kind="stable")[:count])  # those that run, and some others
        here, limit = here[rows], limit[rows]
        state.keep(torch.from_numpy(rows))
        step_once.changed()
    return results


class _Search:
    """The tensors of a running search. A step asks nothing of the host, so that it can be replayed (`decode.graph`)."""

    def __init__(
        self,
        model: Transformer,
        source: Encoded,
        special: SpecialTokens,
        limit: NDArray[np.int64],
        beams: int,
        length_penalty: float,
        early_stopping: bool,
        lookup: Lookup | None,
        shortlist: Shortlist | None,
        trace: Trace,
    ) -> None:
        device, batch, longest = source.states.device, len(limit), int(limit.max())
        self.model, self.lookup, self.shortlist, self.trace = model, lookup, shortlist, trace
        if shortlist is not None:  # here, tokens are places in it
            special = shortlist.special(special)
        self.special, self.early_stopping = special, early_stopping
        self.static = static(device)
        self.compiled = compiled(source.states)
        self.source: Encoded | SourceKeys = SourceKeys(source) if self.compiled else source
        self.cache: Cache | PathCache = (PathCache if self.compiled else StaticCache if self.static else Cache)(
            model, source, beams
        )
        self.banned = torch.tensor(special.banned, dtype=torch.int64, device=device)
        self.limit = torch.from_numpy(limit).to(device)
        self.constraints: Constraints | None = None
        self.number = 0  # of the step, as the host counts them
        self.closes = True  # whether some sentence may reach its limit in this step
        self.lengths = torch.tensor([(step + 1) ** length_penalty for step in range(longest)], device=device)
        self.history = torch.zeros(2, batch, longest, beams, dtype=torch.int64, device=device)  # tokens and parents
        self.same = torch.arange(beams, device=device)

        nothing = torch.zeros((batch, beams), dtype=torch.int64, device=device)
        never = torch.full((batch, beams), NEVER, device=device)
        running = never.clone()
        running[:, 0] = 0.0
        self.beams = _Beams(
            step=torch.zeros(1, dtype=torch.int64, device=device),
            tokens=torch.full_like(nothing, special.start),
            parents=nothing.clone(),
            running=running,
            done=torch.zeros(batch, dtype=torch.bool, device=device),
            finished=_Finished(never, nothing, nothing.clone(), nothing.clone()),
        )

    def step(self) -> None:
        """Extend all beams by a token."""
        states = self._states()
        logits = (self.model if self.shortlist is None else self.shortlist).logits(states.output)
        normaliser = None
        if not self.compiled:
            normaliser = ranking.normaliser(logits, self.special.end)
        elif self.lookup is None or not self.lookup.normalises or self.trace.detailed:  # stages are told apart
            normaliser = normalise(logits)
        if self.lookup is not None:
            with self.trace.stage("combine"):
                normaliser = self.lookup.mix(states, logits, normaliser, self.beams.done)
        assert normaliser is not None
        if self.compiled:
            self._extend(logits, normaliser)
        elif self.constraints is not None:
            self._take(self._constrained(self.constraints, logits, normaliser))
        else:
            logits.index_fill_(2, self.banned, -torch.inf)
            self._take(self._next(logits, normaliser))

    def force(self, token: int) -> None:
        """Extend all beams by this token, whatever the model says."""
        now = self.beams
        self._states()
        same = self.same.repeat(len(now.parents), 1)
        self._take(now._replace(step=now.step + 1, tokens=torch.full_like(now.tokens, token), parents=same))

    def _states(self) -> States:
        """The states of the next position of all beams."""
        tokens = self.beams.tokens if self.shortlist is None else self.shortlist.tokens[self.beams.tokens]
        return self.model.step(tokens, self.beams.step, self.source, self.cache)

    def _extend(self, logits: Tensor, normaliser: Tensor) -> None:
        """`_next` or `_constrained`, and `_take`, in one compiled loop, in place."""
        now, step = self.beams, self.cache.length
        ends = (self.special.end, self.special.forced_end, self.early_stopping)[: 1 if self.constraints else 3]
        changed = now.tokens, now.parents, now.running, now.done, *now.finished, self.history
        tables = self.constraints.tables() if self.constraints is not None else ()
        share_evenly(
            extend if self.constraints is None else extend_bound, len(logits), logits[0].numel(), WORTH,
            logits.numpy(), normaliser.contiguous().numpy(), self.banned.numpy(), self.limit.numpy(), *ends,
            np.float32(NEVER), step, self.lengths.numpy()[step], *(each.numpy() for each in changed), *tables,
        )  # fmt: skip
        self.cache.advance(now.parents)
        now.step.add_(1)

    def _next(self, logits: Tensor, normaliser: Tensor) -> _Beams:
        """The beams after a step, by logits (B, K, V) and their normaliser (B, K)."""
        now, beams, vocabulary = self.beams, len(self.same), logits.size(2)
        length = self.lengths[now.step]
        scores, found = ranking.top(logits, now.running - normaliser, 2 * beams)
        parents, tokens = found // vocabulary, found % vocabulary
        ended = tokens == self.special.end
        closing = (self.limit == now.step + 1)[:, None] if self.closes else None
        if closing is not None:
            if self.special.forced_end:  # each beam ends, at no cost
                nothing = torch.full_like(now.running, -torch.inf)
                scores = torch.where(closing, torch.cat((now.running, nothing), dim=1), scores)
                parents = torch.where(closing, torch.cat((self.same, self.same)), parents)
                tokens = tokens.masked_fill(closing, self.special.end)
            ended |= closing

        counted = ended[:, :beams] & ~now.done[:, None] & (scores[:, :beams] > NEVER / 2)
        score = torch.where(counted, scores[:, :beams] / length, NEVER)
        at = now.step.expand_as(now.parents)
        finished = now.finished.merged(_Finished(score, at, parents[:, :beams], tokens[:, :beams]))

        running, order = torch.where(ended, NEVER, scores).topk(beams, dim=1)
        worst = finished.score[:, -1]
        done = now.done | (worst > NEVER / 2 if self.early_stopping else running[:, 0] / length <= worst)
        if closing is not None:
            done |= closing[:, 0]
        return _Beams(now.step + 1, tokens.gather(1, order), parents.gather(1, order), running, done, finished)

    def _constrained(self, constraints: Constraints, logits: Tensor, normaliser: Tensor) -> _Beams:
        """The beams after a step, of which those may end that have all they must."""
        now, length, end = self.beams, self.lengths[self.beams.step], self.special.end
        logits.index_fill_(2, self.banned, -torch.inf)
        counted = constraints.met(self.number) & ~now.done[:, None] & (now.running > NEVER / 2)
        score = torch.where(counted, (now.running + logits[:, :, end] - normaliser) / length, NEVER)
        at, parents = now.step.expand_as(now.parents), self.same.expand_as(now.parents)
        finished = now.finished.merged(_Finished(score, at, parents, torch.full_like(now.tokens, end)))
        logits[:, :, end] = -torch.inf
        running, parents, tokens = constraints.extend(logits, now.running - normaliser, self.number)
        done = now.done | (self.limit == now.step + 1) | (running[:, 0] / length <= finished.score[:, -1])
        return _Beams(now.step + 1, tokens, parents, running, done, finished)

    def _take(self, beams: _Beams) -> None:
        """Finish a step: these are the beams now."""
        written = torch.stack((beams.tokens, beams.parents))[:, :, None]
        self.history.index_copy_(2, self.beams.step, written)
        self.cache.advance(beams.parents)
        if self.static:  # a replayed step reads what it wrote
            for old, new in zip(self.beams.flat(), beams.flat(), strict=True):
                old.copy_(new)
        else:
            self.beams = beams

    def fill(self, here: NDArray[np.int64]) -> None:
        """Add rows that only fill the batch up. here: (N,), the sentence of each row, -1 for these."""
        self.keep(torch.from_numpy(np.where(here < 0, here.max(), here)))
        self.beams.done.copy_(torch.from_numpy(here < 0))

    def keep(self, rows: Tensor) -> None:
        """Keep only these sentences. rows: (N,) int64, ascending."""
        rows = rows.to(self.limit.device)
        self.beams, self.source, self.limit = self.beams.keep(rows), self.source.keep(rows), self.limit[rows]
        self.history = self.history.index_select(1, rows)
        self.cache.keep(rows)
        if self.shortlist is not None:
            self.shortlist.keep(rows)
        if self.constraints is not None:
            self.constraints.keep(rows)
        if self.lookup is not None:
            with self.trace.stage("lookup"):
                self.lookup.keep(rows)

    def paths(self, rows: Tensor, n_best: int) -> list[list[Hypothesis]]:
        """The best hypotheses of some sentences. rows: (N,) int64."""
        rows = rows.to(self.limit.device)
        finished = self.beams.keep(rows).finished
        tokens, parents = self.history[:, rows, : int(finished.step.max()) + 1]
        if self.shortlist is not None:
            names = self.shortlist.tokens
            tokens, finished = names[tokens], finished._replace(token=names[finished.token])
        return _paths(tokens, parents, finished, finished.score * self.lengths[finished.step], n_best)


def static(device: torch.device) -> bool:
    """Whether steps on a device keep their shapes and ask nothing of the host."""
    return device.type == "cuda"


def compiled(states: Tensor) -> bool:
    """Whether steps run in loops that are compiled for a CPU."""
    return states.device.type == "cpu" and states.dtype == torch.float32 and ready()


def _loops(history: Tensor, step: int, longest: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which sentences repeat themselves for `longest` (B,) tokens. history: (2, B, steps, K); (B,)."""
    count = min(step + 1, int(longest.max()))
    if count < longest.min():
        return np.zeros(len(longest), dtype=np.bool_)
    found: NDArray[np.bool_] = runs_at_end(ends(history.cpu().numpy(), step, count)) >= longest
    return found


def _paths(history: Tensor, back: Tensor, finished: _Finished, log_p: Tensor, n_best: int) -> list[list[Hypothesis]]:
    """Trace the best hypotheses back from their ends, all at once. history, back: (B, steps, K), tokens and parents;
    log_p: (B, K)."""
    tokens, parents = history.cpu().numpy(), back.cpu().numpy()
    score, last, beam, end, whole = (field[:, :n_best].cpu().numpy() for field in (*finished, log_p))
    rows, written = np.arange(len(score))[:, None], np.empty((*score.shape, tokens.shape[1]), dtype=np.int64)
    for step in range(tokens.shape[1] - 1, -1, -1):
        begun = step < last  # the last token of a path is its end
        written[:, :, step] = np.where(begun, tokens[rows, step, beam], end)
        beam = np.where(begun, parents[rows, step, beam], beam)
    return [
        [
            Hypothesis(tuple(path[: length + 1]), value, total)
            for path, length, value, total in zip(*found, strict=True)
            if value > NEVER / 2
        ]
        for found in zip(*(each.tolist() for each in (written, last, score, whole)), strict=True)
    ]
