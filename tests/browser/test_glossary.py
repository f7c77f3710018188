"""Terms on the page: the user's own, and what the glossary has to do with a word."""

from collections.abc import Iterator
from typing import Any

import pytest

from ..server.real import serving
from ..server.standin import StandIn
from .conftest import complaints
from .test_page import Page


@pytest.fixture
def page(browser: Any) -> Iterator[Page]:
    standin = StandIn()
    standin.retriever = None  # type: ignore[assignment]
    with serving(standin.as_translator()) as port:
        browser.get_log("browser")
        browser.get(f"http://127.0.0.1:{port}/")
        page = Page(browser)
        page.until(lambda: page.one("#pair").text == "German to English")
        yield page
        assert complaints(browser) == []
        browser.execute_script("sessionStorage.clear()")
        browser.get("about:blank")


def test_a_word_of_the_glossary_is_marked_and_explained(page: Page) -> None:
    page.ask("Datei öffnen", "Datei' öffnen'")
    page.advanced()
    page.one("#terms").send_keys("Datei = file\nnur links =\n")
    page.until(lambda: page.translation == "file öffnen'")
    assert page.one("#terms-unread").text == "Line 2 is not used: write source = target."
    word = page.word("file")
    assert "term" in word.get_attribute("class").split()
    assert "by the glossary" in word.get_attribute("aria-label")
    assert "by the glossary" not in page.word("öffnen'").get_attribute("aria-label")
    word.click()
    page.until(lambda: "by the glossary Datei → file" in page.one("#why-body").text)


def test_a_term_that_is_not_used_is_named(page: Page) -> None:
    page.advanced()
    page.one("#terms").send_keys("Datei = file")
    page.ask("Dateien da", "Dateien' da'")
    page.until(lambda: "“file” is not used for “Datei”" in page.one("#missed").text)
    page.one("#clear").click()
    page.until(lambda: not page.one("#missed").is_displayed())
