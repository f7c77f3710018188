"""The command line: each command is a few lines that call the library, which is imported only then.

Exit codes: 0 fine, 1 failed, 2 wrong use; 130 after Ctrl-C.
"""

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperGroup

from knnmt.errors import DataError, KnnmtError, UsageError

if TYPE_CHECKING:
    from rich.table import Table

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
        source, out = stack.enter_context(_reading(input)), stack.enter_context(_writing(output, input))
        translator = _translator(model, langs, device, dtype, threads)
        typing = input is None and source.isatty()
        window = 1 if typing else window
        texts = _lines(source, str(input or "standard input"))
        bar = stack.enter_context(_bar("translating", _count_lines(source), quiet=typing))
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

    references = _read_lines(reference)
    named = {str(path): _read_lines(path) for path in systems}
    if len(named) < len(systems):
        raise UsageError("the same file is named twice: give each system once")
    scores = score(named, references)
    if as_json:
        typer.echo(json.dumps({name: [asdict(s) for s in found] for name, found in scores.items()}, indent=2))
        return
    metrics = next(iter(scores.values()))
    table = _table("system", *(s.metric for s in metrics))
    for name, found in scores.items():
        cells = [f"{s.value:.2f}" + (f" ±{s.interval:.2f}" if s.interval is not None else "") for s in found]
        table.add_row(
            name, *(cell + (f" p={s.p:.3f}" if s.p is not None else "") for cell, s in zip(cells, found, strict=True))
        )
    _show(table)
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
    found = corpora.statistics(_watched(segments, "reading"), tokenize)
    if as_json:
        dropped = {"dropped": {reason.value: count for reason, count in report.dropped.items()}} if clean else {}
        typer.echo(json.dumps(asdict(found) | dropped, indent=2))
        return
    table = _table("", ", ".join(path.name for path in corpus))
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
    _show(table)
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
    with _writing(output, *corpus) as out:
        bitext = aligning.Bitext.from_pairs(_ids(_watched(segments, "reading"), model, langs))
        if not len(bitext):
            raise UsageError("there is nothing to align: the corpus has no segments")
        aligner = aligner or aligning.train(bitext)
        links = aligning.symmetrise(bitext, *aligner.best(bitext))
        out.writelines(aligning.pharaoh_lines(aligning.cover(links, bitext) if cover else links))
    if save is not None:
        aligner.save(save)
    tokens = int(bitext.target_offsets[-1])
    report = {"segments": len(bitext), "target_tokens": tokens, "aligned_target_tokens": links.linked}
    share = f"{len(bitext):,} segments; {links.linked / tokens:.1%} of {tokens:,} target tokens aligned"
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
    with _bar("translating", len(held_out)) as bar:
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
    table = _table("German", "English by its translators", "base MT")
    short = [pair for pair in zip(held_out, found, strict=True) if 15 <= len(pair[0].source) <= 60]
    for segment, translation in short[:10]:
        table.add_row(segment.source, segment.target, translation.text)
    _show(table)
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


@contextlib.contextmanager
def _bar(label: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Callable[[int], None] | None]:
    """A bar on standard error, where that is a terminal: something to call with the work done since the last call."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[rate]}"), progress.TimeElapsedColumn(), progress.TimeRemainingColumn(),
    )  # fmt: skip
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total, rate="")

        def advance(done: int) -> None:
            bar.advance(task, done)
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed
            bar.update(task, rate=f"{speed:,.1f}/s" if speed else "")

        yield advance


def _watched(items: Iterable[Any], label: str) -> Iterator[Any]:
    """The items, counted by a bar."""
    with _bar(label) as bar:
        for number, item in enumerate(items, start=1):
            if bar is not None and number % 1000 == 0:
                bar(1000)
            yield item


def _count_lines(source: IO[bytes]) -> int | None:
    """How many lines are to come, where somebody watches and it can be told without using them up."""
    if not (sys.stderr.isatty() and source.seekable()):
        return None
    start, lines, last = source.tell(), 0, b"\n"
    while block := source.read(1 << 20):
        lines, last = lines + block.count(b"\n"), block[-1:]
    source.seek(start)
    return lines + (last != b"\n")


@contextlib.contextmanager
def _reading(path: Path | None) -> Iterator[IO[bytes]]:
    """The bytes of a file, or of standard input."""
    if path is None or str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        source = path.open("rb")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    with source:
        yield source


@contextlib.contextmanager
def _writing(path: Path | None, *inputs: Path | None) -> Iterator[IO[str]]:
    """A file, or standard output, in UTF-8 whatever the locale.

    A file is written beside its place and moved there when all went well; what was there before stays until then.
    """
    if path is None or str(path) == "-":
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        sys.stdout.flush()
        return
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: " + ("it is a folder" if path.is_dir() else f"no folder {path.parent}"))
    if any(given is not None and given.exists() and path.exists() and path.samefile(given) for given in inputs):
        raise UsageError(f"{path} is the input: name another file to write to")
    part = path.with_name(path.name + ".part")
    try:
        out = part.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"cannot write {part}: {error.strerror}") from error
    try:
        with out:
            yield out
        part.replace(path)
    finally:
        if part.exists() and not part.stat().st_size:
            part.unlink()  # a failure leaves what was written so far, if there is any


def _lines(source: IO[bytes], name: str) -> Iterator[str]:
    """Lines without their ends; a byte that is no UTF-8 is refused with its line."""
    for number, line in enumerate(source, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {number}: not UTF-8 ({error.reason}): convert it first, for instance with iconv"
            ) from error


def _read_lines(path: Path) -> list[str]:
    with _reading(path) as source:
        return list(_lines(source, str(path)))


def _table(*heads: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def _show(table: "Table") -> None:
    from rich.console import Console

    Console(markup=False, highlight=False).print(table)  # names and texts may hold brackets


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"knnmt: {message}", err=True)
    raise SystemExit(code)


def main() -> None:
    """The entry point of `knnmt`."""
    app()
