"""Commands about whole experiments: reproduce, report."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt import terminal
from knnmt.cli.app import DeviceOption, JsonOption, PrecisionOption, ThreadsOption, app, use_threads
from knnmt.errors import UsageError

if TYPE_CHECKING:
    from knnmt.lab.reproduce import Results

BenchOption = Annotated[
    list[Path] | None, typer.Option("--bench", "-b", help="Output of `knnmt bench --output`, or a folder; repeatable.")
]


@app.command()
def reproduce(
    config: Annotated[Path, typer.Argument(help="A TOML file such as configs/domains.toml.")],
    data: Annotated[Path, typer.Option("--data", "-d", help="Folder that paths in the config are relative to.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the results.")],
    model: Annotated[str | None, typer.Option("--model", "-m", help="Model to use instead of the config's.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="Run this domain only; repeatable.")] = None,
    systems: Annotated[str | None, typer.Option(help="Run these systems only, in this order; comma-separated.")] = None,
    decompose: Annotated[bool, typer.Option(help="Analyse where faster loses, if the config says so.")] = True,
    vary: Annotated[bool, typer.Option(help="Vary settings on dev, if the config says so.")] = True,
    bench: BenchOption = None,
    make_report: Annotated[bool, typer.Option("--report/--no-report", help="Write an HTML report with plots.")] = True,
    jobs: Annotated[int | None, typer.Option(min=1, help="Processes for scoring. [default: all cores]")] = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a whole experiment. Builds stores, tunes, translates and scores; resumable."""
    from knnmt.lab.report.tables import quality
    from knnmt.lab.reproduce import Config
    from knnmt.lab.reproduce import reproduce as run

    asked = Config.load(config)
    if not data.is_dir():
        raise UsageError(f"{data} is not a folder: --data names the folder that paths in {config} are relative to")
    if model is not None:
        asked = asked.model_copy(update={"model": model})
    named = [name.strip() for name in (systems or "").split(",") if name.strip()]
    use_threads(threads)
    with terminal.stages() as progress:
        results = run(
            asked, data, out, device=device, precision=precision, only=only or (), systems=named,
            decomposed=decompose, varied=vary, jobs=jobs, progress=progress,
        )  # fmt: skip
    page = _report([results], bench or [], out / "report") if make_report else None
    if as_json:
        typer.echo(json.dumps(results.model_dump(mode="json"), indent=1, ensure_ascii=False))
        return
    heads, *rows = quality(results)
    table = terminal.table(*heads, numbers=heads[1:])
    for row in rows:
        table.add_row(*row)
    terminal.show(table)
    typer.echo(f"{out / 'results.json'}" + (f", {page}" if page is not None else ""))


@app.command()
def report(
    results: Annotated[list[Path], typer.Argument(help="results.json of `reproduce`, or a folder of results.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for report.html, tables.md and the plots.")],
    bench: BenchOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a report of results. One self-contained HTML page, plots in SVG and PNG, tables in Markdown."""
    from knnmt.lab.reproduce import Results

    page = _report([Results.load(path) for path in _files(results, "results.json")], bench or [], out)
    made = sorted(path.name for path in out.iterdir())
    typer.echo(json.dumps({"page": str(page), "files": made}) if as_json else str(page))


def _report(results: "list[Results]", bench: list[Path], out: Path) -> Path:
    from knnmt.lab.report import Bench
    from knnmt.lab.report import report as draw

    return draw(results, [Bench.load(path) for path in _files(bench, "")], out)


def _files(paths: list[Path], whole: str) -> list[Path]:
    """The files, those in folders in order; of a folder with a file `whole` that one alone."""
    found = []
    for path in paths:
        several = sorted(path.glob("*.json")) if path.is_dir() and not (whole and (path / whole).exists()) else []
        found += several or [path]
    return found
