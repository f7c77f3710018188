"""Is what is taught used? Teach a store segments; see whether each comes out as taught, and whether others stay.

    python benchmarks/teach.py STORE dev.de dev.en --segments 100 --others 250 --compact
    python benchmarks/teach.py STORE dev.de dev.en --systems similar,faster --lambdas 0.3,0.8 --beams 1,5

Works on a copy of the store. First segments are taught one at a time: after each, its translation by the default
system, and that of another segment, which should not change. Then all that was taught is translated by each system
with each λ and number of beams; `tuned` as a λ is what the store was tuned to, `default` the system's own. With
--compact that is done again after compaction. A segment counts as equal when its translation is the taught target after
the tokenizer's round trip. 100% matches are switched off: what is measured is the decoding.
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

from knnmt import Datastore, RetrievalSettings, Segment, TranslateSettings, Translator


def main() -> None:
    """Teach, translate, and print what came out as JSON, a line each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--model", default="mini-de-en")
    parser.add_argument("--segments", type=int, default=100)
    parser.add_argument("--one-at-a-time", type=int, default=100, help="of these, taught one by one; 0: all at once")
    parser.add_argument("--others", type=int, default=250, help="segments from the end of the files, not taught")
    parser.add_argument("--systems", default="auto")
    parser.add_argument("--lambdas", default="default")
    parser.add_argument("--beams", default="5")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compact", action="store_true", help="fold the lessons in, and translate them again")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    sides = (path.read_text(encoding="utf-8").splitlines() for path in (given.source, given.target))
    pairs = list(zip(*sides, strict=True))
    others = [source for source, _ in pairs[-given.others :]]
    lessons = dict(pairs[: -given.others])  # a source once
    taught = [(source, lessons[source]) for source in list(lessons)[: given.segments]]
    ways = [
        (system, weight, int(beam))
        for system in given.systems.split(",")
        for weight in given.lambdas.split(",")
        for beam in given.beams.split(",")
    ]
    with tempfile.TemporaryDirectory(prefix="knnmt-teach-") as folder:
        path = shutil.copytree(given.store, Path(folder) / "store")
        translator = Translator(given.model, path)
        before = {way: translated(using(translator, path, *way), others, way[2]) for way in ways}
        if given.one_at_a_time:
            report("one at a time", one_by_one(translator, taught[: given.one_at_a_time], others))
        translator.add([Segment(source, target) for source, target in taught[given.one_at_a_time :]])
        for step in ("at once", "reopened", "compacted")[: 3 if given.compact else 2]:
            if step == "compacted":
                began = time.perf_counter()
                Datastore.open(path).compact(translator.model)
                report("compact", {"seconds": time.perf_counter() - began})
            store = translator.store if step == "at once" else Datastore.open(path)
            assert isinstance(store, Datastore)
            for way in ways:
                report(step, dict(zip(("system", "lambda", "beam"), way, strict=True)) | as_taught(
                    using(translator, store, *way), taught, others, before[way], way[2]
                ))  # fmt: skip


def using(translator: Translator, store: "Path | Datastore", system: str, weight: str, beam: int) -> Translator:
    """A translator by a system with a λ."""
    match weight:
        case "tuned":
            return Translator(translator.model, store)
        case "default":
            settings = RetrievalSettings(system=system)
        case _:
            settings = RetrievalSettings(system=system).weighing(float(weight))
    return Translator(translator.model, store, retrieval=settings)


def translated(translator: Translator, texts: list[str], beam: int = 5) -> list[str]:
    """Translations by the decoding alone."""
    settings = TranslateSettings(beam=beam, exact=False, spans=False, sentences=False)
    return [found.text for found in translator.translate(texts, settings)]


def wanted(translator: Translator, target: str) -> str:
    """A taught target as a translation can have it."""
    tokenizer = translator.model.tokenizer
    return tokenizer.decode(tokenizer.encode_target([" ".join(target.split())])[0])


def one_by_one(translator: Translator, taught: list[tuple[str, str]], others: list[str]) -> dict[str, object]:
    """What came of teaching pairs one after the other."""
    rng, seconds, equal, unchanged = random.Random(1), list[float](), 0, 0
    before = translated(translator, others)
    for source, target in taught:
        began = time.perf_counter()
        translator.add([Segment(source, target)])
        seconds.append(time.perf_counter() - began)
        equal += translated(translator, [source])[0] == wanted(translator, target)
        other = rng.randrange(len(others))
        now = translated(translator, [others[other]])[0]
        unchanged += now == before[other]
        before[other] = now
    return {
        "taught": len(taught), "equal": equal, "another one unchanged": unchanged,
        "add, median ms": 1000 * statistics.median(seconds), "add, first ms": 1000 * seconds[0],
    }  # fmt: skip


def as_taught(
    translator: Translator, taught: list[tuple[str, str]], others: list[str], before: list[str], beam: int
) -> dict[str, object]:
    """How many of the lessons come out as taught, and how many of the others otherwise than before all lessons."""
    found = translated(translator, [source for source, _ in taught], beam)
    equal = sum(text == wanted(translator, target) for text, (_, target) in zip(found, taught, strict=True))
    now = translated(translator, others, beam)
    changed = sum(one != other for one, other in zip(before, now, strict=True))
    return {"taught": len(taught), "equal": equal, "others": len(others), "changed": changed}


def report(step: str, found: dict[str, object]) -> None:
    """A line of JSON."""
    print(json.dumps({"step": step, **found}), flush=True)


if __name__ == "__main__":
    main()
