"""Scores of translations: BLEU, chrF and TER as sacreBLEU computes them, each with its signature."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from knnmt.errors import DataError, UsageError

RESAMPLES = 1000


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
    systems: Mapping[str, Sequence[str]], references: Sequence[str], *, resamples: int = RESAMPLES
) -> dict[str, list[Score]]:
    """BLEU, chrF and TER of each system; with more than one, also whether it differs from the first."""
    for name, hypotheses in systems.items():
        if len(hypotheses) != len(references):
            counts = f"{name} has {len(hypotheses)} lines and the references have {len(references)}"
            raise DataError(f"{counts}: each segment needs one of both")
    if not systems or not references:
        raise UsageError("there is nothing to score: give at least one translation and its references")
    if len(systems) == 1:
        ((name, hypotheses),) = systems.items()
        return {name: [_score(metric, kind(), hypotheses, references) for metric, kind in _metrics().items()]}
    return _compare(systems, references, resamples)


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """BLEU alone."""
    return _score("BLEU", _metrics()["BLEU"](), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """chrF2 alone."""
    return _score("chrF2", _metrics()["chrF2"](), hypotheses, references)


def _metrics() -> dict[str, Any]:
    """The classes of sacreBLEU that are used, by the names it gives them."""
    from sacrebleu.metrics import BLEU, CHRF, TER

    return {"BLEU": BLEU, "chrF2": CHRF, "TER": TER}


def _score(name: str, metric: Any, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(name, float(value), metric.get_signature().format())


def _compare(systems: Mapping[str, Sequence[str]], references: Sequence[str], resamples: int) -> dict[str, list[Score]]:
    """Paired bootstrap resampling of all systems against the first."""
    import logging

    from sacrebleu.significance import PairedTest

    logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it announces every step of the test
    named = [(name, list(lines)) for name, lines in systems.items()]
    metrics = {name: kind(references=[list(references)]) for name, kind in _metrics().items()}
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
