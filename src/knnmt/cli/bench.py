"""The command bench."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knnmt import terminal
from knnmt.cli.app import (
    DeviceOption,
    JsonOption,
    LangsOption,
    ModelOption,
    PrecisionOption,
    StoreOption,
    ThreadsOption,
    app,
    load_model,
    use_threads,
)
from knnmt.cli.options import Command, Fields, options
from knnmt.errors import UsageError

if TYPE_CHECKING:
    import torch

    from knnmt.datastore import Datastore
    from knnmt.lab.bench.growth import Growth
    from knnmt.lab.bench.settings import BenchSettings, Sweep
    from knnmt.lab.bench.speed import Speed
    from knnmt.model.checkpoint import Model

ENOUGH = 10  # rounds
Progress = Callable[[str, int, int | None], None] | None


@app.command(cls=Command)
@options(
    settings=Fields(
        "lab.bench.settings:BenchSettings",
        "pairs", "segments", "beam", "batch_size", "k", "c", "weight", "index", "nprobe", "engines", "first_pass",
    )
)  # fmt: skip
def bench(
    *,
    input: Annotated[Path | None, typer.Argument(help="Text, one segment per line; not with --synthetic.")] = None,
    store: StoreOption = None,
    model: ModelOption = "mini",
    langs: LangsOption = None,
    systems: Annotated[
        str | None, typer.Option(help="Systems to time beside base MT, comma-separated. [default: all of the store]")
    ] = None,
    settings: "BenchSettings",
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="Vary k=8,16,64, c=…, nprobe=…, batch-size=…, beam=…, length=…, store=DIR,DIR; repeatable."),
    ] = None,
    memory: Annotated[
        int | None, typer.Option(min=1, help="Find the largest batch that fits in N MiB, instead of timing.")
    ] = None,
    synthetic: Annotated[
        str | None, typer.Option(help="Time synthetic stores of these sizes in tokens instead, such as 1e5,1e6.")
    ] = None,
    width: Annotated[int, typer.Option(min=1, help="State width of a synthetic store.")] = 256,
    cluster_size: Annotated[
        int | None, typer.Option(min=1, help="Cluster size of a synthetic store. [default: 512; 2048 from 1e7 tokens]")
    ] = None,
    scratch: Annotated[Path | None, typer.Option(help="Folder for synthetic stores while they are timed.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="JSON file to write all figures to.")] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time the systems against base MT, interleaved in one process. Ratios with 95% intervals, stages, peak memory."""
    from knnmt.datastore import Datastore
    from knnmt.lab.bench.machine import device_named, machine, versions
    from knnmt.lab.bench.settings import Sweep

    named = tuple(name.strip() for name in (systems or "").split(",") if name.strip())
    settings = settings.model_copy(update={"systems": named})
    sweeps = [Sweep.parse(text) for text in sweep or ()]
    _check(named, input, synthetic)
    if output is not None:
        terminal.require_writable(output, input)
    use_threads(threads)
    rows: dict[str, Any]
    with terminal.stages() as progress:
        if synthetic is not None:
            place = device_named(device)
            rows = {"growth": _grow(synthetic, width, cluster_size, settings, place, scratch, progress)}
        else:
            texts = terminal.read_lines(input) if input is not None else []
            opened = Datastore.open(store) if store is not None else None
            pair = langs or (opened.manifest.languages if opened is not None else None)
            loaded = load_model(model, pair, device, precision, threads)
            place = loaded.device
            rows = _time(loaded, opened, texts, settings, sweeps, memory, progress)
    given = {"sweeps": sweep or [], "model": model, "store": str(store) if store is not None else None}
    content = {
        "machine": machine(place), "versions": versions(), "settings": settings.model_dump(by_alias=True) | given,
    } | {kind: [asdict(row) for row in some] for kind, some in rows.items()}  # fmt: skip
    written = json.dumps(content, indent=1, ensure_ascii=False)
    if output is not None:
        with terminal.writing(output, input) as out:
            out.write(written + "\n")
    if as_json:
        typer.echo(written)
    else:
        _show(rows, settings)


def _check(systems: tuple[str, ...], input: Path | None, synthetic: str | None) -> None:
    """Refuse what cannot be meant before anything heavy begins."""
    from knnmt.systems.table import require_system

    for name in systems:
        if name != "base":
            require_system(name)
    if (input is None) == (synthetic is None):
        raise UsageError("give either a text file to translate or sizes of synthetic stores (--synthetic), not both")


def _time(
    model: "Model",
    store: "Datastore | None",
    texts: list[str],
    settings: "BenchSettings",
    sweeps: "list[Sweep]",
    memory: int | None,
    progress: Progress,
) -> dict[str, Any]:
    """Rows of times, or of the largest batches."""
    from knnmt.lab.bench.batch_size import largest_batches
    from knnmt.lab.bench.speed import measure

    if memory is not None:
        return {"batch_sizes": largest_batches(model, store, texts, settings, memory << 20, progress)}
    speed, skipped = [], []
    points: list[Sweep | None] = [*sweeps] or [None]
    for sweep in points:
        some, left_out = measure(model, store, texts, settings, sweep, progress)
        speed += some
        skipped += left_out
    return {"speed": speed, "skipped": skipped}


def _grow(
    sizes: str,
    width: int,
    cluster_size: int | None,
    settings: "BenchSettings",
    device: "torch.device",
    scratch: Path | None,
    progress: Progress,
) -> "list[Growth]":
    """Make a store of each size, time it, and remove it."""
    from knnmt.lab.bench.growth import grown
    from knnmt.lab.bench.runner import served
    from knnmt.lab.bench.synthetic import Shape, make

    similar = "similar" in settings.systems
    shapes = [Shape(tokens, width, cluster_size=cluster_size, similar=similar) for tokens in _tokens(sizes)]
    rows = []
    for shape in shapes:
        with tempfile.TemporaryDirectory(prefix="knnmt-bench-", dir=scratch) as folder:
            store = make(shape, Path(folder) / "store")
            for system in settings.systems or served(store):
                if system in served(store):
                    rows.append(grown(shape, store, system, settings.k, settings.c, device))
        if progress is not None:
            progress("synthetic", 1, len(shapes))
    return rows


def _tokens(sizes: str) -> list[int]:
    """The numbers of `1e5,1000000`."""
    try:
        return sorted({int(float(size)) for size in sizes.split(",") if size.strip()})
    except (ValueError, OverflowError):
        raise UsageError(f"--synthetic {sizes!r}: give numbers of tokens, such as 1e5,1e6") from None


# ------------------------------------------------------------------------------------------------------ for people


def _show(rows: dict[str, Any], settings: "BenchSettings") -> None:
    """Tables of what was measured, ratios first."""
    if "speed" in rows:
        _show_speed(rows["speed"], settings)
    for skipped in rows.get("skipped", ()):
        terminal.note(f"{skipped.system} {skipped.what} left out: {skipped.why}".replace("  ", " "))
    if "batch_sizes" in rows:
        numbers = ("texts", "peak", "texts/s", "twice as many")
        table = terminal.table("system", *numbers, numbers=numbers)
        for row in rows["batch_sizes"]:
            last = terminal.size(row.next_peak) if row.next_peak is not None else ""
            speed = f"{row.per_second:.1f}" if row.per_second else ""
            table.add_row(row.system, str(row.batch_size), terminal.size(row.peak or 0), speed, last)
        terminal.show(table)
        typer.echo("the largest batch of the longest texts, doubled while its peak beyond the model fits")
    if "growth" in rows:
        _show_growth(rows["growth"])


def _show_speed(rows: "list[Speed]", settings: "BenchSettings") -> None:
    from knnmt.lab.bench.clock import STAGES

    varied = [
        name
        for name in ("k", "c", "nprobe", "beam", "batch_size", "length", "entries")
        if len({getattr(row, name) for row in rows} - {None}) > 1
    ]
    heads = [name.replace("_", " ") for name in varied]
    numbers = (*heads, "times base", "95% interval", "segments/s", "seconds", "first pass", "peak")
    table = terminal.table("system", *numbers, numbers=numbers)
    for row in rows:
        values = [getattr(row, name) for name in varied]
        held = row.peak.device if row.peak.device is not None else row.peak.held
        table.add_row(
            row.system, *("" if value is None else f"{value:,.4g}" for value in values),
            f"{row.ratio.mean:.3f}" if row.ratio is not None else "1",
            f"{row.ratio.low:.3f} to {row.ratio.high:.3f}" if row.ratio is not None else "",
            f"{row.per_second:.1f}", f"{row.seconds.median:.2f}", "" if row.first is None else f"{row.first:.2f}",
            "" if held is None else terminal.size(held),
        )  # fmt: skip
    terminal.show(table)
    stages = [stage for stage in STAGES if any(stage in row.split for row in rows)]
    table = terminal.table("ms a segment", *heads, *stages, numbers=(*heads, *stages))
    for row in rows:
        if row.split:
            values = [getattr(row, name) for name in varied]
            spent = (f"{1000 * row.split.get(stage, 0.0) / row.segments:.2f}" for stage in stages)
            table.add_row(row.system, *("" if value is None else f"{value:,.4g}" for value in values), *spent)
    terminal.show(table)
    first = rows[0]
    typer.echo(
        f"{first.segments} segments, beam {settings.beam}, batches of {settings.batch_size}, λ={settings.weight:g}, "
        f"{settings.pairs} rounds of all systems in turn; the interval is that of the mean of their ratios"
    )
    if indexed := ", ".join(dict.fromkeys(row.system for row in rows if row.nprobe is not None)):
        typer.echo(f"{indexed}: by the store's FAISS index, nprobe={settings.nprobe} unless the table says otherwise")
    if settings.pairs < ENOUGH:
        terminal.note(f"{settings.pairs} rounds are few for an interval: give {ENOUGH} or more (--pairs)")
    for row in rows:
        if row.k is not None and row.same < row.segments:
            terminal.note(f"{row.system} translates {row.segments - row.same} segments otherwise, in other steps")


def _show_growth(rows: "list[Growth]") -> None:
    from knnmt.lab.bench.growth import BATCH, BEAMS, LENGTH, STEPS, in_words

    numbers = (
        "tokens", "clusters", "opening", "select", "lookup", "batch", "on disk", "opened", "held", "working",
    )  # fmt: skip
    table = terminal.table("system", *numbers, numbers=numbers)
    for row in rows:
        times = (row.select.median, row.lookup.median, row.batch)
        used = (memory.device if memory.device is not None else memory.held for memory in (row.memory, row.working))
        table.add_row(
            row.system, f"{row.tokens:,}", f"{row.clusters:,}", f"{row.opening:.2f} s",
            *(f"{1000 * seconds:.2f} ms" for seconds in times),
            *(terminal.size(count) for count in (row.disk, row.opened)),
            *("" if count is None else terminal.size(count) for count in used),
        )  # fmt: skip
    terminal.show(table)
    typer.echo(
        f"{BATCH} sentences of {LENGTH} tokens, {BEAMS} beams; batch: select and {STEPS} lookups; "
        "held: peak of opening and the first batch; working: of further batches"
    )
    for system in dict.fromkeys(row.system for row in rows):
        some = [row for row in rows if row.system == system]
        if len(some) > 1:
            typer.echo(in_words(some))
