"""BLEU, chrF2 and TER of many systems, each counted once, and compared with several of them by paired bootstrap."""

import contextlib
import logging
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from knnmt import host
from knnmt.errors import DataError
from knnmt.lab.reproduce.results import Metric

CHUNK = 50  # segments that a process counts at a time: TER takes many milliseconds for each


def compare(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    baselines: Sequence[str],
    *,
    resamples: int = 1000,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, list[Metric]]:
    """Score systems by name; each has a p-value for each of the baselines but itself, by sacreBLEU's own test.

    `jobs` processes count in parallel, by default one a core.
    """
    from sacrebleu.metrics import BLEU, CHRF, TER
    from sacrebleu.significance import PairedTest

    logging.getLogger("sacrebleu").setLevel(logging.WARNING)  # it announces every step of the test
    for name, hypotheses in systems.items():
        if len(hypotheses) != len(references):
            raise DataError(f"{name} has {len(hypotheses)} lines and the references have {len(references)}")
    kinds = {"BLEU": BLEU, "chrF2": CHRF, "TER": TER}
    counts = _counts(kinds, systems, references, jobs or host.cores(), progress)
    found: dict[str, dict[str, Metric]] = {name: {} for name in systems}
    for baseline in baselines:
        metrics = {}
        for name, kind in kinds.items():
            metrics[name] = kind(references=[list(references)])
            metrics[name]._extract_corpus_statistics = partial(_remembered, counts[name])
        # the test is told names in place of texts: what it would count is known
        order = [(name, [name]) for name in (baseline, *(name for name in systems if name != baseline))]
        padded = [(name, some * len(references)) for name, some in order]
        signatures, results = PairedTest(padded, metrics, references=None, test_type="bs", n_samples=resamples)()
        for metric, column in results.items():
            if metric == "System":
                continue
            for (name, _), r in zip(order, column, strict=True):
                p = dict(found[name][metric].p) if metric in found[name] else {}
                if r.p_value is not None:  # its test takes systems without any difference for different
                    p[baseline] = 1.0 if r.score == column[0].score else float(r.p_value)
                found[name][metric] = Metric(
                    metric=metric, value=float(r.score), signature=signatures[metric].format(), mean=float(r.mean),
                    interval=float(r.ci), p=p,
                )  # fmt: skip
    return {name: list(metrics.values()) for name, metrics in found.items()}


def _remembered(counts: dict[str, list[Any]], hypotheses: Sequence[str], references: object) -> list[Any]:
    return counts[hypotheses[0]]


def _counts(
    kinds: Mapping[str, Any],
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    jobs: int,
    progress: Callable[[int, int], None] | None,
) -> dict[str, dict[str, list[Any]]]:
    """What each metric counts in each segment, by metric and system."""
    tasks = [
        (kinds[metric], metric, name, list(texts[start : start + CHUNK]), list(references[start : start + CHUNK]))
        for metric in reversed(list(kinds))  # TER, the slow one, first
        for name, texts in systems.items()
        for start in range(0, len(references), CHUNK)
    ]
    counts: dict[str, dict[str, list[Any]]] = {metric: {name: [] for name in systems} for metric in kinds}
    with contextlib.ExitStack() as stack:
        counted: Iterator[tuple[str, str, list[Any]]] = map(_count, tasks)
        # children that only count: whatever threads or devices this process uses, they never touch
        if jobs > 1 and host.forks():
            pool = stack.enter_context(multiprocessing.get_context("fork").Pool(min(jobs, len(tasks))))
            counted = pool.imap(_count, tasks)
        for metric, name, some in counted:
            counts[metric][name] += some
            if progress is not None:
                progress(1, len(tasks))
    return counts


def _count(task: tuple[Any, str, str, list[str], list[str]]) -> tuple[str, str, list[Any]]:
    kind, metric, name, texts, references = task
    return metric, name, kind()._extract_corpus_statistics(texts, [references])
