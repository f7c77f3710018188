"""Compare knnmt's aligner with systran-align, a packaged FastAlign: the same links, and how long it takes.

    python benchmarks/align.py train.de train.en --model models/mini-de-en

Both sides are cut with the model's own tokenizer, `</s>` at the end. Times are of training and aligning the
whole corpus, in both directions, round by round in turn; compiling is timed apart. Without systran-align
(`pip install systran-align`, Python 3.11 at most) only knnmt is measured.

Two things about the reference bear on how well the links agree. The table that it saves has no tension, so that
its aligner always uses 4, whatever its training found: links are compared as they are, and with knnmt's tension
set back to 4. And unless told otherwise it saves only probabilities within a factor e⁴ of the best ("pruned"
below), which changes its own links: the last F1, of the reference with itself, is as much as any model can reach.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from knnmt.align.bitext import Bitext, Links
from knnmt.align.fastalign import Aligner, train
from knnmt.align.settings import AlignSettings

systran_align = import_module("systran_align") if find_spec("systran_align") else None

PRUNED, WHOLE = -4.0, -1000.0  # logarithms, relative to the best


def read_bitext(source: Path, target: Path, model: Path, limit: int | None) -> Bitext:
    """Tokenise two files of one segment a line."""
    from transformers import MarianTokenizer

    tokenizer = MarianTokenizer.from_pretrained(model)
    sides = [path.read_text(encoding="utf-8").split("\n")[:-1][:limit] for path in (source, target)]
    return Bitext.from_pairs(zip(tokenizer(sides[0]).input_ids, tokenizer(text_target=sides[1]).input_ids, strict=True))


def as_text(bitext: Bitext) -> list[list[list[str]]]:
    """Return the segments of either side as lists of ids in letters, which is what the reference reads."""
    sides = (bitext.source_ids, bitext.source_offsets), (bitext.target_ids, bitext.target_offsets)
    return [[part.astype(str).tolist() for part in np.split(ids, offsets[1:-1])] for ids, offsets in sides]


def align_by_reference(text: list[list[list[str]]], threshold: float) -> Links:
    """Train systran-align on a bitext and align it, as `fast_align -d -o -v`."""
    assert systran_align is not None
    with tempfile.TemporaryDirectory() as folder:
        corpus, forward, backward = (str(Path(folder) / name) for name in ("corpus", "forward", "backward"))
        with Path(corpus).open("w", encoding="ascii") as file:
            for source, target in zip(*text, strict=True):
                file.write(f"{' '.join(source)} ||| {' '.join(target)}\n")
        systran_align.generate_alignment_probabilities(
            corpus,
            forward,
            backward,
            favor_diagonal=True,
            variational_bayes=True,
            optimize_tension=True,
            beam_threshold=threshold,
        )
        found = systran_align.Aligner(forward, backward).align_batch(*text)
    points = [sorted(segment["alignments"], key=lambda point: point[::-1]) for segment in found]
    flat = np.array([point for segment in points for point in segment], np.int32).reshape(-1, 2)
    return Links(flat[:, 0], flat[:, 1], np.cumsum([0, *map(len, points)]))


def f1(one: Links, other: Links) -> float:
    """Return the F1 of two sets of links."""
    common = np.intersect1d(keys(one), keys(other), assume_unique=True).size
    return float(2 * common / (one.source.size + other.source.size))


def keys(links: Links) -> NDArray[np.int64]:
    """Return a number for each link: (L,) int64."""
    segment = np.repeat(np.arange(len(links)), np.diff(links.offsets))
    return np.asarray((segment << 32) + (links.source.astype(np.int64) << 16) + links.target, np.int64)


def coverage(links: Links, bitext: Bitext) -> float:
    """Return the share of target tokens that have a link."""
    return float(np.unique(keys(links) & ~0xFFFF0000).size / bitext.target_ids.size)


def seconds(work: Callable[[], object]) -> float:
    """Return how long some work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("source", type=Path, help="source segments, one a line")
    parser.add_argument("target", type=Path, help="their translations")
    parser.add_argument("--model", type=Path, required=True, help="folder of a Marian model, for its tokenizer")
    parser.add_argument("--rounds", type=int, default=3, help="timed rounds of each aligner, in turn")
    parser.add_argument("--limit", type=int, help="use only the first segments")
    arguments = parser.parse_args()

    bitext = read_bitext(arguments.source, arguments.target, arguments.model, arguments.limit)
    print(f"{len(bitext)} segments, {bitext.source_ids.size} source and {bitext.target_ids.size} target tokens")
    bare = AlignSettings(cover=False)
    one = Bitext.from_pairs(zip([[1, 0]], [[1, 0]], strict=True))
    print(f"first call: {seconds(lambda: train(one, bare).align(one)):.1f} s (compiles, or reads what it compiled)")

    aligner = train(bitext, bare)
    links = aligner.align(bitext)
    tensions = ", ".join(f"{tension:.2f}" for tension in aligner.tensions)
    print(f"knnmt: {links.source.size} links of {coverage(links, bitext):.1%} of target tokens; tensions {tensions}")
    text = as_text(bitext) if systran_align else []

    def knnmt() -> None:
        train(bitext, bare).align(bitext)

    def reference() -> None:
        align_by_reference(text, PRUNED)

    if systran_align:
        at_four: Aligner = replace(aligner, tensions=np.array([4.0, 4.0]))
        alike = at_four.align(bitext)
        references = {"whole": align_by_reference(text, WHOLE), "pruned": align_by_reference(text, PRUNED)}
        for name, theirs in references.items():
            print(f"{name} table: the reference links {coverage(theirs, bitext):.1%} of target tokens")
            print(f"  F1 {f1(links, theirs):.3f}  as they are")
            print(f"  F1 {f1(alike, theirs):.3f}  knnmt's tension set back to 4")
        print(f"F1 {f1(*references.values()):.3f}  the reference's two tables with each other")
    else:
        print("systran-align is not installed: nothing to compare with")

    print(f"load before timing: {os.getloadavg()[0]:.2f}")
    times = [(seconds(knnmt), seconds(reference) if systran_align else float("nan")) for _ in range(arguments.rounds)]
    for number, (mine_s, theirs_s) in enumerate(times, 1):
        print(f"round {number}: knnmt {mine_s:.2f} s, systran-align {theirs_s:.2f} s, {theirs_s / mine_s:.1f} times")
    print(f"median: {statistics.median(theirs_s / mine_s for mine_s, theirs_s in times):.1f} times as fast")


if __name__ == "__main__":
    main()
