"""Every view of the page under axe-core, in light and dark.

axe-core is not part of this repository: `npm install --no-save axe-core` puts it into node_modules, or AXE_CORE names
the path of its axe.min.js.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import complaints
from .standin import StandIn
from .test_page import Page
from .test_team import KEY

PLACE = Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
RUN = """
const done = arguments[0];
axe.run(document).then(({ violations, passes }) => done([
  violations.filter(({ impact }) => ["serious", "critical"].includes(impact))
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(" ")}`),
  passes.length,
]));
"""


@pytest.fixture(scope="module")
def axe() -> str:
    path = Path(os.environ.get("AXE_CORE", PLACE))
    if not path.is_file():
        pytest.skip(f"there is no {path} (npm install --no-save axe-core, or set AXE_CORE)")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("width", "colours"), [(1280, "light"), (390, "dark")])
def test_no_view_has_serious_faults(
    browser: Any, standin: StandIn, axe: str, screen: Callable[[int, str], None], width: int, colours: str
) -> None:
    screen(width, colours)
    standin.pairs, standin.memories = [("de", "en"), ("en", "de")], ["company", "project"]
    standin.key, standin.name, standin.role = KEY, "rita", "review"
    standin.add("Klicken Sie auf Speichern.", "Click Save.", "added")
    for number in range(3):
        standin.suggest(f"Die Datei {number} wird geöffnet", f"Document {number} is opened.")
    browser.get(standin.url)
    browser.execute_script(axe)
    page = Page(browser)

    def check(view: str) -> None:
        browser.execute_script(  # colours on their way are nobody's
            "for (const each of document.getAnimations()) if (each.effect.getTiming().iterations === 1) each.finish()"
        )
        faults, passed = browser.execute_async_script(RUN)
        assert faults == [], view
        assert passed > 10, view

    page.until(lambda: page.one("#key").is_displayed())
    check("key")
    page.one("#key-input").send_keys(KEY + "\n")
    page.until(lambda: page.one("#list li") and page.one("#waiting").text == "3")
    check("empty")
    page.ask("Das Haus ist groß.\nDatei", "The house is big.\nFile.")
    page.word("house").click()
    page.one("#why .formulas summary").click()
    check("why")
    page.one("#why-close").click()
    page.advanced()
    check("advanced")
    page.one("#advanced summary").click()
    page.one("#correct").click()
    check("correcting")
    page.one("#cancel").click()
    standin.failing = 400, "Invalid request"
    page.type(" x")
    page.until(lambda: page.one("#failed").is_displayed())
    check("error")
    standin.failing = None
    page.one("#tab-review").click()
    page.until(lambda: len(page.all(".suggestions ins")) >= 3)
    page.all(".suggestions > li")[0].find_elements("css selector", "button")[1].click()
    page.all(".suggestions > li")[1].find_elements("css selector", "button")[2].click()
    check("review")
    standin.queue.clear()
    page.one("#tab-translate").click()
    page.one("#tab-review").click()
    page.until(lambda: page.one("#review-empty").is_displayed())
    check("nothing to review")
    complaints(browser)
