"""Commands about parallel text: stats, align, shortlist."""

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knnmt import terminal
from knnmt.cli.app import CorpusArgument, JsonOption, ModelOption, PairOption, app, load_model
from knnmt.cli.options import Command, Fields, options
from knnmt.errors import UsageError

if TYPE_CHECKING:
    from knnmt.align.settings import AlignSettings
    from knnmt.corpus import Segment
    from knnmt.model.checkpoint import Model
    from knnmt.model.lexicon import LexiconSettings

HELD_OUT = 100  # one of so many segments
Pair = tuple[list[int], list[int]]
"""The ids of a segment's source and target."""


@app.command()
def stats(
    corpus: CorpusArgument,
    langs: PairOption,
    model: Annotated[str | None, typer.Option("--model", "-m", help="Count this model's tokens, not words.")] = None,
    clean: Annotated[bool, typer.Option(help="Drop bad translation pairs, and count them.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Describe a parallel corpus. Segments, source lengths, tokens, types and their frequencies."""
    from knnmt import corpus as corpora

    languages = corpora.Languages.parse(langs)
    segments = corpora.read_all(corpus, languages)
    tokenize: Any = str.split
    if model is not None:
        tokenize = load_model(model, langs, "cpu", "float32", None).tokenizer.tokenize
    report = corpora.CleanReport()
    if clean:
        length = (lambda text: len(tokenize(text))) if model is not None else corpora.count_words
        segments = corpora.clean(segments, languages, length=length, report=report)
    found = corpora.statistics(terminal.watched(segments, "reading"), tokenize)
    if as_json:
        dropped = {"dropped": {reason.value: count for reason, count in report.dropped.items()}} if clean else {}
        typer.echo(json.dumps(asdict(found) | dropped, indent=2))
        return
    table = terminal.table("", ", ".join(path.name for path in corpus))
    for label, value in (
        ("sentence pairs", f"{found.pairs:,}"),
        ("longest source segment", f"{found.longest:,}"),
        ("mean source segment", f"{found.mean_length:.1f}"),
        ("source tokens", f"{found.tokens:,}"),
        ("token types", f"{found.types:,}"),
        ("highest type frequency", f"{found.highest_frequency:,}"),
        ("mean type frequency", f"{found.mean_frequency:.1f}"),
    ):
        table.add_row(label, value)
    terminal.show(table)
    if clean:
        typer.echo(str(report))


@app.command(cls=Command)
@options(settings=Fields("align.settings:AlignSettings", "cover"))
def align(
    *,
    corpus: CorpusArgument,
    langs: PairOption,
    output: Annotated[Path, typer.Option("--output", "-o", help="Output file in Pharaoh format.")],
    model: ModelOption = "mini",
    settings: "AlignSettings",
    load: Annotated[Path | None, typer.Option(help="Use saved parameters instead of training.")] = None,
    save: Annotated[Path | None, typer.Option(help="Save the trained parameters.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Align the tokens of a parallel corpus. The FastAlign model, on the pieces of a model's tokenizer."""
    from knnmt import corpus as corpora
    from knnmt.align.bitext import Bitext
    from knnmt.align.fastalign import Aligner, train
    from knnmt.align.links import cover, symmetrise
    from knnmt.align.pharaoh import pharaoh_lines

    if load is not None and save is not None:
        raise UsageError("--load and --save exclude each other: --save writes what training found")
    if save is not None and not save.parent.is_dir():
        raise UsageError(f"cannot write {save}: no folder {save.parent}")
    aligner = Aligner.load(load) if load is not None else None
    segments = corpora.read_all(corpus, corpora.Languages.parse(langs))
    with terminal.writing(output, *corpus) as out:
        loaded = load_model(model, langs, "cpu", "float32", None)
        bitext = Bitext.from_pairs(_ids(terminal.watched(segments, "reading"), loaded))
        if not len(bitext):
            raise UsageError("nothing to align: the corpus has no segments")
        aligner = aligner or train(bitext, settings)
        links = symmetrise(bitext, *aligner.best(bitext))
        out.writelines(pharaoh_lines(cover(links, bitext) if settings.cover else links))
    if save is not None:
        aligner.save(save)
    tokens, linked = int(bitext.target_offsets[-1]), links.linked
    report = {"segments": len(bitext), "target_tokens": tokens, "aligned_target_tokens": linked}
    share = f"{len(bitext):,} segments; {linked / tokens:.1%} of {tokens:,} target tokens aligned"
    typer.echo(json.dumps(report) if as_json else share, err=not as_json or str(output) == "-")


@app.command(cls=Command)
@options(settings=Fields("model.lexicon:LexiconSettings", "per_type", "frequent"))
def shortlist(
    *,
    corpus: CorpusArgument,
    langs: PairOption,
    output: Annotated[Path, typer.Option("--output", "-o", help="Output file, for --shortlist of other commands.")],
    model: ModelOption = "mini",
    settings: "LexiconSettings",
    as_json: JsonOption = False,
) -> None:
    """Make a shortlist file for a model. It speeds up `translate` and `serve` with large vocabularies, on a CPU."""
    from knnmt import corpus as corpora
    from knnmt.align.bitext import Bitext
    from knnmt.align.fastalign import train
    from knnmt.align.links import symmetrise
    from knnmt.model.lexicon import Lexicon

    if not output.parent.is_dir():
        raise UsageError(f"cannot write {output}: no folder {output.parent}")
    segments = corpora.read_all(corpus, corpora.Languages.parse(langs))
    loaded = load_model(model, langs, "cpu", "float32", None)
    held_out: list[Pair] = []  # to tell how much of other text the lists cover
    pairs = _but_held_out(_ids(terminal.watched(segments, "reading"), loaded), held_out)
    bitext = Bitext.from_pairs(pairs)
    if not len(bitext):
        raise UsageError("nothing to align: the corpus has no segments")
    links = symmetrise(bitext, *train(bitext).best(bitext))
    types = loaded.transformer.architecture.source_vocabulary
    made = Lexicon.count(bitext, links, loaded.tokenizer.fingerprint, types, settings)
    made.save(output)
    trusted, covered = int(made.trusted.sum()), made.coverage(held_out) if held_out else None
    report = {
        "segments": len(bitext), "source_types": trusted, "pairs": made.targets.size,
        "held_out": len(held_out), "coverage": covered,
    }  # fmt: skip
    shown = f"{len(bitext):,} segments; {made.targets.size:,} translations of {trusted:,} source types"
    if covered is not None:
        shown += f"; lists cover {covered:.2%} of the target tokens in {len(held_out):,} held-out segments"
    typer.echo(json.dumps(report) if as_json else shown, err=not as_json)


def _but_held_out(pairs: "Iterator[Pair]", held_out: list[Pair]) -> "Iterator[Pair]":
    """All pairs but one of HELD_OUT, which are put into a list."""
    for number, pair in enumerate(pairs, start=1):
        if number % HELD_OUT:
            yield pair
        else:
            held_out.append(pair)


def _ids(segments: "Iterable[Segment]", loaded: "Model") -> "Iterator[Pair]":
    """Both sides of segments in a model's pieces, `</s>` at the end of each."""
    stream = iter(segments)
    while some := list(itertools.islice(stream, 10_000)):
        sources = loaded.tokenizer.encode_source([segment.source for segment in some])
        targets = loaded.tokenizer.encode_target([segment.target for segment in some])
        yield from ((s, [*t, loaded.special.end]) for s, t in zip(sources, targets, strict=True))
