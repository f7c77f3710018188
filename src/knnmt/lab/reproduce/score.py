"""BLEU, chrF2 and TER of many systems, each counted once, and compared with several of them by paired bootstrap."""

from collections.abc import Callable, Mapping, Sequence

from knnmt import host
from knnmt.evaluate import METRICS, RESAMPLES, Score, count
from knnmt.lab.reproduce.results import Metric


def compare(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    baselines: Sequence[str],
    *,
    metrics: Sequence[str] = tuple(METRICS),
    resamples: int = RESAMPLES,
    jobs: int | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> dict[str, list[Metric]]:
    """Score systems by name; each has a p-value for each of the baselines but itself.

    `jobs` processes count in parallel, by default one a core.
    """
    counts = count(systems, references, metrics=metrics, jobs=jobs or host.cores(), progress=progress)
    compared = {baseline: counts.compared(baseline, resamples) for baseline in baselines}
    return {
        name: [_metric({baseline: found[name][number] for baseline, found in compared.items()})
               for number in range(len(counts.of))]
        for name in systems
    }  # fmt: skip


def _metric(by_baseline: dict[str, Score]) -> Metric:
    """A score that was compared with several baselines; all but p is the same, whichever it is."""
    first = next(iter(by_baseline.values()))
    assert first.mean is not None
    assert first.interval is not None
    return Metric(
        metric=first.metric, value=first.value, signature=first.signature, mean=first.mean, interval=first.interval,
        p={baseline: score.p for baseline, score in by_baseline.items() if score.p is not None},
    )  # fmt: skip
