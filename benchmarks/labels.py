"""How well a model translates the strings of a user interface, with no datastore: labels, placeholders, BLEU.

    python benchmarks/labels.py [--model MODEL] [--langs de-en] [--trained-on CATALOGS.tsv]

The strings are the demo's catalogs (`pip install --no-deps -r demo-requirements.txt`). Without --langs both directions
of German and English are measured, each with the embedded model.

* Labels: 200 entries of one or two words, letters only, no side twice. The share whose translation is the reference,
  exactly and ignoring case. A label has several good translations, so 100% is out of reach.
* Placeholders: all strings that have placeholders or tags, through the bare model: nothing is protected, no sentence is
  split off. The share that comes out with a placeholder lost, added or altered.
* BLEU of base MT on the strings that `knnmt demo` holds out, all of them, without placeholders and with.

With --trained-on, strings that the training file has as a pair (in any case) are counted apart.
"""

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from knnmt import Segment, Translator
from knnmt.decode.settings import TranslateSettings
from knnmt.evaluate import bleu
from knnmt.lab import demo
from knnmt.model.checkpoint import load
from knnmt.model.embedded import DEFAULT

LABELS = 200
LABEL = re.compile(r"[^\W\d_]+(?: [^\W\d_]+)?")
BARE = TranslateSettings(spans=False, sentences=False)
# Written for these catalogs and independent of what knnmt protects, which is not to judge itself.
PLACEHOLDER = re.compile(r"%\(\w+\)[a-z]|%[sdi]|\{\{.*?\}\}|\{%.*?%\}|\{[^{}]*\}|</?[a-zA-Z][^<>]*>|&#?\w+;")
Sides = frozenset[str]  # both sides of a pair in lower case, in whichever direction
Row = tuple[str, str, str]  # what is measured, on how many strings, the figure


def main() -> None:
    """Measure each direction and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT, help="default: the embedded model of the direction")
    parser.add_argument("--langs", choices=("de-en", "en-de"), help="default: both")
    parser.add_argument("--trained-on", type=Path, help="TSV of German, English: what the model saw in training")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    if given.model != DEFAULT and given.langs is None:
        parser.error("--model needs --langs: a model translates in one direction")
    torch.set_num_threads(given.threads)
    seen = pairs(given.trained_on) if given.trained_on else set()
    for langs in [given.langs] if given.langs else ["de-en", "en-de"]:
        translator = Translator(load(given.model, langs=langs, device="cpu"))
        table = Table("measure", "strings", title=f"{given.model}, {langs}")
        table.add_column(langs, justify="right")
        for row in measured(translator, langs, seen):
            table.add_row(*row)
        Console(width=100).print(table)


def measured(translator: Translator, langs: str, seen: set[Sides]) -> Iterable[Row]:
    """The rows of a direction; `seen` are pairs that the model was trained on."""
    german = langs == "de-en"
    known, unknown = (one if german else one.reversed() for one in demo.catalogs())
    segments = [segment if german else swapped(segment) for segment in demo.strings(*demo.PACKAGES)]
    yield from label_rows(translator, labels(segments), seen)
    yield placeholder_row(translator, segments)
    for name, catalogs in (("all projects", known), (demo.PACKAGES[-1], unknown)):
        yield from bleu_rows(translator, catalogs.held_out, name, seen)


def labels(segments: Iterable[Segment]) -> list[Segment]:
    """A sample of the labels, the same in both directions but for the side that is the source."""
    pool = {tuple(sorted((s.source, s.target))): s for s in segments if is_label(s)}
    chosen = [pool[key] for key in sorted(pool)]
    random.Random(LABELS).shuffle(chosen)
    used: set[str] = set()
    sample = []
    for segment in chosen:
        if not sides(segment) & used:
            sample.append(segment)
        used |= sides(segment)
    return sample[:LABELS]


def is_label(segment: Segment) -> bool:
    """Whether both sides are one or two words of letters."""
    return all(LABEL.fullmatch(side) for side in (segment.source, segment.target))


def label_rows(translator: Translator, sample: Sequence[Segment], seen: set[Sides]) -> Iterable[Row]:
    """The share of labels that come out as the reference."""
    texts = translated(translator, sample)
    parts: dict[str, Sequence[int]] = {"labels": range(len(sample))}
    if seen:
        parts["labels in training"] = [n for n, segment in enumerate(sample) if sides(segment) in seen]
        parts["labels not in training"] = [n for n, segment in enumerate(sample) if sides(segment) not in seen]
    for name, chosen in parts.items():
        exact = sum(texts[n] == sample[n].target for n in chosen)
        alike = sum(texts[n].lower() == sample[n].target.lower() for n in chosen)
        yield f"{name}, exact", str(len(chosen)), share(exact, len(chosen))
        yield f"{name}, ignoring case", str(len(chosen)), share(alike, len(chosen))


def placeholder_row(translator: Translator, segments: Iterable[Segment]) -> Row:
    """The share of strings whose placeholders the bare model loses or alters."""
    marked = list({s.source: s for s in segments if PLACEHOLDER.search(s.source)}.values())
    texts = translated(translator, marked, BARE)
    damaged = sum(placeholders(s.source) != placeholders(text) for s, text in zip(marked, texts, strict=True))
    return "placeholders lost or altered, bare model", f"{len(marked):,}", share(damaged, len(marked))


def placeholders(text: str) -> Counter[str]:
    """The placeholders and tags of a text; their order is free."""
    return Counter(PLACEHOLDER.findall(text))


def bleu_rows(translator: Translator, segments: Sequence[Segment], name: str, seen: set[Sides]) -> Iterable[Row]:
    """BLEU as the demo has it: of all strings, of those without placeholders, of those with."""
    texts = translated(translator, segments)
    marked = {n for n, segment in enumerate(segments) if demo.PLACEHOLDER.search(segment.source)}
    every = range(len(segments))
    parts = {"": every, ", without placeholders": sorted(set(every) - marked), ", with": sorted(marked)}
    if seen:
        parts[", not in training"] = [n for n in every if sides(segments[n]) not in seen]
    for suffix, chosen in parts.items():
        score = bleu([texts[n] for n in chosen], [segments[n].target for n in chosen])
        yield f"BLEU, {name}{suffix}", str(len(chosen)), f"{score.value:.1f}"


def translated(
    translator: Translator, segments: Sequence[Segment], settings: TranslateSettings | None = None
) -> list[str]:
    """The translations of the sources."""
    return [found.text for found in translator.translate([segment.source for segment in segments], settings)]


def pairs(path: Path) -> set[Sides]:
    """The pairs of a training file."""
    with path.open(encoding="utf-8") as lines:
        return {frozenset(line.lower().rstrip("\n").split("\t")[:2]) for line in lines}


def sides(segment: Segment) -> Sides:
    """A segment as a pair of no direction and no case."""
    return frozenset((segment.source.lower(), segment.target.lower()))


def swapped(segment: Segment) -> Segment:
    """The other direction."""
    return replace(segment, source=segment.target, target=segment.source)


def share(part: int, whole: int) -> str:
    """A percentage."""
    return f"{100 * part / max(1, whole):.1f}%"


if __name__ == "__main__":
    main()
