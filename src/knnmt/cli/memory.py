"""Commands that change a store, or give its content back: add, remove, compact, repair, export."""

import itertools
import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from knnmt import terminal
from knnmt.cli.app import (
    DeviceOption,
    JsonOption,
    ModelOption,
    PrecisionOption,
    StoreArgument,
    WorkersOption,
    app,
    load_model,
)
from knnmt.errors import UsageError, writing_to

TOGETHER = 64  # segments that are learnt, and on disk, at a time


@app.command()
def add(
    store: StoreArgument,
    corpus: Annotated[list[Path] | None, typer.Argument(help="Files of segments, as for `knnmt build`.")] = None,
    source: Annotated[str | None, typer.Option(help="Source text of a single segment.")] = None,
    target: Annotated[str | None, typer.Option(help="Translation of --source.")] = None,
    name: Annotated[str | None, typer.Option("--id", help="Id of the segment; replaces one with this id.")] = None,
    model: ModelOption = "mini",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Teach a store segments. The next translation uses them.

    A segment replaces the one with the same id, or if it has no id, what was taught for the same source.
    """
    from knnmt.corpus import Languages, Segment, read_all
    from knnmt.datastore import Datastore
    from knnmt.errors import DataError
    from knnmt.store.store import Added

    if bool(corpus) == (source is not None or target is not None) or (source is None) != (target is None):
        raise UsageError("give files of segments, or one segment by --source and --target")
    opened = Datastore.open(store)
    languages = Languages.parse(opened.manifest.languages)
    loaded = load_model(model, opened.manifest.languages, device, precision, None)
    faults: list[str] = []
    added = Added()

    def bad(fault: DataError) -> None:
        faults.append(str(fault))

    if source is not None and target is not None:
        with writing_to(store):
            added = opened.add([Segment(source, target, id=name)], loaded)
    else:
        given = iter(terminal.watched(read_all(corpus or [], languages, bad=bad), "learning"))
        with writing_to(store, "the segments before it are stored"):
            while some := list(itertools.islice(given, TOGETHER)):
                added += opened.add(some, loaded, bad=bad)
        if not added.ids:
            raise DataError(f"nothing to learn: {faults[0] if faults else 'the files have no segments'}")
    if as_json:
        typer.echo(json.dumps({**asdict(added), "faults": faults, "segments": len(opened)}, ensure_ascii=False))
        return
    for fault in faults[:10]:
        typer.echo(f"left out: {fault}", err=True)
    if len(faults) > 10:
        typer.echo(f"left out: {len(faults) - 10:,} more", err=True)
    done = [f"added {terminal.counted(added.new, 'segment')}" if added.new or not added.replaced else ""]
    done += [f"replaced {added.replaced:,}" if added.replaced else ""]
    done += [f"{added.unchanged:,} already known" if added.unchanged else ""]
    typer.echo(f"{store}: {', '.join(filter(None, done))}; {len(opened):,} in all")


@app.command()
def remove(
    store: StoreArgument,
    ids: Annotated[list[str], typer.Argument(help="Segment ids, as in `knnmt export --format jsonl`.")],
    as_json: JsonOption = False,
) -> None:
    """Remove segments from a store. The next translation ignores them; `compact` erases their text."""
    from knnmt.datastore import Datastore

    opened = Datastore.open(store)
    removed = opened.remove(ids)
    if missing := [name for name in ids if name not in removed]:
        typer.echo(f"not found: {', '.join(missing)}", err=True)
    if as_json:
        typer.echo(json.dumps({"removed": removed, "missing": missing, "segments": len(opened)}, ensure_ascii=False))
    else:
        typer.echo(f"{store}: removed {terminal.counted(len(removed), 'segment')}; {len(opened):,} left")
    if missing and not removed:
        raise typer.Exit(1)


@app.command()
def compact(
    store: StoreArgument,
    model: ModelOption = "mini",
    full: Annotated[bool, typer.Option("--full", help="Merge all parts into one.")] = False,
    workers: WorkersOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    as_json: JsonOption = False,
) -> None:
    """Seal taught segments into a part, and erase removed ones. The store can be used meanwhile."""
    from knnmt.datastore import Datastore

    opened = Datastore.open(store)
    loaded = load_model(model, opened.manifest.languages, device, precision, None)
    with terminal.stages() as progress:
        report = opened.compact(loaded, full=full, workers=workers, progress=progress)
    if as_json:
        typer.echo(json.dumps(asdict(report), indent=2))
        return
    spent = f"compacted in {sum(report.seconds.values()):.1f} s" if report.seconds else "nothing to do"
    typer.echo(f"{store}: {len(opened):,} segments, {terminal.size(report.size)}; {spent}")


@app.command()
def repair(store: StoreArgument, as_json: JsonOption = False) -> None:
    """Repair a store's corrupt journal. Intact records are kept; what is cut out is saved beside it."""
    from knnmt.datastore import Datastore
    from knnmt.store.records import texts_of

    repaired = Datastore.repair(store)
    lost = [texts_of(cut.content) if cut.content is not None else None for cut in repaired.cuts]
    if as_json:
        cuts = [
            {"byte": cut.start, "bytes": cut.size, "lost": told.as_texts() if told else None}
            for cut, told in zip(repaired.cuts, lost, strict=True)
        ]
        saved = None if repaired.saved is None else str(repaired.saved)
        typer.echo(json.dumps({"records": repaired.records, "cuts": cuts, "saved": saved}, ensure_ascii=False))
        return
    kept = terminal.counted(repaired.records, "record")
    if not repaired.cuts:
        typer.echo(f"{store}: the journal is intact; it has {kept}")
        return
    for cut, told in zip(repaired.cuts, lost, strict=True):
        typer.echo(f"{store}: cut {terminal.counted(cut.size, 'byte')} at byte {cut.start:,}")
        for line in told.as_texts() if told else []:
            typer.echo(f"  lost: {line}")
    typer.echo(f"{store}: kept {kept}; what was cut is in {repaired.saved}")


@app.command()
def export(
    store: StoreArgument,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Output file. [default: standard output]")] = None,
    kind: Annotated[
        Literal["tmx", "tsv", "jsonl"] | None,
        typer.Option("--format", help="Format. [default: by file name, else jsonl]"),
    ] = None,
    taught: Annotated[bool, typer.Option("--taught", help="Only segments taught since the build.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Export a store's segments as TMX, TSV or JSONL. Removed segments are left out."""
    from knnmt.corpus import Languages
    from knnmt.corpus.writers import write
    from knnmt.datastore import Datastore

    opened = Datastore.open(store)
    named = out.suffix.removeprefix(".") if out is not None else ""
    if kind is None and named not in ("tmx", "tsv", "jsonl", ""):
        raise UsageError(f"unknown format {named}: use --format tmx, tsv or jsonl")
    chosen: Literal["tmx", "tsv", "jsonl"] = kind or (named if named in ("tmx", "tsv", "jsonl") else "jsonl")  # type: ignore[assignment]
    segments = iter(reversed(opened.recent())) if taught else opened.segments()
    languages = Languages.parse(opened.manifest.languages)
    with terminal.writing(out) as file:
        count = write(segments, file.buffer, chosen, languages)  # type: ignore[attr-defined]
    if as_json:
        typer.echo(json.dumps({"segments": count, "format": chosen}), err=out is None)
