"""Whether an untuned store ever does harm: base MT beside the default system, with stores of several sizes.

    python benchmarks/small_stores.py DATA --work FOLDER          # DATA/koran/train.de, dev.de, … of each domain
    python benchmarks/small_stores.py DATA --work FOLDER --split test
    python benchmarks/small_stores.py --catalogs --work FOLDER    # the demo's packages, each unknown to the others

A store has the first pairs of a domain's training text. Both directions, each with its embedded model; nothing is
tuned. p is that of a paired bootstrap. Stores stay in FOLDER and are used again.
"""

import argparse
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table

from knnmt import Datastore, Translator
from knnmt.build.settings import BuildSettings
from knnmt.evaluate import count
from knnmt.lab import demo
from knnmt.model.checkpoint import Model, load
from knnmt.store.manifest import MANIFEST

DOMAINS = ("koran", "it", "subtitles", "bible")
SIZES = (200, 2_000, 20_000)
LANGS = ("de-en", "en-de")
METRICS = ("BLEU", "chrF2")
Pair = tuple[str, str]


class Case(NamedTuple):
    """A store's pairs, and pairs that are translated with it. Both are German and English."""

    name: str
    memory: list[Pair]
    text: list[Pair]


def domains(data: Path, split: str, segments: int) -> Iterator[Case]:
    """The first pairs of each domain, at each size."""
    for name, size in itertools.product(DOMAINS, SIZES):
        memory, text = (pairs(data / name / part, count) for part, count in (("train", size), (split, segments)))
        yield Case(f"{name}-{size}", memory, text)


def pairs(path: Path, count: int) -> list[Pair]:
    """The first pairs of two files."""
    with path.with_suffix(".de").open(encoding="utf-8") as german, path.with_suffix(".en").open() as english:
        lines = zip(german, english, strict=True)
        return [(one.strip(), other.strip()) for one, other in itertools.islice(lines, count)]


def packages(segments: int) -> Iterator[Case]:
    """The strings of each of the demo's packages, with those of the other packages as memory."""
    of = {name: [(one.source, one.target) for one in demo.strings(name)] for name in demo.PACKAGES}
    for name, own in of.items():
        known = {side for pair in own for side in pair}
        others = [pair for other in demo.PACKAGES if other != name for pair in of[other]]
        memory = [pair for pair in dict.fromkeys(others) if known.isdisjoint(pair)]
        text = list(dict.fromkeys(own))
        random.Random(1).shuffle(text)
        yield Case(name, memory, text[:segments])


def store(case: Case, langs: str, model: Model, folder: Path) -> Datastore:
    """The store of a case, built unless it is there."""
    place = folder / f"{case.name}-{langs}"
    if (place / MANIFEST).exists():
        return Datastore(place)
    folder.mkdir(parents=True, exist_ok=True)
    corpus = place.with_suffix(".jsonl")
    lines = (json.dumps({"source": source, "target": target}) + "\n" for source, target in turned(case.memory, langs))
    corpus.write_text("".join(lines), encoding="utf-8")
    return Datastore.build(corpus, out=place, langs=langs, model=model, settings=BuildSettings(systems=("similar",)))


def turned(pairs: list[Pair], langs: str) -> list[Pair]:
    """German and English pairs as source and target."""
    return pairs if langs == LANGS[0] else [(english, german) for german, english in pairs]


def main() -> None:
    """Translate, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--catalogs", action="store_true")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--split", choices=("dev", "test"), default="dev")
    parser.add_argument("--segments", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    if (given.data is None) != given.catalogs:
        parser.error("name DATA or --catalogs")
    torch.set_num_threads(given.threads)
    cases = packages(given.segments) if given.catalogs else domains(given.data, given.split, given.segments)
    table = Table(
        "memory",
        "direction",
        "pairs",
        *(f"{head}{name}" for name in METRICS for head in ("base MT: ", "default: ", "p, ")),
    )
    base: dict[tuple[str, tuple[Pair, ...]], list[str]] = {}
    models = {langs: load("mini", langs=langs, device="cpu") for langs in LANGS}
    console = Console()
    for case, langs in itertools.product(cases, LANGS):
        model = models[langs]
        sources, references = map(list, zip(*turned(case.text, langs), strict=True))
        plain = base.setdefault((langs, tuple(case.text)), [])
        plain += [] if plain else [each.text for each in Translator(model).translate(sources)]
        adapted = Translator(model, store(case, langs, model, given.work))
        found = [each.text for each in adapted.translate(sources)]
        compared = count({"base": plain, "adapted": found}, references, metrics=METRICS).compared("base")
        figures = [f"{x.value:.1f} {y.value:.1f} {y.p:.3f}".split() for x, y in zip(*compared.values(), strict=True)]
        row = case.name, langs, f"{len(case.memory):,}", *itertools.chain.from_iterable(figures)
        console.print(*row)
        table.add_row(*row)
    console.print(table)


if __name__ == "__main__":
    main()
