"""Commands that judge and improve translations: evaluate, tune."""

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
    StoreNeeded,
    ThreadsOption,
    app,
    load_model,
    retrieval_settings,
)
from knnmt.cli.options import Command, Fields, options
from knnmt.errors import UsageError

if TYPE_CHECKING:
    from knnmt.overlap import Overlaps
    from knnmt.tune.search import Trial
    from knnmt.tune.settings import TuneSettings


@app.command()
def evaluate(
    reference: Annotated[Path, typer.Argument(help="Reference translations, one segment per line.")],
    systems: Annotated[
        list[Path], typer.Argument(help="Translations, one file per system; the first is the baseline.")
    ],
    store: Annotated[
        list[Path] | None, typer.Option("--store", "-s", help="Report references found in this store; repeatable.")
    ] = None,
    source: Annotated[
        Path | None, typer.Option(help="Source texts: also score the stores as a translation memory, `tm`.")
    ] = None,
    threshold: Annotated[
        float, typer.Option(min=0.5, max=1.0, help="Minimum fuzzy match of `tm`; below it, the first system's text.")
    ] = 0.7,
    as_json: JsonOption = False,
) -> None:
    """Score translations by BLEU, chrF2 and TER. Prints signatures; compares systems by paired bootstrap."""
    from knnmt.evaluate import evaluate as score

    references = terminal.read_lines(reference)
    named = {str(path): terminal.read_lines(path) for path in systems}
    if len(named) < len(systems):
        raise UsageError("the same file is given twice: give each system once")
    if source is not None:
        if not store:
            raise UsageError("--source needs a store to search for its texts (--store)")
        named["tm"] = remembered(store, terminal.read_lines(source), named[str(systems[0])], threshold)
    found = known(store, references) if store else None
    with terminal.stages() as progress:
        scores = score(named, references, progress=progress)
    if found is not None and found.count:
        terminal.note(f"the store has {found} of {len(references):,} references: measured on text that it knows")
    if as_json:
        content: dict[str, Any] = {"scores": {name: [asdict(s) for s in some] for name, some in scores.items()}}
        typer.echo(json.dumps(content | ({"overlaps": counts(found)} if found is not None else {}), indent=2))
        return
    metrics = next(iter(scores.values()))
    table = terminal.table("system", *(s.metric for s in metrics))
    for name, some in scores.items():
        cells = [f"{s.value:.2f}" + (f" ±{s.interval:.2f}" if s.interval is not None else "") for s in some]
        table.add_row(
            name, *(cell + (f" p={s.p:.3f}" if s.p is not None else "") for cell, s in zip(cells, some, strict=True))
        )
    terminal.show(table)
    for found_score in metrics:
        typer.echo(f"{found_score.metric}: {found_score.signature}")


def remembered(stores: list[Path], sources: list[str], texts: list[str], threshold: float) -> list[str]:
    """The target of each source's best fuzzy match, or, below the threshold, what is there already."""
    from knnmt.datastore import open_stores
    from knnmt.store.digests import one_line
    from knnmt.translate.fuzzy import best_matches

    if len(sources) != len(texts):
        raise UsageError(f"--source has {len(sources)} lines and the translations have {len(texts)}")
    matches = best_matches(open_stores(stores), sources, threshold)
    return [
        text if match is None else one_line(match.segment.target) for text, match in zip(texts, matches, strict=True)
    ]


def known(stores: list[Path], references: list[str]) -> "Overlaps":
    """The references that are in the stores already."""
    from knnmt.datastore import open_stores
    from knnmt.overlap import overlaps

    return overlaps(open_stores(stores), references, side="target")


def counts(found: "Overlaps") -> dict[str, int]:
    """Overlaps as numbers."""
    return {"exact": len(found.exact), "near": len(found.near)}


@app.command(cls=Command)
@options(
    settings=Fields(
        "tune.settings:TuneSettings",
        "system", "limit", "decoded", "beam", "adapt", "exclude_overlaps",
        exclude_overlaps="--exclude-overlaps/--keep-overlaps",
    ),
    retrieval=Fields("systems.settings:RetrievalSettings", "index", "nprobe", given_only=True),
)  # fmt: skip
def tune(
    *,
    dev: CorpusArgument,
    langs: PairOption,
    store: StoreNeeded,
    model: ModelOption = "mini",
    settings: "TuneSettings",
    retrieval: dict[str, Any],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Settings file to write, for --settings of other commands.")
    ] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find the best retrieval settings on a dev set. Searches k, T, λ and τ by likelihood, then by BLEU."""
    import itertools

    from knnmt.corpus import Languages, read_all
    from knnmt.datastore import Datastore
    from knnmt.overlap import overlaps
    from knnmt.systems.table import require_system
    from knnmt.tune.tune import tune as search

    if settings.system != "auto":
        require_system(settings.system)
    given = retrieval_settings(None, **retrieval)
    if output is not None:
        terminal.require_writable(output, *dev)
    segments = list(itertools.islice(read_all(dev, Languages.parse(langs)), settings.limit))
    opened = Datastore.open(store)
    loaded = load_model(model, langs, device, precision, threads)
    opened.check(loaded)
    found = overlaps(opened, [segment.source for segment in segments])
    excluded = settings.exclude_overlaps
    if found.count:
        done = f"left out {len(found.segments):,} of its segments" if excluded else "settings will trust it too much"
        terminal.note(f"the store has {found} of {len(segments):,} dev segments: {done}")
    with terminal.stages() as progress:
        trials = search(
            loaded, opened, segments, settings.system, adapt=settings.kinds, decoded=settings.decoded,
            translate=settings.translate, left_out=found.segments if excluded else (),
            given=given.settings if given is not None else None,
            progress=progress,
        )  # fmt: skip
    best = trials[0]
    notes = {
        "system": best.settings.system, "bleu": best.bleu, "base_bleu": _base(trials).bleu,
        "dev": [str(path) for path in dev], "segments": len(segments), "beam": settings.beam, "store": str(store),
        "overlaps": counts(found) | {"excluded": excluded},
    }  # fmt: skip
    if output is not None:
        best.tuned.save(output, **notes)
    if as_json:
        every = [trial.as_json() for trial in trials]
        typer.echo(json.dumps(notes | {"trials": every}, indent=2, ensure_ascii=False))
        return
    terminal.show(_trials_table(trials))
    if best.settings.silent:
        terminal.note("no settings translate this dev set better than base MT does without a store")
    if best.ends:
        terminal.note(f"at the end of what is searched: {', '.join(best.ends)}; beyond it there may be better settings")
    where = f"written to {output}: use it with --settings" if output is not None else "not written: name a file (-o)"
    typer.echo(f"best: BLEU {best.bleu:.2f}, base MT {_base(trials).bleu:.2f}; {where}")


def _base(trials: "list[Trial]") -> "Trial":
    """The trial without retrieval."""
    return next(trial for trial in trials if trial.settings.silent)


def _trials_table(trials: "list[Trial]") -> Any:
    sized = any(trial.settings.c is not None for trial in trials)
    numbers = ("BLEU", "log p", "k", *(["c"] if sized else []), "T", "λ", "τ", "length")
    table = terminal.table(*numbers, "λ is", numbers=numbers)
    for trial in trials:
        s = trial.settings
        size = [str(s.c)] if sized else []
        if s.silent:
            blank = [""] * (len(size) + 2)
            table.add_row(f"{trial.bleu:.2f}", f"{trial.likelihood:.3f}", *blank, "0", "", "", "base MT")
            continue
        reach = f"{s.reach:.3g}" if s.adapt == "distance" and s.reach is not None else ""
        weight = f"{s.weight:.2f}" if s.adapt != "learned" else ""
        kind = {"constant": "constant", "distance": "falls to 0 at τ", "learned": "learned"}[s.adapt]
        table.add_row(
            f"{trial.bleu:.2f}", f"{trial.likelihood:.3f}", str(s.k or "all"), *size, f"{s.temperature:.3g}",
            weight, reach, f"{s.length_penalty:.3g}", kind,
        )  # fmt: skip
    return table
