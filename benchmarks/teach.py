"""Teach a store segments one at a time: does the next translation of each come out as taught, and do others stay?

    python benchmarks/teach.py STORE dev.de dev.en --segments 200 --system auto --compact

Works on a copy of the store. A segment counts as equal when the translation is the taught target after the tokenizer's
round trip. Before and after each lesson another segment is translated, which was not taught: it should not change.
"""

import argparse
import json
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import torch

from knnmt import Datastore, RetrievalSettings, Segment, Translator
from knnmt.errors import DataError


def main() -> None:
    """Teach, translate, and print what came out as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--model", default="mini-de-en")
    parser.add_argument("--segments", type=int, default=200)
    parser.add_argument(
        "--others", type=int, default=100, help="segments from the end of the files that are not taught"
    )
    parser.add_argument("--system", default="auto")
    parser.add_argument("--settings", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compact", action="store_true", help="fold the lessons in, and translate them again")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    settings = RetrievalSettings.load(given.settings) if given.settings else None
    with tempfile.TemporaryDirectory(prefix="knnmt-teach-") as folder:
        store = Datastore.open(shutil.copytree(given.store, Path(folder) / "store"))
        translator = Translator(given.model, store, system=given.system, retrieval=settings)
        lines = zip(
            *(path.read_text(encoding="utf-8").splitlines() for path in (given.source, given.target)), strict=True
        )
        pairs = list(lines)
        print(json.dumps(taught(translator, pairs, given.segments, given.others, given.compact), indent=2))


def taught(
    translator: Translator, pairs: list[tuple[str, str]], count: int, others: int, compact: bool
) -> dict[str, object]:
    """What came of teaching the first `count` pairs that the model takes."""
    tokenizer, rng = translator.model.tokenizer, random.Random(1)
    untouched = [source for source, _ in pairs[-others:]]
    before = [result.text for result in translator.translate(untouched)]
    wanted: dict[str, str] = {}
    seconds: list[float] = []
    equal, unchanged, refused = 0, 0, 0
    for source, target in pairs[:-others]:
        if len(seconds) == count:
            break
        began = time.perf_counter()
        try:
            translator.add([Segment(source, target, "a lesson")])
        except DataError:  # too long for the model
            refused += 1
            continue
        seconds.append(time.perf_counter() - began)
        wanted[source] = tokenizer.decode(tokenizer.encode_target([" ".join(target.split())])[0])
        equal += translator.translate([source])[0].text == wanted[source]
        other = rng.randrange(others)
        now = translator.translate([untouched[other]])[0].text
        unchanged += now == before[other]
        before[other] = now
    found: dict[str, object] = {
        "system": translator.retriever.settings.system if translator.retriever is not None else "base",
        "taught": len(seconds),
        "refused": refused,
        "next translation equal": equal / len(seconds),
        "another one unchanged": unchanged / len(seconds),
        "add, median ms": 1000 * statistics.median(seconds),
        "add, 95th percentile ms": 1000 * sorted(seconds)[int(0.95 * len(seconds))],
        "add, first ms": 1000 * seconds[0],
        "all at the end equal": again(translator, wanted),
    }
    if compact and translator.store is not None:
        began = time.perf_counter()
        translator.store.compact(translator.model)
        found |= {"compact, seconds": time.perf_counter() - began, "after compacting equal": again(translator, wanted)}
    return found


def again(translator: Translator, wanted: dict[str, str]) -> float:
    """The share of taught segments that come out as they were taught."""
    results = translator.translate(list(wanted))
    return sum(result.text == text for result, text in zip(results, wanted.values(), strict=True)) / len(wanted)


if __name__ == "__main__":
    main()
