"""What the page shows while it translates, and when that fails; and the panel on a phone."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .conftest import complaints
from .standin import StandIn
from .test_page import Page


@pytest.fixture
def page(browser: Any, standin: StandIn) -> Iterator[Page]:
    browser.get_log("browser")
    browser.get(standin.url)
    page = Page(browser)
    page.until(lambda: page.one("#pair").text == "German to English")
    yield page
    assert complaints(browser, "status of 400", "status of 429") == []


def test_many_lines_come_as_they_are_done(page: Page, standin: StandIn) -> None:
    standin.delay = 0.1
    lines = [f"Haus {n}" for n in range(300)]
    page.browser.execute_script(
        "const area = arguments[0]; area.value = arguments[1]; area.dispatchEvent(new Event('input'))",
        page.one("#source"),
        "\n".join(lines),
    )
    page.until(lambda: page.one("#status").text.endswith(" of 300 lines"))
    assert page.translation.startswith("House 0.\nHouse 1.")
    assert not page.one("#copy").is_enabled()
    page.until(lambda: page.translation.endswith("House 299."))
    assert page.translation.count("\n") == 299
    page.until(lambda: page.one("#copy").is_enabled() and page.one("#correct").is_enabled())
    assert [len(asked["q"]) for asked in standin.asked] == [8, 16, *[32] * 8, 20]


def test_long_lines_are_sent_few_at_a_time(page: Page, standin: StandIn) -> None:
    lines = ["Haus " * 300] * 6 + ["Haus " * 1000, "Haus"]  # of 1,500 characters, and one of more than a request has
    page.browser.execute_script(
        "document.querySelector('#source').value = arguments[0]; "
        "document.querySelector('#source').dispatchEvent(new Event('input'))",
        "\n".join(lines),
    )
    page.until(lambda: page.one("#copy").is_displayed() and page.one("#copy").is_enabled())
    assert [len(asked["q"]) for asked in standin.asked] == [2, 2, 2, 1, 1]


def test_lines_that_are_done_are_not_asked_for_again(page: Page, standin: StandIn) -> None:
    standin.limit = 1  # requests, before the server wants a pause
    page.browser.execute_script(
        "const area = arguments[0]; area.value = arguments[1]; area.dispatchEvent(new Event('input'))",
        page.one("#source"),
        "\n".join(f"Haus {n}" for n in range(12)),
    )
    page.until(lambda: page.one("#failure").text == "Slowdown. Retrying…")
    assert page.translation.startswith("House 0.\nHouse 1.")
    standin.limit = None
    page.one("#retry").click()
    page.until(lambda: page.one("#copy").is_enabled())
    assert [len(asked["q"]) for asked in standin.asked] == [8, 4]


def test_an_old_translation_can_be_neither_copied_nor_corrected(page: Page, standin: StandIn) -> None:
    page.ask("Haus", "House.")
    assert page.one("#copy").is_enabled()
    standin.failing = 400, "Invalid request: this is too much"
    page.type(" ist")
    assert not page.one("#copy").is_enabled()
    page.until(lambda: "too much" in page.one("#failure").text)
    assert page.translation == ""
    assert not page.one("#copy").is_displayed()
    assert not page.one("#correct").is_displayed()
    standin.failing = None
    page.type(" groß")
    page.until(lambda: page.translation == "House is big.")
    assert page.one("#copy").is_enabled()
    assert page.one("#correct").is_enabled()


WIDER = """
const panel = document.getElementById("why");
const right = panel.getBoundingClientRect().right;
return [panel.scrollWidth - panel.clientWidth, ...[...panel.querySelectorAll("*")]
  .filter((node) => node.getBoundingClientRect().right > right).map((node) => node.outerHTML.slice(0, 80))];
"""


@pytest.mark.parametrize("width", [390, 320])
def test_the_panel_does_not_scroll_sideways_on_a_phone(
    page: Page, standin: StandIn, screen: Callable[[int, str], None], width: int
) -> None:
    screen(width, "light")
    standin.memory["#0"]["origin"] = "/srv/translations/" + "a_very_long_name_of_a_file_" * 4 + ".tmx"
    page.ask("Das Haus ist groß.", "The house is big.")
    page.word("house").click()
    page.until(lambda: page.all("#why .neighbours"))
    assert "/srv" not in page.one("#why .neighbours").text
    assert page.browser.execute_script(WIDER) == [0]
    word, panel = page.word("house").rect, page.one("#why").rect
    assert word["y"] + word["height"] <= panel["y"]  # it is not covered
    page.one("#why-close").click()
    page.advanced()
    assert page.browser.execute_script("return document.documentElement.scrollWidth") <= width
    inside = "const box = document.querySelector('#advanced .controls'); return box.scrollWidth - box.clientWidth"
    assert page.browser.execute_script(inside) == 0
    box = page.one("#advanced .controls").rect
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


def test_on_a_phone_the_progress_of_a_long_text_is_in_sight(
    page: Page, standin: StandIn, screen: Callable[[int, str], None]
) -> None:
    screen(390, "light")
    standin.delay = 0.1
    page.browser.execute_script(
        "const area = arguments[0]; area.value = arguments[1]; area.dispatchEvent(new Event('input'))",
        page.one("#source"),
        "\n".join(f"Haus {n}" for n in range(300)),
    )
    page.until(lambda: page.one("#status").text.endswith(" of 300 lines"))
    bottom = page.browser.execute_script("return arguments[0].getBoundingClientRect().bottom", page.one("#status"))
    assert bottom < 800  # the height of the screen
