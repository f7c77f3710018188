"""Scores of translations: BLEU, chrF2 and TER as sacreBLEU computes them, each with its signature.

What a metric counts in a segment is counted once for each system. Its scores, and those of the resamples that a paired
bootstrap compares, are made of these counts.
"""

import contextlib
import logging
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import fmean
from typing import Any

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from knnmt import host
from knnmt.errors import DataError, UsageError
from knnmt.ter import FastTER

RESAMPLES = 1000
CHUNK = 50  # segments counted at a time, in one process
METRICS: dict[str, Any] = {"BLEU": BLEU, "chrF2": CHRF, "TER": FastTER if find_spec("numba") is not None else TER}

Progress = Callable[[str, int, int | None], None]
"""Called with a metric's name, the segments counted since the last call, and how many there are of all systems."""


@dataclass(frozen=True)
class Score:
    """One metric of one system; `p` compares it with another one, the baseline (paired bootstrap), if there is one."""

    metric: str
    value: float
    signature: str
    mean: float | None = None  # over the resamples
    interval: float | None = None  # half of the 95% confidence interval
    p: float | None = None


@dataclass(frozen=True)
class Counts:
    """What each metric counts in each segment, by metric and system."""

    references: Sequence[str]
    of: dict[str, dict[str, list[Any]]]

    @property
    def systems(self) -> list[str]:
        """The names of the systems."""
        return list(next(iter(self.of.values())))

    def scores(self, system: str) -> list[Score]:
        """All metrics of a system."""
        return [_score(name, self._metric(name), counts[system]) for name, counts in self.of.items()]

    def compared(self, baseline: str, resamples: int = RESAMPLES) -> dict[str, list[Score]]:
        """All metrics of all systems, compared with a baseline by sacreBLEU's own paired bootstrap."""
        logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it announces every step of the test
        metrics = {name: self._metric(name) for name in self.of}
        for name, metric in metrics.items():
            metric._extract_corpus_statistics = partial(_remembered, self.of[name])
        # the test is told names in place of texts: what it would count is known
        order = [baseline, *(name for name in self.systems if name != baseline)]
        named = [(system, [system] * len(self.references)) for system in order]
        signatures, results = PairedTest(named, metrics, references=None, test_type="bs", n_samples=resamples)()
        scores: dict[str, list[Score]] = {system: [] for system in self.systems}
        for name in metrics:
            for system, r in zip(order, results[name], strict=True):
                # its test takes systems without any difference for different
                p = 1.0 if r.p_value is not None and r.score == results[name][0].score else r.p_value
                signature = signatures[name].format()
                scores[system].append(Score(name, float(r.score), signature, float(r.mean), float(r.ci), p))
        return scores

    def _metric(self, name: str) -> Any:
        return METRICS[name](references=[list(self.references)])


def count(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    metrics: Sequence[str] = tuple(METRICS),
    jobs: int = 1,
    progress: Progress | None = None,
) -> Counts:
    """Count for these metrics, in as many processes as `jobs` says where the system can fork."""
    for name, hypotheses in systems.items():
        if len(hypotheses) != len(references):
            lines = f"{name} has {len(hypotheses)} lines and the references have {len(references)}"
            raise DataError(f"{lines}: each segment needs one of both")
    if not systems or not references:
        raise UsageError("there is nothing to score: give at least one translation and its references")
    tasks = [
        (metric, name, list(texts[start : start + CHUNK]), list(references[start : start + CHUNK]))
        for metric in metrics
        for name, texts in systems.items()
        for start in range(0, len(references), CHUNK)
    ]
    found: dict[str, dict[str, list[Any]]] = {metric: {name: [] for name in systems} for metric in metrics}
    with contextlib.ExitStack() as stack:
        counted: Iterator[tuple[str, str, list[Any]]] = map(_count, tasks)
        # children that only count: whatever threads or devices this process uses, they never touch
        if jobs > 1 and host.forks():
            pool = stack.enter_context(multiprocessing.get_context("fork").Pool(min(jobs, len(tasks))))
            counted = pool.imap(_count, tasks)
        for metric, name, some in counted:
            found[metric][name] += some
            if progress is not None:
                progress(metric, len(some), len(systems) * len(references))
    return Counts(references, found)


def evaluate(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    resamples: int = RESAMPLES,
    progress: Progress | None = None,
) -> dict[str, list[Score]]:
    """BLEU, chrF2 and TER of each system; with more than one, also whether it differs from the first."""
    counts = count(systems, references, progress=progress)
    first, *others = counts.systems
    return counts.compared(first, resamples) if others else {first: counts.scores(first)}


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """BLEU alone."""
    return _alone("BLEU", hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """chrF2 alone."""
    return _alone("chrF2", hypotheses, references)


def mean_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The mean of the segments' own chrF2: a label of two words counts as much as a paragraph."""
    metric = CHRF()
    pairs = zip(hypotheses, references, strict=True)
    return fmean(metric.sentence_score(hypothesis, [reference]).score for hypothesis, reference in pairs)


def _alone(name: str, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    metric = METRICS[name](references=[list(references)])
    return _score(name, metric, metric._extract_corpus_statistics(hypotheses, None))


def _score(name: str, metric: Any, counts: list[Any]) -> Score:
    return Score(name, float(metric._aggregate_and_compute(counts).score), metric.get_signature().format())


def _remembered(counts: dict[str, list[Any]], hypotheses: Sequence[str], references: object) -> list[Any]:
    return counts[hypotheses[0]]


def _count(task: tuple[str, str, list[str], list[str]]) -> tuple[str, str, list[Any]]:
    metric, name, texts, references = task
    return metric, name, METRICS[metric]()._extract_corpus_statistics(texts, [references])
