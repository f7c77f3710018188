"""The command line: each command is a few lines that call the library, which is imported only then.

Exit codes: 0 fine, 1 failed, 2 wrong use; 130 after Ctrl-C.
"""

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperGroup

from knnmt import terminal
from knnmt.errors import KnnmtError, UsageError

if TYPE_CHECKING:
    from knnmt.corpus import Segment
    from knnmt.translate import TranslateSettings, Translator


class Commands(TyperGroup):
    """The commands; what goes wrong in one for a known reason is one line on standard error."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KnnmtError as error:
            _fail(str(error), error.exit_code)
        except KeyboardInterrupt:
            _fail("interrupted", 130)
        except BrokenPipeError:  # whoever read our output has gone, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the last flush must not fail again
            raise SystemExit(141) from None
        except OSError as error:
            _fail(f"{error.strerror or error}" + (f": {error.filename}" if error.filename else ""), 1)


app = typer.Typer(
    name="knnmt",
    cls=Commands,
    help="Machine translation that adapts to your own translations at once, without training.",
    epilog="Exit codes: 0 fine, 1 failed, 2 wrong use.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ModelOption = Annotated[
    str,
    typer.Option(
        "--model", "-m", help="mini-de-en (embedded), a model's folder, or a hub id such as Helsinki-NLP/opus-mt-de-en."
    ),
]
LangsOption = Annotated[str | None, typer.Option("--langs", "-l", help="Source and target language, such as de-en.")]
PairOption = Annotated[str, typer.Option("--langs", "-l", help="Source and target language, such as de-en.")]
CorpusArgument = Annotated[
    list[Path],
    typer.Argument(help="TMX, PO, MO, TSV or JSONL files, or plain pairs (X.de for X.de and X.en), also .gz."),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
DtypeOption = Annotated[str, typer.Option(help="auto, float32, float16 or bfloat16.")]
ThreadsOption = Annotated[int | None, typer.Option(min=1, help="CPU threads. [default: all cores]")]
JsonOption = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def _version(asked: bool) -> None:
    if asked:
        from knnmt import __version__

        typer.echo(f"knnmt {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@app.command()
def translate(
    input: Annotated[Path | None, typer.Argument(help="Text, one segment a line; standard input if left out.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write; standard output if left out.")
    ] = None,
    model: ModelOption = "mini-de-en",
    langs: LangsOption = None,
    beam: Annotated[int, typer.Option(help="Beams; 1 is greedy search.")] = 5,
    n_best: Annotated[
        int, typer.Option(help="Translations of each line, written as «line number ||| text ||| score».")
    ] = 1,
    length_penalty: Annotated[
        float | None, typer.Option(help="Divide scores by length to this power. [default: the model's]")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Most tokens of a translation. [default: by the source's length]")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Lines translated together.")] = 32,
    long: Annotated[
        Literal["split", "refuse"], typer.Option(help="Cut lines that are too long for the model, or refuse them.")
    ] = "split",
    window: Annotated[int, typer.Option(min=1, help="Most lines read ahead; 1 answers each line at once.")] = 1024,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Translate text, one segment a line; empty lines stay empty, and the order is kept."""
    settings = _settings(
        beam=beam, n_best=n_best, length_penalty=length_penalty, max_length=max_length, batch_size=batch_size, long=long
    )
    with contextlib.ExitStack() as stack:
        source, out = stack.enter_context(terminal.reading(input)), stack.enter_context(terminal.writing(output, input))
        translator = _translator(model, langs, device, dtype, threads)
        typing = input is None and source.isatty()
        window = 1 if typing else window
        texts = terminal.lines_of(source, str(input or "standard input"))
        bar = stack.enter_context(terminal.bar("translating", terminal.count_lines(source), quiet=typing))
        found_all = translator.stream(texts, settings, window=window, progress=bar)
        for number, found in enumerate(found_all, start=1):
            ranked = (found, *found.alternatives)
            if as_json:
                shown = [{"text": t.text, "score": round(t.score, 5)} for t in ranked]
                out.write(json.dumps({"line": number, "translations": shown}, ensure_ascii=False) + "\n")
            elif n_best > 1:
                out.writelines(f"{number} ||| {t.text} ||| {t.score:.5f}\n" for t in ranked)
            else:
                out.write(found.text + "\n")
            out.flush()


@app.command()
def evaluate(
    reference: Annotated[Path, typer.Argument(help="The right translations, one a line.")],
    systems: Annotated[
        list[Path],
        typer.Argument(help="Translations of one system each; the first is what the others are compared with."),
    ],
    as_json: JsonOption = False,
) -> None:
    """Score translations: BLEU, chrF2 and TER with signatures; several systems by paired bootstrap."""
    from knnmt.evaluate import evaluate as score

    references = terminal.read_lines(reference)
    named = {str(path): terminal.read_lines(path) for path in systems}
    if len(named) < len(systems):
        raise UsageError("the same file is named twice: give each system once")
    scores = score(named, references)
    if as_json:
        typer.echo(json.dumps({name: [asdict(s) for s in found] for name, found in scores.items()}, indent=2))
        return
    metrics = next(iter(scores.values()))
    table = terminal.table("system", *(s.metric for s in metrics))
    for name, found in scores.items():
        cells = [f"{s.value:.2f}" + (f" ±{s.interval:.2f}" if s.interval is not None else "") for s in found]
        table.add_row(
            name, *(cell + (f" p={s.p:.3f}" if s.p is not None else "") for cell, s in zip(cells, found, strict=True))
        )
    terminal.show(table)
    for found_score in metrics:
        typer.echo(f"{found_score.metric}: {found_score.signature}")


@app.command()
def stats(
    corpus: CorpusArgument,
    langs: PairOption,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Count this model's tokens instead of words.")
    ] = None,
    clean: Annotated[bool, typer.Option(help="Drop what is no good translation pair, and say how much.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Describe a parallel corpus: pairs, source lengths, tokens, types and their frequencies."""
    from knnmt import corpus as corpora

    languages = corpora.Languages.parse(langs)
    segments = corpora.read_all(corpus, languages)
    tokenize: Any = str.split
    if model is not None:
        tokenize = _translator(model, langs, "cpu", "float32", None).model.tokenizer.tokenize
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


@app.command()
def align(
    corpus: CorpusArgument,
    langs: PairOption,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write links, «i-j …», one line a segment.")],
    model: ModelOption = "mini-de-en",
    cover: Annotated[bool, typer.Option(help="Link every target token, unaligned ones like their neighbours.")] = True,
    load: Annotated[
        Path | None, typer.Option(help="Align with parameters that were saved, instead of training.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Save the parameters, to align more text with them later.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Align the tokens of a parallel corpus by the FastAlign model, in the pieces of a model's tokenizer."""
    from knnmt import align as aligning
    from knnmt import corpus as corpora

    if load is not None and save is not None:
        raise UsageError("--load uses saved parameters and --save writes new ones: give one of them")
    if save is not None and not save.parent.is_dir():
        raise UsageError(f"cannot write {save}: no folder {save.parent}")
    aligner = aligning.Aligner.load(load) if load is not None else None
    segments = corpora.read_all(corpus, corpora.Languages.parse(langs))
    with terminal.writing(output, *corpus) as out:
        bitext = aligning.Bitext.from_pairs(_ids(terminal.watched(segments, "reading"), model, langs))
        if not len(bitext):
            raise UsageError("there is nothing to align: the corpus has no segments")
        aligner = aligner or aligning.train(bitext)
        links = aligning.symmetrise(bitext, *aligner.best(bitext))
        out.writelines(aligning.pharaoh_lines(aligning.cover(links, bitext) if cover else links))
    if save is not None:
        aligner.save(save)
    tokens, linked = int(bitext.target_offsets[-1]), links.linked
    report = {"segments": len(bitext), "target_tokens": tokens, "aligned_target_tokens": linked}
    share = f"{len(bitext):,} segments; {linked / tokens:.1%} of {tokens:,} target tokens aligned"
    typer.echo(json.dumps(report) if as_json else share, err=not as_json or str(output) == "-")


@app.command()
def demo(
    model: ModelOption = "mini-de-en",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Translate real software strings that no model here was trained on, and score the result."""
    import time

    from knnmt import demo as text
    from knnmt.evaluate import bleu

    catalogs = text.catalogs()
    held_out = catalogs.held_out
    translator = _translator(model, None, "auto", "auto", threads)
    began = time.perf_counter()
    with terminal.bar("translating", len(held_out)) as bar:
        found = list(translator.stream([s.source for s in held_out], progress=bar))
    seconds = time.perf_counter() - began
    score = bleu([t.text for t in found], [s.target for s in held_out])
    if as_json:
        examples = [
            {"source": s.source, "reference": s.target, "base": t.text} for s, t in zip(held_out, found, strict=True)
        ]
        typer.echo(
            json.dumps({"base": asdict(score), "seconds": seconds, "segments": examples}, indent=2, ensure_ascii=False)
        )
        return
    table = terminal.table("German", "English by its translators", "base MT")
    short = [pair for pair in zip(held_out, found, strict=True) if 15 <= len(pair[0].source) <= 60]
    for segment, translation in short[:10]:
        table.add_row(segment.source, segment.target, translation.text)
    terminal.show(table)
    whole = len(held_out) + len(catalogs.memory)
    typer.echo(f"{len(held_out)} of the {whole:,} strings of {', '.join(text.PACKAGES)}, in {seconds:.1f} s")
    typer.echo(f"base MT: BLEU {score.value:.1f} ({score.signature})")


# ------------------------------------------------------------------------------------------- around the commands


def _settings(**given: Any) -> "TranslateSettings":
    from pydantic import ValidationError

    from knnmt.translate import TranslateSettings

    try:
        return TranslateSettings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        option = "".join(f"--{str(part).replace('_', '-')}: " for part in first["loc"])
        raise UsageError(option + first["msg"].removeprefix("Value error, ")) from error


def _translator(model: str, langs: str | None, device: str, dtype: str, threads: int | None) -> "Translator":
    import torch

    from knnmt.translate import Translator

    if threads is not None:
        torch.set_num_threads(threads)
    return Translator(model, device=device, dtype=dtype, langs=langs)


def _ids(segments: "Iterable[Segment]", model: str, langs: str) -> "Iterator[tuple[list[int], list[int]]]":
    """Both sides of segments in a model's pieces, `</s>` at the end of each."""
    loaded = _translator(model, langs, "cpu", "float32", None).model
    stream = iter(segments)
    while some := list(itertools.islice(stream, 10_000)):
        sources = loaded.tokenizer.encode_source([segment.source for segment in some])
        targets = loaded.tokenizer.encode_target([segment.target for segment in some])
        yield from ((s, [*t, loaded.special.end]) for s, t in zip(sources, targets, strict=True))


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"knnmt: {message}", err=True)
    raise SystemExit(code)


def main() -> None:
    """The entry point of `knnmt`."""
    app()
