"""Commands for glossaries: glossary check."""

import json
from pathlib import Path
from typing import Annotated

import typer

from knnmt import terminal
from knnmt.cli.app import JsonOption, LangsOption, app

glossary = typer.Typer(help="Check a glossary.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(glossary, name="glossary")


@glossary.callback()
def before() -> None:
    """Check a glossary."""


@glossary.command()
def check(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Glossary: TSV, CSV or TBX.")],
    langs: LangsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find errors in a glossary. Empty sides, duplicates, terms that can never match, forbidden targets."""
    from knnmt.errors import DataError
    from knnmt.text.glossary import Glossary

    faults: list[DataError] = []
    found = Glossary.read(path, langs, bad=faults.append)
    told = [*map(str, faults), *(f"{path}:{line}: {problem}" for line, problem in found.problems())]
    if as_json:
        typer.echo(json.dumps({"terms": len(found), "problems": told}, ensure_ascii=False))
    else:
        for line in told:
            typer.echo(line)
        terminal.note(f"{terminal.counted(len(found), 'term')}, {terminal.counted(len(told), 'problem')}")
    if told:
        raise typer.Exit(1)
