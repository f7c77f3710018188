"""The page and the real server of a team together: one suggests, another accepts. The models are stand-ins."""

from pathlib import Path
from typing import Any

import pytest

from ..server.real import running
from ..server.team import team
from .conftest import complaints
from .test_page import Page


def enter(page: Page, key: str) -> None:
    """Sign in; whoever was there signs out."""
    if page.one("#sign-out").is_displayed():
        page.one("#sign-out").click()
    page.until(lambda: page.one("#key-input").is_displayed())
    page.one("#key-input").send_keys(f"{key}\n")
    page.until(lambda: page.one("#who-name").text.startswith(key))
    page.until(lambda: page.one("#source").is_displayed() and page.one("#memory-size").text)
    complaints(page.browser)  # of the 403, which a browser logs


def test_a_suggestion_is_edited_accepted_and_used_and_no_name_gets_out(
    browser: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from selenium.webdriver import Keys

    caplog.set_level("INFO", logger="knnmt")
    page = Page(browser)
    with running(team(tmp_path)) as port:
        browser.get_log("browser")
        browser.get(f"http://127.0.0.1:{port}/")
        enter(page, "tina")
        page.ask("Guten Tag", "Guten' Tag'")
        page.one("#correct").click()
        page.one("#edit").clear()
        page.one("#edit").send_keys("Good day")
        page.one("#teach").click()
        page.until(lambda: "1 suggestion sent" in page.one("#learnt").text)

        enter(page, "rita")
        page.until(lambda: page.one("#waiting").text == "1")
        page.one("#tab-review").click()
        page.until(lambda: "Guten' Tag'" in page.one(".suggestions").text)
        assert "tina · " in page.one(".suggestions .facts").text
        page.all(".suggestions button")[1].click()
        field = page.focus
        field.clear()
        field.send_keys("Good day!", Keys.CONTROL, Keys.ENTER)
        page.until(lambda: page.one("#review-empty").is_displayed())
        page.one("#tab-translate").click()
        page.until(lambda: "tina · " in page.one("#list li").text)

        enter(page, "tina")
        page.ask("Guten Tag", "Good day!")
        page.one("#swap").click()
        page.until(lambda: page.one("#memory-size").text == "none")
        page.until(lambda: page.one("#copy").is_enabled())
        assert complaints(browser) == []
        assert browser.current_url == f"http://127.0.0.1:{port}/"
        browser.get("about:blank")
    assert caplog.text
    for secret in ("Guten", "Good", "handbook", "company"):
        assert secret not in caplog.text
