"""The search for the translations of lines, in batches of similar length."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from knnmt.decode.batches import batches
from knnmt.decode.beam import Hypothesis, search
from knnmt.decode.constraints import Constraints, Edges, Wishes
from knnmt.decode.repetition import SPARE, longest_run
from knnmt.decode.settings import TranslateSettings
from knnmt.model.checkpoint import Model
from knnmt.model.represent import padded
from knnmt.ready import ready, searched
from knnmt.retrieval.session import Retriever
from knnmt.trace import Trace

KEPT = 1 << 21  # bytes that a sentence needs while it selects, whatever the store: for the postings that it walks
CACHED = 1.0  # seconds in which compiled loops are read from the cache on disk


class Bound(NamedTuple):
    """What the translation of a piece must have, and its maximum length."""

    wishes: Wishes
    limit: int


@dataclass(frozen=True)
class BatchSearch:
    """The search with one model and, if there is one, one retriever."""

    model: Model
    retriever: Retriever | None
    settings: TranslateSettings
    trace: Trace
    between: Callable[[], None] | None = None

    @torch.inference_mode()
    def run(
        self,
        pieces: list[list[int]],
        progress: Callable[[int], None] | None,
        bound: Sequence[Bound] | None = None,
        edges: Edges | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each piece; a batch that a GPU has no memory for is searched in halves.

        bound: what each translation must have, none of which the search may find for it; edges: those of its words
        """
        model, settings = self.model, self.settings
        ready(CACHED)
        kept = KEPT if self.retriever is not None else 0
        found: list[list[Hypothesis]] = [[]] * len(pieces)
        groups = [list(range(len(pieces)))] if model.shortlists is None or bound else model.shortlists.split(pieces)
        ahead = deque(
            [group[row] for row in rows]
            for group in groups
            for rows in batches(
                [len(pieces[number]) for number in group], settings.batch_size, model.device,
                model.transformer.architecture, settings.beam, kept,
            )
        )  # fmt: skip
        while ahead:
            rows, begun = ahead.popleft(), time.monotonic()
            try:
                some = [bound[row] for row in rows] if bound is not None else None
                hypotheses = self._batch([pieces[row] for row in rows], some, edges)
            except torch.OutOfMemoryError:
                if len(rows) == 1:
                    raise
                torch.cuda.empty_cache()
                half = len(rows) // 2
                ahead.extendleft((rows[half:], rows[:half]))
                continue
            if model.device.type == "cpu":
                searched(time.monotonic() - begun)
            for row, hypothesis in zip(rows, hypotheses, strict=True):
                found[row] = hypothesis
            if progress is not None:
                progress(len(rows))
        return found

    def _batch(
        self, pieces: list[list[int]], bound: Sequence[Bound] | None, edges: Edges | None
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of pieces that are searched together."""
        model, settings, trace = self.model, self.settings, self.trace
        ids, mask = padded(pieces, model.special.pad, model.device, model.transformer.architecture.max_positions)
        # far above any real translation, so that only loops are cut; the search knows the model's own limit
        limits = [settings.max_length or 3 * len(piece) + 30 for piece in pieces]
        constraints = None
        if bound is not None and edges is not None:
            limits = [min(limit, each.limit) for limit, each in zip(limits, bound, strict=True)]
            constraints = Constraints([each.wishes for each in bound], edges, settings.beam, model.device)
        runs = [SPARE + longest_run(piece) for piece in pieces] if settings.stop_loops else None
        with trace.stage("encode"):
            encoded = model.transformer.encode(ids, mask)
        lookup = None
        if self.retriever is not None:
            with trace.stage("select"):
                lookup = self.retriever.look(ids, mask, encoded.states, trace=trace)
        penalty = settings.length_penalty
        if penalty is None:
            own = model.length_penalty
            penalty = own if self.retriever is None else self.retriever.length_penalty(own)
        shortlist = None if model.shortlists is None or constraints else model.shortlists.of(ids, mask, lookup)
        with trace.stage("decode"):
            return search(
                model.transformer, encoded, model.special, limits, beams=settings.beam, n_best=settings.n_best,
                length_penalty=penalty, early_stopping=settings.beam == 1, lookup=lookup, shortlist=shortlist,
                longest_runs=runs, constraints=constraints, between=self.between, trace=trace,
            )  # fmt: skip
