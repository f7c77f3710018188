"""Scores of translations: BLEU, chrF and TER as sacreBLEU computes them, each with its signature."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from knnmt.errors import DataError, UsageError

RESAMPLES = 1000

Progress = Callable[[str, int, int | None], None]
"""Called with a metric's name, the segments counted since the last call, and how many there are of all systems."""


@dataclass(frozen=True)
class Score:
    """One metric of one system; `p` compares it with the first system (paired bootstrap), where there is one."""

    metric: str
    value: float
    signature: str
    mean: float | None = None  # over the resamples
    interval: float | None = None  # half of the 95% confidence interval
    p: float | None = None


def evaluate(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    *,
    resamples: int = RESAMPLES,
    progress: Progress | None = None,
) -> dict[str, list[Score]]:
    """BLEU, chrF and TER of each system; with more than one, also whether it differs from the first."""
    for name, hypotheses in systems.items():
        if len(hypotheses) != len(references):
            lines = f"{name} has {len(hypotheses)} lines and the references have {len(references)}"
            raise DataError(f"{lines}: each segment needs one of both")
    if not systems or not references:
        raise UsageError("there is nothing to score: give at least one translation and its references")
    metrics = {name: kind(references=[list(references)]) for name, kind in _metrics().items()}
    counts = {
        name: {system: _count(name, metric, texts, len(systems), progress) for system, texts in systems.items()}
        for name, metric in metrics.items()
    }
    if len(systems) == 1:
        (system,) = systems
        return {system: [_score(name, metric, counts[name][system]) for name, metric in metrics.items()]}
    return _compare(list(systems), len(references), metrics, counts, resamples)


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """BLEU alone."""
    from sacrebleu.metrics import BLEU

    return _alone("BLEU", BLEU, hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """chrF2 alone."""
    from sacrebleu.metrics import CHRF

    return _alone("chrF2", CHRF, hypotheses, references)


def mean_chrf(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The mean of the segments' own chrF2: a label of two words counts as much as a paragraph."""
    from sacrebleu.metrics import CHRF

    metric = CHRF()
    pairs = zip(hypotheses, references, strict=True)
    return fmean(metric.sentence_score(hypothesis, [reference]).score for hypothesis, reference in pairs)


def _alone(name: str, kind: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """One metric of one system; it needs no compiled loops."""
    metric = kind(references=[list(references)])
    return _score(name, metric, _count(name, metric, hypotheses, 1, None))


def _metrics() -> dict[str, Any]:
    """The classes of sacreBLEU that are used, by the names it gives them."""
    from sacrebleu.metrics import BLEU, CHRF

    from knnmt.ter import FastTER

    return {"BLEU": BLEU, "chrF2": CHRF, "TER": FastTER}


def _count(name: str, metric: Any, hypotheses: Sequence[str], systems: int, progress: Progress | None) -> list[Any]:
    """What a metric counts in each segment: all that its scores are made of, those of resamples too."""

    def watched() -> Iterator[str]:
        for hypothesis in hypotheses:
            yield hypothesis
            if progress is not None:
                progress(name, 1, systems * len(hypotheses))

    counts: list[Any] = metric._extract_corpus_statistics(watched(), None)
    return counts


def _score(name: str, metric: Any, counts: list[Any]) -> Score:
    return Score(name, float(metric._aggregate_and_compute(counts).score), metric.get_signature().format())


def _compare(
    systems: list[str], segments: int, metrics: dict[str, Any], counts: dict[str, dict[str, list[Any]]], resamples: int
) -> dict[str, list[Score]]:
    """Paired bootstrap resampling of all systems against the first, by sacreBLEU's own test."""
    import logging

    from sacrebleu.significance import PairedTest

    logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it announces every step of the test
    for name, metric in metrics.items():
        metric._extract_corpus_statistics = lambda lines, _, known=counts[name]: known[lines[0]]
    # the test is told names in place of texts: what it would count is known
    named = [(system, [system] * segments) for system in systems]
    signatures, results = PairedTest(named, metrics, references=None, test_type="bs", n_samples=resamples)()
    scores: dict[str, list[Score]] = {system: [] for system in systems}
    for name, column in results.items():
        if name != "System":
            for system, r in zip(systems, column, strict=True):
                # its test takes systems without any difference for different
                p = 1.0 if r.p_value is not None and r.score == column[0].score else r.p_value
                signature = signatures[name].format()
                scores[system].append(Score(name, float(r.score), signature, float(r.mean), float(r.ci), p))
    return scores
