"""The command line: each command is a few lines that call the library, which is imported only then.

Exit codes: 0 fine, 1 failed, 2 wrong use; 130 after Ctrl-C.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperGroup

from knnmt.errors import DataError, KnnmtError, UsageError

if TYPE_CHECKING:
    from rich.table import Table

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
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Translate text, one segment a line; empty lines stay empty, and the order is kept."""
    settings = _settings(
        beam=beam, n_best=n_best, length_penalty=length_penalty, max_length=max_length, batch_size=batch_size, long=long
    )
    with _reading(input) as source, _writing(output) as out:
        translator = _translator(model, langs, device, dtype, threads)
        typing = input is None and source.isatty()
        texts = _progress(_lines(source, str(input or "standard input")), "translating", quiet=typing)
        for number, found in enumerate(translator.stream(texts, settings, window=1 if typing else 1024), start=1):
            ranked = (found, *found.alternatives)
            if as_json:
                shown = [{"text": t.text, "score": round(t.score, 5)} for t in ranked]
                out.write(json.dumps({"line": number, "translations": shown}, ensure_ascii=False) + "\n")
            elif n_best > 1:
                out.writelines(f"{number} ||| {t.text} ||| {t.score:.5f}\n" for t in ranked)
            else:
                out.write(found.text + "\n")
            if typing:
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
    corpus: Annotated[
        list[Path], typer.Argument(help="TMX, PO, MO, TSV or JSONL files, or plain pairs (X.de for X.de and X.en).")
    ],
    langs: Annotated[str, typer.Option("--langs", "-l", help="Source and target language, such as de-en.")],
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
        tokenizer = _translator(model, langs, "cpu", "float32", None).model.tokenizer
        tokenize = lambda text: tokenizer.encode_source([text])[0]  # noqa: E731
    report = corpora.CleanReport()
    if clean:
        length = (lambda text: len(tokenize(text))) if model is not None else corpora.count_words
        segments = corpora.clean(segments, languages, length=length, report=report)
    found = corpora.statistics(_progress(segments, "reading"), tokenize)
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
def demo(
    model: ModelOption = "mini-de-en",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Translate real software strings that no model here was trained on, and score the result."""
    import time

    from knnmt import demo as text
    from knnmt.evaluate import bleu

    held_out = text.catalogs().held_out
    translator = _translator(model, None, "auto", "auto", threads)
    began = time.perf_counter()
    found = list(translator.stream(_progress([s.source for s in held_out], "translating"), window=len(held_out)))
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
    for segment, translation in list(zip(held_out, found, strict=True))[:8]:
        table.add_row(segment.source, segment.target, translation.text)
    _show(table)
    typer.echo(f"{len(held_out)} held-out strings of the catalogs of {', '.join(text.PACKAGES)}, in {seconds:.1f} s")
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
def _writing(path: Path | None) -> Iterator[IO[str]]:
    """A file, or standard output, in UTF-8 whatever the locale."""
    if path is None or str(path) == "-":
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        sys.stdout.flush()
        return
    try:
        out = path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error
    with out:
        yield out


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


def _progress(items: Iterable[Any], label: str, *, quiet: bool = False) -> Iterable[Any]:
    """A bar on standard error with rate and time left, where that is a terminal."""
    if quiet or not sys.stderr.isatty():
        return items
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    total = len(items) if isinstance(items, list) else None

    def watched() -> Iterator[Any]:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            yield from bar.track(items, total=total, description=label)

    return watched()


def _table(*heads: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def _show(table: "Table") -> None:
    from rich.console import Console

    Console().print(table)


def _fail(message: str, code: int) -> NoReturn:
    typer.echo(f"knnmt: {message}", err=True)
    raise SystemExit(code)


def main() -> None:
    """The entry point of `knnmt`."""
    app()
