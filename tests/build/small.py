"""A small corpus, what it is built with, and what slow NumPy needs to make the same of it."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.align.bitext import Bitext, Links
from knnmt.build.settings import BuildSettings
from knnmt.corpus import CleanSettings, Segment
from knnmt.model.checkpoint import Model
from knnmt.model.represent import represent
from knnmt.model.transformer import KeyKind

from ..oracle import datastore as oracle

PAIRS, K_MAX = 150, 7
CLEAN = CleanSettings(check_language=False)  # words in a row have no language
SETTINGS = BuildSettings(cluster_size=4, k_max=K_MAX, clean=CLEAN)

Pair = tuple[list[int], list[int]]
Rows = NDArray[np.float32]


class Stop(Exception):  # noqa: N818 (raised to stop a build, as ^C would)
    """What interrupts a build."""


def settings(**changes: Any) -> BuildSettings:
    return SETTINGS.model_copy(update=changes)


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, to the byte."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def part_files(folder: Path) -> dict[str, bytes]:
    (part,) = folder.glob("part-*")
    return files(part)


def leftovers(folder: Path) -> set[str]:
    """What a build has left beside the corpus."""
    return {path.name for path in folder.iterdir()} - {"corpus.tsv"}


def ids_of(model: Model, segments: list[Segment]) -> list[Pair]:
    """Token ids of each segment, with the end on the source side only."""
    sources = model.tokenizer.encode_source([segment.source for segment in segments])
    targets = model.tokenizer.encode_target([segment.target for segment in segments])
    return list(zip(sources, targets, strict=True))


def represent_alone(model: Model, pairs: list[Pair], key: KeyKind = "ffn_input") -> list[tuple[Rows, Rows]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for so little, threads wait longer for each other than they work
    try:
        states = [next(represent(model, [pair], key=key)) for pair in pairs]
    finally:
        torch.set_num_threads(threads)
    return [(alone.source.numpy(), alone.target.numpy()) for alone in states]


def bitext_of(model: Model, pairs: list[Pair]) -> Bitext:
    return Bitext.from_pairs([(source, [*target, model.special.end]) for source, target in pairs])


def oracle_segments(model: Model, pairs: list[Pair], states: list[tuple[Rows, Rows]], links: Links) -> Any:
    return [
        oracle.Segment(source, [*target, model.special.end], links.segment(number), *states[number])
        for number, (source, target) in enumerate(pairs)
    ]
