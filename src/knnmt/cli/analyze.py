"""The command that says what there is to translate: analyze."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt import terminal
from knnmt.cli.app import ColumnsOption, FormatOption, JsonOption, LangsOption, StoresOption, app
from knnmt.cli.documents import documents_in

if TYPE_CHECKING:
    from knnmt.translate.analysis import Analysis


@app.command()
def analyze(
    inputs: Annotated[list[Path], typer.Argument(help="Documents, text, or folders of them.")],
    store: StoresOption = None,
    langs: LangsOption = None,
    all_units: Annotated[bool, typer.Option("--all", help="Count translated units too.")] = False,
    format: FormatOption = None,
    columns: ColumnsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Count words and segments by how well a store matches them.

    Bands are the fuzzy match in percent (word-level edit distance to the best segment). Nothing is translated, and no
    model is loaded.
    """
    from knnmt.datastore import open_stores
    from knnmt.documents.pretranslate import to_translate
    from knnmt.languages import Languages
    from knnmt.translate.analysis import analyze as analysis_of

    opened = open_stores(store) if store else None
    pair = langs or (opened.manifest.languages if opened is not None else None)
    documents = documents_in(inputs, format, columns, Languages.parse(pair) if pair is not None else None)
    texts = [unit.source.text for document in documents for unit in to_translate(document, everything=all_units)]
    found = analysis_of(opened, texts)
    if as_json:
        bands = {name: asdict(band) for name, band in found.bands.items()}
        typer.echo(json.dumps({"files": len(documents), "bands": bands, "total": asdict(found.total)}, indent=2))
    else:
        _show(found)


def _show(found: "Analysis") -> None:
    numbers = ("segments", "words", "%")
    table = terminal.table("match", *numbers, numbers=numbers)
    total = found.total
    for name, band in [*found.bands.items(), ("total", total)]:
        if name == "total":
            table.add_section()
        share = 100 * band.words / max(1, total.words)
        table.add_row(name, f"{band.segments:,}", f"{band.words:,}", f"{share:.0f}")
    terminal.show(table)
