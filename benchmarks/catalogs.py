"""Translate one software project with the catalogs of others as memory: untuned, and with the settings of `--tune`.

    python benchmarks/catalogs.py --work FOLDER [--strings 500] [--projects oscar]

For each of Django, Wagtail and Oscar a store is built of the other two, tuned as `knnmt build --tune` does, and strings
of the third are translated, German to English. Stores and settings stay in the folder and are used again.

Strings whose source stands in the memory word for word are left out, unless the row says «all strings». «Verbatim» are
translations that are, word for word, the target of a memory segment with another source; those «far» among them have
chrF2 below 40 against their own reference. «Worse» and «better» compare chrF2 of each string with base MT's.
"""

import argparse
import random
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from knnmt import Datastore, Segment, Translator
from knnmt.evaluate import bleu, chrf
from knnmt.lab import demo
from knnmt.model.checkpoint import Model, load
from knnmt.overlap import overlaps
from knnmt.retrieval.tuned import tuned_for
from knnmt.systems.settings import RetrievalSettings
from knnmt.tune.tune import tune_store

FAR = 40.0  # chrF2 of a translation against its reference, below which that is another text
SYSTEMS = ("similar", "knn")
SEED = 1


def main() -> None:
    """Build, tune, translate, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="where stores are kept")
    parser.add_argument("--strings", type=int, default=500, help="of each project, drawn at random")
    parser.add_argument("--projects", nargs="+", default=demo.PACKAGES, choices=demo.PACKAGES)
    parser.add_argument("--systems", nargs="+", default=SYSTEMS)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    given.work.mkdir(parents=True, exist_ok=True)
    model = load("mini-de-en", langs=str(demo.LANGUAGES), device="cpu")
    numbers = ("BLEU", "chrF2", "better", "worse", "verbatim", "far")
    table = Table(title=f"strings of a project that the memory does not know (at most {given.strings})")
    for head in ("project", "strings", "system"):
        table.add_column(head)
    for head in numbers:
        table.add_column(head, justify="right")
    for project in given.projects:
        store = stored(model, project, given.work)
        for cells in measured(model, store, project, given.strings, given.systems):
            table.add_row(*cells)
        table.add_section()
    Console(width=120).print(table)


def stored(model: Model, project: str, work: Path) -> Datastore:
    """A store of the other projects, tuned."""
    path = work / f"without-{project}"
    files = [file for other in demo.PACKAGES if other != project for file in demo.files(other)]
    if not (path / "manifest.json").exists():
        Datastore.build(files, out=path, langs=str(demo.LANGUAGES), model=model)
    store = Datastore.open(path)
    if tuned_for(store) is None:
        tuned = tune_store(model, store)
        for name in tuned.segments:
            scores = [trial.sets[name] for trial in (tuned.base, tuned.untuned, tuned.best)]
            shown = (f"{score.bleu:.1f}/{score.chrf:.1f}" for score in scores)
            print(f"without {project}, {name}, BLEU/chrF2 of base MT, untuned, tuned:", *shown, flush=True)
    return store


def measured(model: Model, store: Datastore, project: str, count: int, systems: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of the table for a project."""
    by_source = {segment.source: segment for segment in demo.strings(project)}
    segments = list(by_source.values())
    known = overlaps(store, [segment.source for segment in segments]).exact
    new = [segment for number, segment in enumerate(segments) if number not in known]
    rows = []
    for which, pool in (("new", new), ("all strings", segments)):
        some = random.Random(SEED).sample(pool, min(count, len(pool)))
        label = f"{len(some)} of {len(pool):,}" + ("" if which == "new" else f", {len(known)} known")
        variants: list[tuple[str, Translator]] = [("base MT", Translator(model))]
        for system in systems if which == "new" else systems[:1]:
            variants.append(
                (f"{system}, untuned", Translator(model, store, retrieval=RetrievalSettings(system=system)))
            )
            tuned = tuned_for(store)
            if tuned is not None and tuned.settings.system == system:
                variants.append((f"{system}, --tune", Translator(model, store)))
        base: list[float] = []
        for name, translator in variants:
            texts = [found.text for found in translator.translate([segment.source for segment in some])]
            rows.append((project, label, name, *figures(store, some, texts, base)))
            print(*rows[-1], sep="  ", flush=True)
    return rows


def figures(store: Datastore, segments: Sequence[Segment], texts: list[str], base: list[float]) -> list[str]:
    """The figures of some translations; `base` takes the first ones' chrF2, which the others are compared with."""
    references = [segment.target for segment in segments]
    each = [chrf([text], [reference]).value for text, reference in zip(texts, references, strict=True)]
    base.extend(each if not base else ())
    better, worse = (sum(sign * (a - b) > 1e-6 for a, b in zip(each, base, strict=True)) for sign in (1, -1))
    sources: dict[str, set[str]] = {}
    for segment in store.segments():
        sources.setdefault(" ".join(segment.target.split()), set()).add(segment.source)
    verbatim = [
        n
        for n, (text, segment) in enumerate(zip(texts, segments, strict=True))
        if sources.get(text, set()) - {segment.source}
    ]
    far = [n for n in verbatim if each[n] < FAR]
    return [
        f"{bleu(texts, references).value:.1f}", f"{chrf(texts, references).value:.1f}",
        str(better), str(worse), str(len(verbatim)), str(len(far)),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
