"""Commands about stores: build, inspect, verify."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from knnmt import terminal
from knnmt.cli.app import (
    CorpusArgument,
    DeviceOption,
    DtypeOption,
    JsonOption,
    ModelOption,
    PairOption,
    app,
    checked,
    load_model,
)

if TYPE_CHECKING:
    from knnmt.tune import StoreTuning

StoreArgument = Annotated[Path, typer.Argument(help="The store's folder.")]


@app.command()
def build(
    corpus: CorpusArgument,
    langs: PairOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of the store.")],
    model: ModelOption = "mini-de-en",
    systems: Annotated[
        list[str] | None,
        typer.Option("--for", help="Keep only what this system needs; repeatable. [default: all]"),
    ] = None,
    key: Annotated[Literal["ffn_input", "output"], typer.Option(help="Which decoder state is the key.")] = "ffn_input",
    metric: Annotated[
        Literal["squared", "euclidean", "cosine"], typer.Option(help="How states are compared.")
    ] = "squared",
    keys: Annotated[
        Literal["float16", "pq"], typer.Option(help="Keys as they are, or product-quantized: a quarter of the size.")
    ] = "float16",
    cluster_size: Annotated[int, typer.Option(help="Source tokens a cluster, on average.")] = 512,
    prototype_size: Annotated[int, typer.Option(help="Entries a prototype, at most on average.")] = 16,
    budget: Annotated[
        int | None,
        typer.Option(min=1, help="MB that `similar` may open, text aside. [default: a quarter of 16-bit keys]"),
    ] = None,
    k_max: Annotated[int, typer.Option(min=0, help="Ranked entries of a cluster; 0 for all.")] = 128,
    index: Annotated[bool, typer.Option("--index", help="Add a FAISS index for the system knn.")] = False,
    clean: Annotated[bool, typer.Option(help="Drop what is no good translation pair.")] = True,
    max_ratio: Annotated[float, typer.Option(help="Most tokens of the longer side for one of the shorter.")] = 3.0,
    cover: Annotated[bool, typer.Option(help="Link every target token, unaligned ones like their neighbours.")] = True,
    alignments: Annotated[
        Path | None, typer.Option(help="Links made elsewhere, «i-j …», a line a segment; nothing is cleaned then.")
    ] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(help="Tokens that the model sees at once. [default: by the device]")
    ] = None,
    memory: Annotated[int, typer.Option(min=16, help="MiB of states that clustering holds at once.")] = 512,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads. [default: all cores]")] = None,
    seed: Annotated[int, typer.Option(help="Of the clusters' first centroids.")] = 1,
    tune_on: Annotated[
        Path | None, typer.Option(help="Find the best settings on this dev set, and keep them with the store.")
    ] = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="The same without a dev set, on held-out segments and projects.")
    ] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a store that is there.")] = False,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Make a store from parallel text. A build that was stopped goes on when the same command is given again."""
    from knnmt.align import AlignSettings
    from knnmt.build import build as building
    from knnmt.build.settings import BuildSettings
    from knnmt.corpus import CleanSettings, Languages, files_of, read_all
    from knnmt.corpus.files import require_readable
    from knnmt.systems import require_system

    settings = checked(
        BuildSettings, systems=tuple(systems or ()), key=key, metric=metric, keys=keys, cluster_size=cluster_size,
        prototype_size=prototype_size, budget=None if budget is None else budget * 10**6,
        k_max=k_max or None, index=index, clean=checked(CleanSettings, max_ratio=max_ratio) if clean else None,
        align=AlignSettings(cover=cover), batch_tokens=batch_tokens, memory=memory << 20, seed=seed,
    )  # fmt: skip
    files_of(corpus, Languages.parse(langs))  # what is not there is refused before the model is loaded
    if alignments is not None:
        require_readable(alignments)
    for name in settings.systems:
        require_system(name)
    dev = None if tune_on is None else list(read_all([tune_on], Languages.parse(langs)))
    loaded = load_model(model, langs, device, dtype, None)
    with terminal.stages() as progress:
        report = building.build(
            corpus, loaded, out, langs, settings,
            alignments=alignments, replace=replace, workers=workers, progress=progress,
        )  # fmt: skip
    tuned = None
    if tune or dev is not None:
        from knnmt.datastore import Datastore
        from knnmt.tune import tune_store

        with terminal.stages() as progress:
            tuned = tune_store(loaded, Datastore.open(out), dev, progress=progress)
    if as_json:
        typer.echo(json.dumps(asdict(report) | {"tuned": None if tuned is None else _figures(tuned)}, indent=2))
        return
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in report.dropped.items())
    typer.echo(f"kept {report.kept:,} segments" + (f"; dropped {dropped}" if dropped else ""))
    slow = [f"{stage} {seconds:.1f} s" for stage, seconds in report.seconds.items() if seconds >= 0.05]
    spent = f"{sum(report.seconds.values()):.1f} s" + (f" ({', '.join(slow)})" if slow else "")
    done = f"made in {spent}" if report.seconds else "it was there already"
    typer.echo(f"{out}: {terminal.size(report.size)}; {done}")
    if tuned is not None:
        _show_tuned(tuned)
    if report.left_out:
        whole = terminal.size(report.size + report.left_out)
        typer.echo(f"left out what {', '.join(settings.systems)} does not need: it would have been {whole}")


def _figures(tuned: "StoreTuning") -> dict[str, Any]:
    """What tuning found, for machines."""
    trials = {"tuned": tuned.best, "untuned": tuned.untuned, "base": tuned.base}
    return {
        "settings": tuned.best.settings.model_dump(by_alias=True),
        "segments": tuned.segments,
        "held_out": tuned.held_out,
        "ends": tuned.best.ends,
        **{name: {some: asdict(figures) for some, figures in trial.sets.items()} for name, trial in trials.items()},
    }


def _show_tuned(tuned: "StoreTuning") -> None:
    """What tuning found: held-out figures of base MT, of the untuned settings and of those that are kept."""
    numbers = ("segments", "base MT", "untuned", "tuned")
    table = terminal.table("held out" if tuned.held_out else "", "metric", *numbers, numbers=numbers)
    for name, count in tuned.segments.items():
        figures = [trial.sets[name] for trial in (tuned.base, tuned.untuned, tuned.best)]
        table.add_row(name, "BLEU", f"{count:,}", *(f"{each.bleu:.1f}" for each in figures))
        table.add_row("", "chrF2", "", *(f"{each.chrf:.1f}" for each in figures))
    terminal.show(table)
    system = tuned.best.settings.system
    if tuned.best is tuned.untuned:
        typer.echo(f"{system}: no settings are clearly better than the untuned ones, which are kept")
    else:
        typer.echo(f"{system}: tuned; used by default from now on")


@app.command()
def inspect(store: StoreArgument, as_json: JsonOption = False) -> None:
    """Say what is in a store. Counts, sizes, settings, frequent types."""
    from knnmt.datastore import Datastore
    from knnmt.store.describe import describe

    found = describe(Datastore.open(store))
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2, ensure_ascii=False))
        return
    counts = terminal.table(str(store), "")
    counts.add_row("model", found.model)
    counts.add_row("languages", found.languages)
    for name, count in found.counts.items():
        counts.add_row(name, f"{count:,}")
    for reason, count in found.dropped.items():
        counts.add_row(f"dropped: {reason}", f"{count:,}")
    counts.add_row("median distance of two keys", f"{found.scale:.1f}")
    for name in ("systems", "key", "metric", "keys", "cluster_size", "k_max", "index"):
        value = found.settings.get(name)
        counts.add_row(name, ", ".join(value) or "all" if isinstance(value, list) else str(value))
    terminal.show(counts)
    files = terminal.table("file", "size", numbers=("size",))
    for name, count in found.bytes.items():
        files.add_row(name, terminal.size(count))
    files.add_row("all", terminal.size(sum(found.bytes.values())))
    terminal.show(files)
    types = terminal.table("source type", "tokens", numbers=("tokens",))
    for piece, tokens in list(found.frequent_types.items())[:10]:
        types.add_row(piece, f"{tokens:,}")
    terminal.show(types)
    histogram = terminal.table("tokens of a type", "types", "", numbers=("types",))
    most = max(found.frequencies.values(), default=1)
    for span, count in found.frequencies.items():
        histogram.add_row(span, f"{count:,}", "█" * round(40 * count / most))
    if found.frequencies:
        terminal.show(histogram)


@app.command()
def verify(
    store: StoreArgument,
    full: Annotated[bool, typer.Option("--full", help="Read everything: checksums, shapes, offsets, ranges.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check that a store is sound. The manifest and the size of every file, or with --full all of its content."""
    from knnmt.datastore import Datastore

    opened = Datastore.open(store)
    checked_files = list(terminal.watched(opened.verify(), "verifying")) if full else opened.files
    report = {"store": str(store), "full": full, "files": len(checked_files), "bytes": opened.manifest.size}
    what = "all of it read" if full else "sizes only; --full reads all of it"
    typer.echo(
        json.dumps(report)
        if as_json
        else f"{store} is sound: {len(checked_files)} files, {terminal.size(opened.manifest.size)} ({what})"
    )
