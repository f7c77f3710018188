"""A classic translation memory as a yardstick: the target of the best fuzzy match, or base MT where none is good.

The threshold is tuned on dev by BLEU. Nothing of dev is left out of the memory for that, other than for the systems:
its exact matches are what a memory is for, and test keeps them too.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel

from knnmt.corpus import Languages, Segment, files_of, read_all
from knnmt.evaluate import bleu
from knnmt.files import checksum
from knnmt.lab.reproduce.job import Job, digest_of, keep, recall, search_alone
from knnmt.lab.reproduce.results import Translated, TunedResult
from knnmt.store.digests import one_line
from knnmt.translate import Translator
from knnmt.translate.fuzzy import LEAST, Fuzzy, FuzzyIndex

THRESHOLDS = (LEAST, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0)


class Match(NamedTuple):
    """The score of the best match of a text, and its target."""

    score: float
    target: str


class Matches(BaseModel):
    """The best match of each text of dev and test, None where nothing is alike."""

    digest: str
    dev: list[Match | None]
    test: list[Match | None]


class _Entry(NamedTuple):
    """A segment as `matches` of a store gives it."""

    segment: Segment


class Memory:
    """Segments that can be searched for fuzzy matches without a store."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = list(segments)
        self._exact: dict[str, list[_Entry]] = defaultdict(list)
        for segment in self._segments:
            self._exact[one_line(segment.source)].append(_Entry(segment))

    def numbered(self) -> Iterator[tuple[int, Segment]]:
        """All segments with their numbers."""
        return iter(enumerate(self._segments))

    def segment(self, number: int) -> Segment:
        """A segment by its number."""
        return self._segments[number]

    def matches(self, text: str) -> Sequence[_Entry]:
        """The segments with exactly this source."""
        return self._exact.get(text, [])


def matches(
    path: Path, train: Sequence[Path], languages: Languages, dev: Sequence[Segment], test: Sequence[Segment]
) -> Matches:
    """The matches of dev and test in train texts, kept at `path`. They depend on these texts alone, not on a store."""
    sides = [[segment.source for segment in some] for some in (dev, test)]
    digest = digest_of([checksum(file) for file in files_of(train, languages)], *sides)
    found = recall(path, Matches, digest)
    if found is None:
        index = FuzzyIndex(Memory(read_all(train, languages, identify=False)))
        best = ([_match(each) for each in index.best(texts)] for texts in sides)
        found = keep(path, Matches(digest=digest, dev=next(best), test=next(best)))
    return found


def _match(found: Fuzzy | None) -> Match | None:
    return None if found is None else Match(found.score, one_line(found.segment.target))


def filled(base: Sequence[str], found: Sequence[Match | None], threshold: float | None) -> list[str]:
    """Base MT's translations, replaced by the targets of matches at or above a threshold; by none if it is None."""
    return [
        match.target if match is not None and threshold is not None and match.score >= threshold else text
        for text, match in zip(base, found, strict=True)
    ]


def tune(job: Job, found: Matches) -> tuple[float | None, TunedResult]:
    """The threshold that translates dev best; None where base MT alone is better."""
    began, plan = time.perf_counter(), job.config.translate
    options = search_alone(plan.beam, plan.batch_size)
    made = Translator(job.model).stream([segment.source for segment in job.dev], options)
    base, references = [each.text for each in made], [segment.target for segment in job.dev]
    tried = {t: bleu(filled(base, found.dev, t), references).value for t in (None, *reversed(THRESHOLDS))}
    best = max(tried, key=lambda threshold: tried[threshold])
    return best, TunedResult(
        digest=found.digest, settings={"threshold": best}, bleu=tried[best], base_bleu=tried[None],
        segments=len(job.dev), trials=len(tried), seconds=round(time.perf_counter() - began, 3),
    )  # fmt: skip


def translate(job: Job, base: Translated, texts: Sequence[str]) -> tuple[TunedResult, Translated, list[str]]:
    """Test by the memory, given base MT's translation of it. A match takes no time that would be worth telling."""
    job.watch("fuzzy matches")("", 0, None)
    train, languages = [job.data / name for name in job.domain.train], Languages.parse(job.config.languages)
    found = matches(job.folder / "matches.json", train, languages, job.dev, job.test)
    threshold, tuned = tune(job, found)
    return tuned, base, filled(texts, found.test, threshold)
