"""Documents on the page: dropped or chosen, followed, cancelled, downloaded. The server is real, its translator a
stand-in."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from knnmt.corpus import Segment

from ..server.real import serving
from ..server.standin import StandIn
from .conftest import complaints
from .test_page import Page

PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "Datei öffnen"\nmsgstr ""\n\n'
DROP = """
const [zone, name, content] = arguments;
const transfer = new DataTransfer();
transfer.items.add(new File([content], name));
for (const [kind, where] of [["dragenter", "main"], ["dragover", zone], ["drop", zone]]) {
  const event = new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true });
  document.querySelector(where).dispatchEvent(event);
}
"""


@pytest.fixture
def translator() -> StandIn:
    standin = StandIn()
    standin.add([Segment("Speichern", "Save", "", "s-1")])
    return standin


@pytest.fixture
def page(browser: Any, translator: StandIn, tmp_path: Path) -> Iterator[Page]:
    with serving(translator.as_translator(), max_file=100_000) as port:
        browser.get_log("browser")
        browser.execute_cdp_cmd("Page.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
        browser.get(f"http://127.0.0.1:{port}/")
        page = Page(browser)
        page.until(lambda: page.one("#pair").text == "German to English")
        yield page
        assert complaints(browser, "status of 400") == []
        browser.get("about:blank")


def row(page: Page) -> str:
    return str(page.all("#documents > li")[-1].text)


def test_a_document_is_chosen_translated_and_downloaded(page: Page, tmp_path: Path) -> None:
    (tmp_path / "app.po").write_text(PO + 'msgid "Speichern"\nmsgstr ""\n', encoding="utf-8")
    page.one("#document").send_keys(str(tmp_path / "app.po"))
    page.until(lambda: "2 units translated (3 words), 1 exact match, 0 problems." in row(page))
    page.one("#documents .primary").click()
    page.until(lambda: (tmp_path / "app_en.po").exists())
    assert "Datei' öffnen'" in (tmp_path / "app_en.po").read_text(encoding="utf-8")
    page.one("#documents .plain").click()
    page.until(lambda: not page.one("#documents-card").is_displayed())


@pytest.mark.parametrize("zone", ["#drop-document", "main"])
def test_a_document_is_dropped(page: Page, zone: str) -> None:
    page.browser.execute_script(DROP, zone, "app.po", PO)
    page.until(lambda: "1 unit translated (2 words), 0 exact matches, 0 problems." in row(page))
    assert not page.one("#veil").is_displayed()
    assert not page.one("#import-state").is_displayed()


def test_what_cannot_be_translated_is_said_clearly(page: Page) -> None:
    page.browser.execute_script(DROP, "#drop-document", "photo.png", "x")
    page.until(lambda: "This kind of file cannot be translated. Supported: .po " in row(page))
    page.browser.execute_script(DROP, "#drop-document", "app.json", "{")
    page.until(lambda: "app.json:1" in row(page))
    page.browser.execute_script(DROP, "#drop-document", "large.txt", "x" * 100_001)
    page.until(lambda: "larger than 100000 bytes" in row(page))
    page.browser.execute_script(DROP, "#drop-memory", "app.po", PO)
    page.until(lambda: "app.po is not a TMX file" in page.one("#import-words").text)


def test_a_problem_is_listed(page: Page, translator: StandIn) -> None:
    translator.add([Segment("Hallo %s", "Hello", "", "s-2")])
    page.browser.execute_script(DROP, "#drop-document", "app.po", PO + 'msgid "Hallo %s"\nmsgstr ""\n')
    page.until(lambda: "1 problem to look at" in row(page))
    page.one("#documents summary").click()
    page.until(lambda: "app.po:7" in row(page))


def test_progress_is_shown_and_a_document_can_be_cancelled(page: Page, translator: StandIn) -> None:
    translator.pause = 0.05
    page.browser.execute_script(DROP, "#drop-document", "long.txt", "".join(f"Zeile {n} da.\n" for n in range(3000)))
    page.until(lambda: " of 3,000 texts translated" in row(page) and not row(page).startswith("0 of"))
    bar = page.one("#documents progress")
    page.until(lambda: float(bar.get_attribute("value") or 0) > 0)
    page.one("#documents .plain").click()
    page.until(lambda: not page.one("#documents-card").is_displayed())
    time.sleep(0.3)
    before = len(translator.batches)
    time.sleep(0.3)
    assert len(translator.batches) <= before + 1


def test_documents_fit_a_phone(page: Page, screen: Callable[[int, str], None]) -> None:
    screen(390, "light")
    page.browser.execute_script(DROP, "#drop-document", "a-very-long-name-" * 6 + ".po", PO)
    page.until(lambda: "1 unit translated" in row(page))
    assert page.browser.execute_script("return document.documentElement.scrollWidth") <= 390
