"""Commands about stores: build, merge, inspect, verify."""

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knnmt import terminal
from knnmt.cli.app import (
    CorpusArgument,
    DeviceOption,
    JsonOption,
    ModelOption,
    PairOption,
    PrecisionOption,
    StoresArgument,
    WorkersOption,
    app,
    load_model,
)
from knnmt.cli.cluster import RayOption, RayWorkersOption, cluster_settings, seen_by_all
from knnmt.cli.options import Command, Fields, options

if TYPE_CHECKING:
    from knnmt.build.settings import BuildSettings
    from knnmt.store.describe import Description
    from knnmt.tune.tune import StoreTuning


@app.command(cls=Command)
@options(
    settings=Fields(
        "build.settings:BuildSettings",
        "systems", "key", "metric", "keys", "cluster_size", "prototype_size", "budget", "k_max", "index",
        "clean.max_ratio", "align.cover", "batch_tokens", "part_tokens", "memory", "seed", systems="--for",
    )
)  # fmt: skip
def build(
    *,
    corpus: CorpusArgument,
    langs: PairOption,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the store.")],
    model: ModelOption = "mini",
    settings: "BuildSettings",
    clean: Annotated[bool, typer.Option(help="Drop bad translation pairs.")] = True,
    alignments: Annotated[
        Path | None, typer.Option(help="Word alignments in Pharaoh format; implies --no-clean.")
    ] = None,
    workers: WorkersOption = None,
    ray: RayOption = None,
    ray_workers: RayWorkersOption = None,
    tune_on: Annotated[Path | None, typer.Option(help="Tune on this dev set; the store keeps the result.")] = None,
    tune: Annotated[bool, typer.Option("--tune", help="Tune on held-out segments of the corpus.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing store.")] = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Build a store from parallel text. Resumable: the same command again continues an interrupted build.

    With --ray, a Ray cluster makes the parts, one worker each: --part-tokens sets how many parts there are, --workers
    the threads of each worker (default: 1). All machines must share the folders of corpus, model and store.
    """
    from knnmt.build import build as building
    from knnmt.corpus import Languages, files_of, read_all
    from knnmt.corpus.files import require_readable
    from knnmt.systems.table import require_system

    if not clean:
        settings = settings.model_copy(update={"clean": None})
    files_of(corpus, Languages.parse(langs))  # a missing file is refused before the model is loaded
    if alignments is not None:
        require_readable(alignments)
    for name in settings.systems:
        require_system(name)
    dev = None if tune_on is None else list(read_all([tune_on], Languages.parse(langs)))
    cluster = cluster_settings(ray, ray_workers, workers, device, precision)
    local = (device, precision) if cluster is None else ("cpu", "auto")  # this process then needs no GPU
    loaded = load_model(model, langs, *local, None)
    with contextlib.ExitStack() as stack:
        runner = None
        if cluster is not None:
            from knnmt.cluster.build import ray_runner

            runner = stack.enter_context(ray_runner(cluster, seen_by_all(model), langs, loaded.fingerprint))
        report = building.build(
            corpus, loaded, out, langs, settings,
            alignments=alignments, replace=replace, workers=workers, runner=runner,
            progress=stack.enter_context(terminal.stages()),
        )  # fmt: skip
    tuned = None
    if tune or dev is not None:
        from knnmt.datastore import Datastore
        from knnmt.tune.tune import tune_store

        with terminal.stages() as progress:
            tuned = tune_store(loaded, Datastore.open(out), dev, progress=progress)
    if as_json:
        typer.echo(json.dumps(asdict(report) | {"tuned": None if tuned is None else _figures(tuned)}, indent=2))
        return
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in report.dropped.items())
    typer.echo(f"kept {report.kept:,} segments" + (f"; dropped {dropped}" if dropped else ""))
    slow = [f"{stage} {seconds:.1f} s" for stage, seconds in report.seconds.items() if seconds >= 0.05]
    spent = f"{sum(report.seconds.values()):.1f} s" + (f" ({', '.join(slow)})" if slow else "")
    spent += " of all workers" if cluster is not None else ""
    done = f"built in {spent}" if report.seconds else "already built"
    typer.echo(f"{out}: {terminal.size(report.size)}; {done}")
    if tuned is not None:
        _show_tuned(tuned)


def _figures(tuned: "StoreTuning") -> dict[str, Any]:
    """The result of tuning, for JSON."""
    trials = {"tuned": tuned.best, "untuned": tuned.untuned, "base": tuned.base}
    return {
        "settings": tuned.best.settings.model_dump(by_alias=True),
        "segments": tuned.segments,
        "held_out": tuned.held_out,
        "ends": tuned.best.ends,
        **{name: {some: asdict(figures) for some, figures in trial.sets.items()} for name, trial in trials.items()},
    }


def _show_tuned(tuned: "StoreTuning") -> None:
    """The result of tuning: held-out scores of base MT, the untuned and the tuned settings."""
    numbers = ("segments", "base MT", "untuned", "tuned")
    table = terminal.table("held out" if tuned.held_out else "", "metric", *numbers, numbers=numbers)
    for name, count in tuned.segments.items():
        figures = [trial.sets[name] for trial in (tuned.base, tuned.untuned, tuned.best)]
        table.add_row(name, "BLEU", f"{count:,}", *(f"{each.bleu:.1f}" for each in figures))
        table.add_row("", "chrF2", "", *(f"{each.chrf:.1f}" for each in figures))
    terminal.show(table)
    system = tuned.best.settings.system
    if tuned.best is tuned.untuned:
        typer.echo(f"{system}: no settings are clearly better than the defaults, which are kept")
    else:
        typer.echo(f"{system}: tuned; the store now uses these settings by default")


@app.command()
def merge(
    stores: StoresArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the merged store.")],
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing store.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Merge stores into one. They must have the same model, key and metric.

    Parts are linked where the disk allows it, else copied. What was taught and removed is kept.
    """
    from knnmt.build.union import merge_stores
    from knnmt.datastore import Datastore

    made = merge_stores(stores, out, replace=replace)
    segments = len(Datastore.open(out))
    if as_json:
        typer.echo(json.dumps({"store": str(out), "segments": segments, "parts": len(made.parts), "bytes": made.size}))
        return
    typer.echo(
        f"{out}: {segments:,} segments in {terminal.counted(len(made.parts), 'part')}, {terminal.size(made.size)}"
    )


@app.command()
def inspect(stores: StoresArgument, as_json: JsonOption = False) -> None:
    """Describe stores. Counts, sizes, systems, settings, frequent types."""
    from knnmt.datastore import Datastore
    from knnmt.store.describe import describe
    from knnmt.systems.table import SYSTEMS, serves

    content = []
    for path in stores:
        store = Datastore.open(path)
        found, systems = describe(store), [name for name in SYSTEMS if serves(store, name)]
        content.append(asdict(found) | {"systems": systems})
        if not as_json:
            _show_description(found, systems)
    if as_json:
        typer.echo(json.dumps(_one_or_all(content), indent=2, ensure_ascii=False))


def _show_description(found: "Description", systems: list[str]) -> None:
    """A store in tables."""
    counts = terminal.table(found.path, "")
    counts.add_row("model", found.model)
    counts.add_row("languages", found.languages)
    counts.add_row("systems", ", ".join(systems))
    for name, count in found.counts.items():
        counts.add_row(name, f"{count:,}")
    for reason, count in found.dropped.items():
        counts.add_row(f"dropped: {reason}", f"{count:,}")
    counts.add_row("median distance of two keys", f"{found.scale:.1f}")
    for name in ("key", "metric", "keys", "cluster_size", "k_max", "index"):
        counts.add_row(name, str(found.settings.get(name)))
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
    stores: StoresArgument,
    full: Annotated[bool, typer.Option("--full", help="Read every byte: checksums, shapes, offsets.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Verify stores. The manifest and all file sizes; with --full, the whole content."""
    from knnmt.datastore import Datastore

    what = "content read" if full else "sizes only; --full reads the content"
    content = []
    for path in stores:
        store = Datastore.open(path)
        files, size = (
            len(list(terminal.watched(store.verify(), "verifying")) if full else store.files),
            store.manifest.size,
        )
        content.append({"store": str(path), "full": full, "files": files, "bytes": size})
        if not as_json:
            typer.echo(f"{path} is sound: {files} files, {terminal.size(size)} ({what})")
    if as_json:
        typer.echo(json.dumps(_one_or_all(content)))


def _one_or_all(content: list[dict[str, Any]]) -> Any:
    """For JSON: an object for one store, a list of them for several."""
    return content[0] if len(content) == 1 else content
