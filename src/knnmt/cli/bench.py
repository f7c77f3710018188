"""The command bench."""

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knnmt import terminal
from knnmt.cli.app import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    LangsOption,
    ModelOption,
    StoreOption,
    ThreadsOption,
    app,
    checked,
    load_model,
)
from knnmt.errors import UsageError

if TYPE_CHECKING:
    from knnmt.bench.growth import Growth
    from knnmt.bench.settings import BenchSettings
    from knnmt.bench.speed import Speed

Progress = Callable[[str, int, int | None], None] | None


@app.command()
def bench(
    input: Annotated[Path | None, typer.Argument(help="Text, one segment a line; none with --synthetic.")] = None,
    store: StoreOption = None,
    model: ModelOption = "mini-de-en",
    langs: LangsOption = None,
    systems: Annotated[
        str | None, typer.Option(help="Such as knn,fast,faster; base MT is always there. [default: all of the store]")
    ] = None,
    pairs: Annotated[int, typer.Option(help="Rounds in which base MT and each system take turns.")] = 10,
    segments: Annotated[int, typer.Option(help="Use only so many segments, the first.")] = 500,
    beam: Annotated[int, typer.Option(help="Beams; 1 is greedy search.")] = 5,
    batch_size: Annotated[int, typer.Option(help="Texts translated together.")] = 32,
    k: Annotated[int, typer.Option("-k", help="Neighbours.")] = 16,
    c: Annotated[int, typer.Option("-c", help="Tokens or prototypes that a source token sees.")] = 64,
    weight: Annotated[
        float, typer.Option("--lambda", help="Share of what is retrieved; 0 does all the work in equally many steps.")
    ] = 0.0,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="k=8,16,64 or c=…, batch-size=…, beam=…, length=…, store=DIR,DIR; repeatable."),
    ] = None,
    memory: Annotated[
        int | None, typer.Option(min=1, help="Find the largest batch that fits so many MiB, instead of timing.")
    ] = None,
    yardsticks: Annotated[
        bool, typer.Option("--yardsticks", help="Also time generate() and, where installed, CTranslate2.")
    ] = False,
    synthetic: Annotated[
        str | None, typer.Option(help="Make stores of so many random tokens, such as 1e5,1e6, and time these instead.")
    ] = None,
    width: Annotated[int, typer.Option(min=1, help="Of a synthetic store's states.")] = 256,
    cluster_size: Annotated[
        int | None, typer.Option(min=1, help="Of a synthetic store. [default: 512; from 1e7 tokens on, 2048]")
    ] = None,
    scratch: Annotated[Path | None, typer.Option(help="Where synthetic stores stand while they are timed.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Where to write all figures as JSON.")] = None,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time the systems beside base MT, in turn and in one process. Ratios with 95% intervals, stages, peak memory."""
    import torch

    from knnmt.bench.machine import machine, versions
    from knnmt.bench.settings import BenchSettings, Sweep

    named = tuple(name.strip() for name in (systems or "").split(",") if name.strip())
    settings = checked(
        BenchSettings, systems=named, pairs=pairs, segments=segments, beam=beam, batch_size=batch_size, k=k, c=c,
        yardsticks=yardsticks, **{"lambda": weight},
    )  # fmt: skip
    sweeps = [Sweep.parse(text) for text in sweep or ()]
    _check(named, input, synthetic)
    if output is not None:
        terminal.require_writable(output, input)
    found: dict[str, Any] = {}
    if threads is not None:
        torch.set_num_threads(threads)
    with terminal.stages() as progress:
        if synthetic is not None:
            place = torch.device(
                "cuda" if device == "auto" and torch.cuda.is_available() else device.replace("auto", "cpu")
            )
            found["growth"] = _grow(_sizes(synthetic), width, cluster_size, settings, place, scratch, progress)
        else:
            texts = terminal.read_lines(input) if input is not None else []
            loaded = load_model(model, langs, device, dtype, threads)
            place = loaded.device
            found |= _time(loaded, store, texts, settings, sweeps, memory, progress)
    found = {
        "machine": machine(place),
        "versions": versions(),
        "settings": settings.model_dump(by_alias=True)
        | {"sweeps": sweep or [], "model": model, "store": str(store) if store is not None else None},
    } | {kind: [asdict(row) for row in rows] for kind, rows in found.items()}
    written = json.dumps(found, indent=1, ensure_ascii=False)
    if output is not None:
        with terminal.writing(output, input) as out:
            out.write(written + "\n")
    if as_json:
        typer.echo(written)
        return
    _show(found)
