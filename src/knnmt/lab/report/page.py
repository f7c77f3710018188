"""The page: tables and plots in one file that asks nothing of any network."""

from collections.abc import Mapping, Sequence
from html import escape

from knnmt.lab.report.bench import Bench
from knnmt.lab.report.plots import Plot
from knnmt.lab.report.tables import Table, facts
from knnmt.lab.report.theme import variables
from knnmt.lab.reproduce.results import Results

STYLE = """
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.3rem; margin: 2.75rem 0 .5rem; border-bottom: 1px solid var(--grid); padding-bottom: .25rem; }
h3 { font-size: 1rem; margin: 1.75rem 0 .5rem; }
p, figcaption { max-width: 46rem; }
.note, figcaption, footer { color: var(--quiet); font-size: .875rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; white-space: nowrap; border-bottom: 1px solid var(--grid); }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
thead th { border-bottom: 2px solid var(--quiet); vertical-align: bottom; font-weight: 600; }
tbody th { font-weight: 500; }
figure { margin: 1.25rem 0 2rem; }
figure svg { display: block; width: 100%; height: auto; max-width: 56rem; }
code { font-size: .92em; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; font-size: .875rem; }
dt { color: var(--quiet); } dd { margin: 0; overflow-wrap: anywhere; }
"""


def html(
    results: Sequence[Results],
    benches: Sequence[Bench],
    sections: Mapping[str, Sequence[Table]],
    figures: Mapping[str, tuple[Plot, str]],
) -> str:
    """The whole page; `figures` are plots and their SVG."""
    title = results[0].title if len(results) == 1 else "What was measured"
    parts = [f"<h1>{escape(title)}</h1>"]
    parts += [f"<p>{escape(one.note)}</p>" for one in results if one.note]
    first = [(heading, some[0]) for heading, some in sections.items()][: len(results)]
    for heading, table in first:
        parts.append(f"<h2>{escape(heading) if len(results) > 1 else 'In short'}</h2>")
        parts.append(_table(table))
    if figures:
        parts.append("<h2>Pictures</h2>")
        parts += [_figure(name, *found) for name, found in figures.items()]
    for heading, some in sections.items():
        parts.append(f"<h2>{escape(heading)}</h2>")
        parts += [_table(table) for table in some if (heading, table) not in first]
    parts.append("<h2>Where it was measured</h2>")
    for one in results:
        parts.append(_machine(one.title, one.machine | one.versions | {"model": one.config.get("model", "")}))
    parts += [_machine(bench.name, bench.machine) for bench in benches if bench.machine]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(title)}</title>\n<style>{variables()}{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _figure(name: str, plot: Plot, svg: str) -> str:
    labelled = svg.replace("<svg ", f'<svg role="img" aria-label="{escape(plot.title)}" ', 1)
    caption = f"<figcaption>{escape(plot.caption)}</figcaption>"
    return f'<figure id="{escape(name)}">\n<h3>{escape(plot.title)}</h3>\n{labelled}\n{caption}\n</figure>'


def _table(table: Table) -> str:
    heads, *rows = table.rows
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in heads)
    lines = []
    for first, *cells in rows:
        rest = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{rest}</tr>')
    note = f'<p class="note">{_code(table.note)}</p>' if table.note else ""
    return (
        f'<h3>{escape(table.title)}</h3>\n<div class="wide" tabindex="0"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>{''.join(lines)}</tbody>\n</table></div>\n{note}"
    )


def _code(text: str) -> str:
    """A note; what stands between backticks is code."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces))


def _machine(title: str, found: Mapping[str, object]) -> str:
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts(found))
    return f"<h3>{escape(title)}</h3>\n<dl>{rows}</dl>"
