"""The command that reviews translated documents: check."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt import terminal
from knnmt.cli.app import ColumnsOption, FormatOption, GlossaryOption, JsonOption, LangsOption, app
from knnmt.cli.documents import documents_in
from knnmt.errors import UsageError

if TYPE_CHECKING:
    from knnmt.checks.review import Translated
    from knnmt.languages import Languages


@app.command()
def check(
    files: Annotated[
        list[Path], typer.Argument(help="Translated documents, folders of them; or a text and its translation.")
    ],
    langs: LangsOption = None,
    glossary: GlossaryOption = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Kind of check to skip; repeatable.")] = None,
    format: FormatOption = None,
    columns: ColumnsOption = None,
    as_json: JsonOption = False,
    sarif: Annotated[bool, typer.Option("--sarif", help="SARIF 2.1.0, for code scanning.")] = False,
    junit: Annotated[bool, typer.Option("--junit", help="JUnit XML, for continuous integration.")] = False,
) -> None:
    """Check translations. Placeholders, tags, numbers, punctuation, terms, consistency and more; exit code 1 if
    anything was found.

    Formats with room for two languages (PO, XLIFF, TMX, Qt, tables) are checked by themselves. Of any other format,
    and of plain text, name two files: the text and its translation.
    """
    from knnmt import __version__
    from knnmt.checks import KINDS, reports
    from knnmt.checks.review import review
    from knnmt.checks.table import require_kinds
    from knnmt.languages import Languages
    from knnmt.text.glossary import Glossary

    if as_json + sarif + junit > 1:
        raise UsageError("--json, --sarif and --junit are three formats: choose one")
    skipped = ignore or []
    require_kinds(skipped)
    languages = Languages.parse(langs) if langs is not None else None
    units = _units(files, format, languages, columns)
    terms = Glossary.read(glossary, languages) if glossary is not None else None
    found = review(units, languages, terms, ignore=skipped)
    if as_json:
        typer.echo(reports.as_json(found))
    elif sarif:
        typer.echo(reports.as_sarif(found, __version__))
    elif junit:
        checked = list(dict.fromkeys(unit.file for unit in units)) or [str(files[-1])]
        typer.echo(reports.as_junit(found, checked, [kind for kind in KINDS if kind not in skipped]))
    else:
        for each in found:
            typer.echo(each)
        counts = f"{terminal.counted(len(units), 'unit')} checked, {terminal.counted(len(found), 'finding')}"
        typer.echo(counts, err=True)
    if found:
        raise typer.Exit(1)


def _units(
    files: list[Path], format: str | None, languages: "Languages | None", columns: str | None
) -> "list[Translated]":
    """The units of the files, each with its translation."""
    from knnmt.documents.reviewed import reviewed, side_by_side

    documents = documents_in(files, format, columns, languages)
    alone = [each for each in documents if not each.format.bilingual or len(each.content.columns) == 1]
    if not alone:
        return [unit for document in documents for unit in reviewed(document)]
    if len(documents) == 2 and documents[0].format is documents[1].format:
        return list(side_by_side(*documents))
    raise UsageError(f"{alone[0].content.name} holds one language: name two files, a text and its translation")
