"""Stage `read`: corpus to clean segments, their texts and their tokens."""

import json
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from knnmt import files
from knnmt.align.bitext import Bitext, Links
from knnmt.align.fastalign import Aligner
from knnmt.build.context import Context
from knnmt.corpus import CleanReport, Languages, Reason, Segment, cleaned, unfit
from knnmt.csr import offsets_of
from knnmt.errors import DataError
from knnmt.store import arrays, digests
from knnmt.store.pieces import fits

TOGETHER = 1000  # segments that are tokenized together

Read = Callable[[Callable[[DataError], None] | None], Iterator[Segment]]
"""Gives all segments; unreadable ones are passed to the argument, or raised where that is None."""

GivenLinks = Callable[[Bitext, Sequence[int], int], Links]
"""Gives links that were made elsewhere: of a bitext, whose segments have these numbers of so many in the corpus."""


@dataclass(frozen=True)
class Corpus:
    """What goes into a build: segments, and their links if they were made elsewhere; `aligner` is that of a store."""

    read: Read
    languages: Languages
    links: GivenLinks | None = None
    aligner: Aligner | None = None


def read_corpus(context: Context, corpus: Corpus) -> None:
    """Write texts, digests, tokens, and the number in the corpus of each segment; and the report of cleaning."""
    report, advance = CleanReport(), context.watch("read")
    special = context.model.special
    numbers, texts, sources, targets = (array("q") for _ in range(4))  # in the corpus, and lengths
    of_texts = {side: array("Q") for side in ("source", "target")}
    with (
        arrays.Stream(context.path("text"), "uint8") as text,
        arrays.Stream(context.path("source_ids"), "int32") as source_ids,
        arrays.Stream(context.path("target_ids"), "int32") as target_ids,
    ):
        for number, segment, source, target in _tokenized(context, corpus, report):
            numbers.append(number)
            fields = [field.encode() for field in (segment.source, segment.target, segment.origin, segment.id or "")]
            text.extend(b"".join(fields))
            texts.extend(map(len, fields))
            for side, found in of_texts.items():
                found.append(digests.digest(getattr(segment, side)))
            source_ids.extend(source)
            sources.append(len(source))
            target_ids.extend([*target, special.end])
            targets.append(len(target) + 1)
            if len(numbers) % TOGETHER == 0:
                advance(TOGETHER)
    if not numbers and not report.seen:
        raise DataError("there is nothing to store: the corpus has no segments")
    if not numbers:
        raise DataError(f"there is nothing to store: {report}; look into the corpus, or build without cleaning")
    context.write(
        text_offsets=offsets_of(np.array(texts)),
        source_offsets=offsets_of(np.array(sources)),
        target_offsets=offsets_of(np.array(targets)),
        digests=np.stack([np.array(found, np.uint64) for found in of_texts.values()]),
        numbers=np.append(numbers, report.seen),
    )
    files.write_whole(context.folder / "report", json.dumps([report.kept, report.dropped]).encode())


def _tokenized(
    context: Context, corpus: Corpus, report: CleanReport
) -> Iterator[tuple[int, Segment, list[int], list[int]]]:
    """The segments that go into the store, with their numbers in the corpus and the tokens of both sides.

    The texts are as they were read; the tokens are of normalised texts, where cleaning is to normalise them.
    """

    def unreadable(fault: DataError) -> None:
        report.dropped[Reason.UNREADABLE] += 1

    model, settings = context.model, context.settings.clean
    segments = corpus.read(unreadable if settings is not None else None)
    pairs: Iterator[tuple[Segment, Segment]] = ((segment, segment) for segment in segments)
    if settings is not None:  # lengths are judged below, in the model's own tokens
        others = settings.model_copy(update={"max_tokens": None, "max_ratio": None})
        pairs = cleaned(segments, corpus.languages, others, report=report)
    numbered = enumerate(pairs)
    while some := list(islice(numbered, TOGETHER)):
        sources = model.tokenizer.encode_source([seen.source for _, (_, seen) in some])
        targets = model.tokenizer.encode_target([seen.target for _, (_, seen) in some])
        for (number, (segment, _)), source, target in zip(some, sources, targets, strict=True):
            report.kept += settings is None
            fault = unfit(len(source), len(target), settings) if settings is not None else None
            if fault is None and not fits(model, source, target):
                fault = Reason.TOO_LONG
            if fault is None and not target:
                fault = Reason.EMPTY
            if fault is None:
                yield number, segment, source, target
            else:
                report.kept -= 1
                report.dropped[fault] += 1
