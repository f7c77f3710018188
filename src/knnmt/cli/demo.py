"""The command demo."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from knnmt import terminal
from knnmt.cli.app import JsonOption, ModelOption, ThreadsOption, app, load_model

if TYPE_CHECKING:
    from knnmt.corpus.segment import Segment
    from knnmt.lab.demo import Comparison, Correction, Result

SHOWN = 8  # examples
LOCALISED = 5  # of the other direction
TAUGHT = 4  # of corrections


@app.command()
def demo(model: ModelOption = "mini", threads: ThreadsOption = None, as_json: JsonOption = False) -> None:
    """Translate real software strings with and without a store. From known projects and from an unknown one.

    German to English with --model, then English to German with the embedded model.
    """
    from knnmt.lab import demo as text

    catalogs, unknown = text.catalogs()
    loaded = load_model(model, str(text.LANGUAGES), "auto", "auto", threads)
    with terminal.stages() as progress:
        found = text.compare(loaded, catalogs, unknown, progress)
        localised = unknown.reversed()
        other = load_model("mini", str(localised.languages), "auto", "auto", threads)
        back = text.untuned(other, localised, progress)
    if as_json:
        reversed = {str(localised.languages): {name: _scores(result) for name, result in back.items()}}
        typer.echo(json.dumps(_content(found) | {"unknown_project_reversed": reversed}, indent=2, ensure_ascii=False))
        return
    _show_examples("German", found.held_out, found.results, SHOWN)
    *others, last = text.PACKAGES
    typer.echo(
        f"Projects that the memory knows: {len(found.held_out)} strings drawn at random from {', '.join(others)} and "
        f"{last}, memory of the {len(catalogs.memory):,} others (built in {found.build_seconds:.0f} s, tuned on "
        f"{text.DEV} of these in {found.tune_seconds:.0f} s)"
    )
    _show_scores(found.results)
    typer.echo(
        f"A project that it does not know: {len(unknown.held_out)} strings of {last}, memory of "
        f"{len(unknown.memory):,} of {' and '.join(others)}, untuned"
    )
    _show_scores(found.unknown)
    if found.corrections:
        _show_corrections(found.corrections)
    typer.echo(f"\nEnglish to German: the same strings of {last}, the same memory, untuned")
    _show_examples("English", localised.held_out, back, LOCALISED)
    _show_scores(back)
    typer.echo(f"BLEU: {found.results['base'].bleu.signature}")


def _show_examples(language: str, segments: "list[Segment]", results: "dict[str, Result]", count: int) -> None:
    """Strings that the memory changes."""
    from knnmt.lab.demo import CORRECTED

    base, best = results["base"].translations, results[CORRECTED].translations
    changed = [n for n, (a, b) in enumerate(zip(base, best, strict=True)) if a != b]
    table = terminal.table(language, "reference", "base MT", "with memory")
    for n in [n for n in changed if 15 <= len(segments[n].source) <= 60][:count]:
        table.add_row(segments[n].source, segments[n].target, base[n], best[n])
    terminal.show(table)
    typer.echo(
        f"With memory ({CORRECTED}), {len(changed)} of {len(segments)} strings come out otherwise than by base MT; "
        "shown are the first of medium length.\n"
    )


def _show_scores(results: "dict[str, Result]") -> None:
    """A row for each system."""
    from knnmt.systems.table import SYSTEMS

    heads = ("BLEU", "no placeholders", "placeholders", "seconds", "k", "λ")
    scores = terminal.table("system", *heads, numbers=heads)
    for name, result in results.items():
        s = result.settings
        used: list[str] = []
        if s is not None:
            most = "≤ " if s.adapt == "distance" else ""
            used = [str(s.k) if s.k and SYSTEMS[s.system].takes_k else "all", f"{most}{s.weight:.2f}"]
        bleus = (f"{score.value:.1f}" for score in (result.bleu, result.plain, result.marked))
        scores.add_row(name, *bleus, f"{result.seconds:.1f}", *used)
    terminal.show(scores)


def _show_corrections(corrections: "list[Correction]") -> None:
    """What happens when a user corrects a string."""
    table = terminal.table("German", "with memory", "corrected by hand", "next translation")
    for one in [one for one in corrections if 15 <= len(one.segment.source) <= 60][:TAUGHT]:
        table.add_row(one.segment.source, one.before, one.segment.target, one.after)
    terminal.show(table)
    right = sum(one.after == one.segment.target for one in corrections)
    seconds = sorted(one.seconds for one in corrections)[len(corrections) // 2]
    typer.echo(
        f"Corrected {len(corrections)} strings, one after the other, each learnt in {1000 * seconds:.0f} ms (median): "
        f"the next translation of {right} is the correction, word for word."
    )


def _content(found: "Comparison") -> dict[str, Any]:
    """All of it, for machines."""
    rows = zip(found.held_out, *(result.translations for result in found.results.values()), strict=True)
    return {
        "systems": {name: _scores(result) for name, result in found.results.items()},
        "unknown_project": {name: _scores(result) for name, result in found.unknown.items()},
        "corrections": [
            {"source": one.segment.source, "taught": one.segment.target, "before": one.before, "after": one.after}
            for one in found.corrections
        ],
        "build_seconds": found.build_seconds,
        "tune_seconds": found.tune_seconds,
        "segments": [
            {"source": segment.source, "reference": segment.target} | dict(zip(found.results, texts, strict=True))
            for segment, *texts in rows
        ],
    }


def _scores(result: "Result") -> dict[str, Any]:
    return {
        "bleu": asdict(result.bleu),
        "bleu_without_placeholders": result.plain.value,
        "bleu_with_placeholders": result.marked.value,
        "seconds": result.seconds,
        "settings": result.settings.model_dump(by_alias=True) if result.settings is not None else None,
    }
