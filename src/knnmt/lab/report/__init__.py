"""What was measured, for people: one page that needs no network, plots in SVG and PNG, tables in Markdown.

bench.py rows of `knnmt bench` · tables.py rows of text · paper.py, claims.py the paper's tables and claims beside ours
· theme.py colours for light and dark · plots.py, curves.py, lost.py and worth.py the pictures · page.py the page. Only
drawing needs matplotlib, the extra `plot`.
"""

from collections.abc import Sequence
from pathlib import Path

from knnmt.lab.report import claims, curves, lost, page, paper, plots, tables, theme, worth
from knnmt.lab.report.bench import Bench
from knnmt.lab.reproduce.results import Results, joined
from knnmt.model.embedded import EMBEDDED

__all__ = ["Bench", "report"]


def report(results: Sequence[Results], benches: Sequence[Bench], out: Path) -> Path:
    """Write report.html, tables.md and every plot that there are figures for into a folder; gives the page's path."""
    theme.require()
    out.mkdir(parents=True, exist_ok=True)
    results = sorted(joined(results), key=lambda one: tables.model_name(one) not in EMBEDDED)
    whole = [one for one in results if not curves.only_variants(one)] or list(results)
    drawn = [plot for one in whole for plot in plots.of_results(one)]
    drawn = [*worth.plots(results), *lost.plots(results), *drawn, *curves.of_variants(results)]
    drawn += plots.of_benches(benches)
    names = [plot.name for plot in drawn]
    figures = {}
    for number, plot in enumerate(drawn):
        again = names[:number].count(plot.name)  # plots of another experiment
        name = f"{plot.name}-{again + 1}" if again else plot.name
        figures[name] = (plot, theme.save(plot.draw, out, name))
    sections = tables.sections(results, benches) | claims.section(results, benches)
    sections |= paper.sections(results) | worth.tables(results)
    (out / "tables.md").write_text(tables.markdown(sections), encoding="utf-8")
    place = out / "report.html"
    place.write_text(page.html(results, benches, sections, figures), encoding="utf-8")
    return place
