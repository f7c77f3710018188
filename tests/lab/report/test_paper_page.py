"""The tables of docs/paper.md and docs/results.md are those of the results that are committed.

`python tests/lab/report/test_paper_page.py` writes them anew.
"""

import re
from pathlib import Path

import pytest

from knnmt.lab.report import Bench, claims, paper, tables, worth
from knnmt.lab.report.tables import Table
from knnmt.lab.reproduce.results import Results, joined

DOCS = Path(__file__).parents[3] / "docs"
FIGURES = DOCS / "results" / "paper"
PAGES = ("paper.md", "results.md")
MARK = re.compile(r"<!-- table: (?P<title>[^>]+?) -->\n(?P<body>.*?)<!-- end -->", re.DOTALL)


def found() -> dict[str, Table]:
    """All tables that a page may show, by the title of their section and their own."""
    results = joined([Results.load(path) for path in sorted(FIGURES.glob("*.json"))])
    results.sort(key=lambda one: not tables.model_name(one).startswith("mini"))
    benches = [Bench.load(path) for path in sorted((FIGURES / "bench").glob("*.json"))]
    sections = claims.section(results, benches) | paper.sections(results) | worth.tables(results)
    sections |= tables.sections(results, benches)
    return {f"{title} / {table.title}": table for title, some in sections.items() for table in some}


def shown(table: Table) -> str:
    """A table without its title."""
    whole = tables.markdown({"": [table]})
    return whole[whole.index("\n|") + 1 :].strip() + "\n"


def redrawn(page: str) -> str:
    """The page with its tables as the results have them."""
    every = found()
    return MARK.sub(lambda at: f"<!-- table: {at['title']} -->\n{shown(every[at['title']])}<!-- end -->", page)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_the_committed_results(name: str) -> None:
    page = (DOCS / name).read_text(encoding="utf-8")
    assert MARK.search(page)
    assert redrawn(page) == page, "run python tests/lab/report/test_paper_page.py"


if __name__ == "__main__":
    for path in (DOCS / name for name in PAGES):
        path.write_text(redrawn(path.read_text(encoding="utf-8")), encoding="utf-8")
