"""Commands that translate and judge translations: translate, explain, evaluate, demo."""

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from knnmt import terminal
from knnmt.cli.app import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    LangsOption,
    ModelOption,
    ThreadsOption,
    app,
    checked,
)
from knnmt.errors import UsageError

if TYPE_CHECKING:
    from knnmt.evidence import TokenEvidence
    from knnmt.retrieval.settings import RetrievalSettings
    from knnmt.translate import Translator

StoreOption = Annotated[Path | None, typer.Option("--store", "-s", help="A store that `knnmt build` made.")]
SystemOption = Annotated[
    str | None, typer.Option(help="base, knn, fast, fast-clustered, faster or faster-exact. [default: fast]")
]
SettingsOption = Annotated[Path | None, typer.Option("--settings", help="Settings that `knnmt tune` wrote.")]


@app.command()
def translate(
    input: Annotated[Path | None, typer.Argument(help="Text, one segment a line; standard input if left out.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write; standard output if left out.")
    ] = None,
    model: ModelOption = "mini-de-en",
    langs: LangsOption = None,
    store: StoreOption = None,
    system: SystemOption = None,
    settings_file: SettingsOption = None,
    k: Annotated[int | None, typer.Option("-k", help="Neighbours. [default: 16]")] = None,
    c: Annotated[int | None, typer.Option("-c", help="Tokens that a source token sees (fast). [default: 64]")] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Of the softmax over distances. [default: by the store]")
    ] = None,
    weight: Annotated[
        float | None, typer.Option("--lambda", help="Share of what is retrieved, at most. [default: 0.9]")
    ] = None,
    adapt: Annotated[
        Literal["constant", "distance"] | None,
        typer.Option(help="That share is constant, or falls with the distance. [default: distance]"),
    ] = None,
    probe: Annotated[int | None, typer.Option(help="Clusters that are ranked together (faster). [default: 1]")] = None,
    index: Annotated[bool | None, typer.Option(help="Search by the store's FAISS index (knn).")] = None,
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
    from knnmt.translate import TranslateSettings

    settings = checked(
        TranslateSettings,
        beam=beam,
        n_best=n_best,
        length_penalty=length_penalty,
        max_length=max_length,
        batch_size=batch_size,
        long=long,
    )
    with contextlib.ExitStack() as stack:
        source, out = stack.enter_context(terminal.reading(input)), stack.enter_context(terminal.writing(output, input))
        chosen = _retrieval(
            settings_file,
            k=k,
            c=c,
            temperature=temperature,
            adapt=adapt,
            probe=probe,
            index=index,
            **{"lambda": weight},
        )
        translator = _translator(model, store, system, chosen, langs, device, dtype, threads)
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
def explain(
    text: Annotated[str, typer.Argument(help="A text to translate.")],
    store: Annotated[Path, typer.Option("--store", "-s", help="A store that `knnmt build` made.")],
    model: ModelOption = "mini-de-en",
    langs: LangsOption = None,
    system: SystemOption = None,
    settings_file: SettingsOption = None,
    neighbours: Annotated[int, typer.Option(min=0, max=8, help="Training segments shown for each token.")] = 2,
    beam: Annotated[int, typer.Option(help="Beams; 1 is greedy search.")] = 5,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Translate a text and show, token by token, what the store had to do with it and which segments are behind it."""
    from knnmt.translate import TranslateSettings

    if system == "base":
        raise UsageError("base MT uses no store, so there is nothing to explain: leave --system out, or name another")
    settings = checked(TranslateSettings, beam=beam, evidence=True)
    translator = _translator(model, store, system, _retrieval(settings_file), langs, device, dtype, threads)
    found = translator.translate([text], settings)[0]
    if as_json:
        tokens = [asdict(each) | {"memory": each.memory} for each in found.evidence]
        typer.echo(
            json.dumps({"text": found.text, "score": found.score, "tokens": tokens}, ensure_ascii=False, indent=2)
        )
        return
    terminal.show(_evidence_table(found.evidence, neighbours))
    typer.echo(found.text)


def _evidence_table(evidence: "tuple[TokenEvidence, ...]", neighbours: int) -> Any:
    from rich.text import Text

    table = terminal.table("token", "p", "p_MT", "p_kNN", "λ", "memory", "training segments behind it (share of p_kNN)")
    for each in evidence:
        lines = Text()
        for neighbour in each.neighbours[:neighbours]:
            lines.append("\n" if lines else "")
            lines.append(f"{neighbour.weight:4.0%}  …" if len(neighbour.before) > 40 else f"{neighbour.weight:4.0%}  ")
            lines.append(neighbour.before[-40:])
            lines.append(neighbour.token or " ⏎", style="bold reverse")
            lines.append(neighbour.after[:30] + ("…" if len(neighbour.after) > 30 else ""))
        numbers = [f"{value:.2f}" for value in (each.p, each.p_mt, each.p_knn, each.weight)]
        table.add_row(each.token.strip() or "⏎", *numbers, "█" * round(6 * each.memory), lines)
    return table


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
    translator = _translator(model, None, None, None, None, "auto", "auto", threads)
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


def _retrieval(settings_file: Path | None, **given: Any) -> "RetrievalSettings":
    """The settings of a file, or the defaults, with what was given on the command line."""
    from knnmt.retrieval.settings import RetrievalSettings

    base = RetrievalSettings.load(settings_file) if settings_file is not None else RetrievalSettings()
    named = {name: value for name, value in given.items() if value is not None}
    return checked(RetrievalSettings, **base.model_dump(by_alias=True) | named)


def _translator(
    model: str, store: Path | None, system: str | None, retrieval: "RetrievalSettings | None", langs: str | None,
    device: str, dtype: str, threads: int | None,
) -> "Translator":  # fmt: skip
    import torch

    from knnmt.translate import Translator

    if threads is not None:
        torch.set_num_threads(threads)
    return Translator(model, store, system=system, retrieval=retrieval, langs=langs, device=device, dtype=dtype)
