"""The page for a team: languages and memories to choose, suggestions, and their review, by mouse and by key."""

from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import complaints
from .standin import StandIn
from .test_page import Page

KEY = "open sesame"


def opened(browser: Any, standin: StandIn) -> Page:
    """The page, with the key that it asks for."""
    browser.get_log("browser")
    browser.get(standin.url)
    page = Page(browser)
    if standin.key:
        page.until(lambda: page.one("#key").is_displayed())
        page.one("#key-input").send_keys(standin.key + "\n")
        complaints(browser)  # of the 403, which a browser logs
    page.until(lambda: page.one("#system option") and page.one("#source").is_displayed())
    return page


@pytest.fixture
def page(browser: Any, standin: StandIn) -> Iterator[Page]:
    """The page of a server of three pairs and two memories."""
    standin.pairs = [("de", "en"), ("en", "de"), ("de", "fr")]
    standin.memories = ["company", "project"]
    yield opened(browser, standin)
    assert complaints(browser) == []


@pytest.fixture
def reviewer(browser: Any, standin: StandIn) -> Iterator[Page]:
    """The page of a reviewer who has two suggestions to decide on."""
    standin.key, standin.name, standin.role = KEY, "rita", "review"
    standin.suggest("Die Datei wird geöffnet", "The document is opened.")
    standin.suggest("Das Haus ist groß.", "The house is tall.", "<b>chloé</b>")
    page = opened(browser, standin)
    page.until(lambda: page.one("#waiting").text == "2")
    page.one("#tab-review").click()
    page.until(lambda: [each.text for each in page.all(".suggestions ins")] == ["document", "tall."])
    yield page
    assert complaints(browser, "status of 404") == []


def chosen(page: Page) -> tuple[str, str]:
    first, second = (page.one(f"#{side}-language").get_property("value") for side in ("source", "target"))
    return first, second


# --------------------------------------------------------------------------------------- languages and memories


def test_languages_are_chosen_and_remembered(page: Page, standin: StandIn) -> None:
    assert chosen(page) == ("de", "en")
    assert [each.text for each in page.all("#target-language option")] == ["English", "French"]
    page.one("#target-language option[value=fr]").click()
    page.ask("Haus", "House.")
    assert standin.asked[-1] == {"q": ["Haus"], "evidence": True, "source": "de", "target": "fr"}
    assert not page.one("#swap").is_displayed()  # French to German is not served
    page.browser.refresh()
    page.until(lambda: chosen(page) == ("de", "fr"))
    page.one("#source-language option[value=en]").click()
    page.until(lambda: chosen(page) == ("en", "de"))
    page.until(lambda: page.one("#memory-size").text == "none")
    assert not page.one("#memories").is_displayed()
    assert page.browser.current_url == standin.url


def test_languages_are_swapped_and_the_translation_becomes_the_text(page: Page, standin: StandIn) -> None:
    from selenium.webdriver import Keys

    page.ask("Das Haus ist groß.", "The house is big.")
    assert "Ctrl+Shift+S" in page.one("#swap").get_attribute("title")
    page.one("#source").send_keys(Keys.CONTROL + Keys.SHIFT + "s")
    page.until(lambda: chosen(page) == ("en", "de"))
    assert page.one("#source").get_property("value") == "The house is big."
    page.until(lambda: standin.asked[-1].get("source") == "en" and page.one("#copy").is_enabled())
    page.one("#swap").click()
    page.until(lambda: chosen(page) == ("de", "en"))


def test_memories_are_chosen_and_remembered(page: Page, standin: StandIn) -> None:
    assert "A memory holds earlier translations" in page.one("#memories").text
    assert "Corrections go to project." in page.one("#memories").text
    boxes = page.all("#memories input")
    assert [box.get_property("value") for box in boxes] == ["project", "company"]
    page.ask("Haus", "House.")
    assert "memories" not in standin.asked[-1]
    boxes[0].click()
    page.until(lambda: standin.asked[-1].get("memories") == ["company"])
    assert page.focus == boxes[0]
    assert "Corrections" not in page.one("#memories").text  # company does not learn
    page.browser.refresh()
    page.until(lambda: [box.is_selected() for box in page.all("#memories input")] == [False, True])
    page.all("#memories input")[1].click()
    page.ask("Haus", "House.")
    assert standin.asked[-1]["memories"] == []
    assert page.one("#memory-size").text == "none chosen"


def test_one_pair_and_one_memory_leave_nothing_to_choose(browser: Any, standin: StandIn) -> None:
    page = opened(browser, standin)
    for id in ("memories", "source-language", "target-language", "swap", "tabs", "who"):
        assert not page.one(f"#{id}").is_displayed(), id
    assert "Earlier translations:" in page.one("#about-memory").text


# ---------------------------------------------------------------------------------------------------- suggesting


def test_who_may_not_teach_suggests_and_may_withdraw(browser: Any, standin: StandIn) -> None:
    standin.key, standin.name, standin.role = KEY, "tina", "translate"
    page = opened(browser, standin)
    assert page.one("#who-name").text == "tina (translate)"
    page.ask("Die Datei", "The file.")
    page.one("#correct").click()
    assert page.one("#teach").text == "Suggest"
    assert "waits for review" in page.one("#edit-hint").text
    page.one("#edit").send_keys(" Yes.")
    page.one("#teach").click()
    page.until(lambda: "1 suggestion sent for review." in page.one("#learnt").text)
    assert [each["target"] for each in standin.queue] == ["The file. Yes."]
    assert page.translation == "The file."
    assert not page.one("#import").is_displayed()
    page.one("#tab-review").click()
    page.until(lambda: page.one("#review-title").text == "Your suggestions")
    shown = [each for each in page.all(".suggestions button") if each.is_displayed()]
    assert [each.text for each in shown] == ["Withdraw…"]
    shown[0].click()
    page.press("r")
    page.until(lambda: page.one("#review-status").text == "Withdrawn.")
    assert standin.decided == [("s-0", "reject", None)]
    page.one("#sign-out").click()
    page.until(lambda: page.one("#key-input").is_displayed())
    complaints(browser)


# ----------------------------------------------------------------------------------------------------- reviewing


def test_a_suggestion_is_shown_with_what_is_said_now_by_whom_and_when(reviewer: Page) -> None:
    first, second = reviewer.all(".suggestions > li")
    names = [each.text for each in first.find_elements("css selector", "dt")]
    assert names == ["Source", "Translated now", "Suggested"]
    assert [each.text for each in first.find_elements("css selector", "dd")][1] == "The file is opened."
    assert first.find_element("css selector", "time").get_attribute("datetime") == "2026-03-01T09:30:00Z"
    assert "ben · 1 Mar 2026" in first.text
    assert "In the memory" in second.text
    assert "<b>chloé</b>" in second.text  # what a server sends is text


def test_suggestions_are_decided_by_key(reviewer: Page, standin: StandIn) -> None:
    from selenium.webdriver import Keys

    page = reviewer
    page.all(".suggestions button")[0].send_keys(Keys.ARROW_DOWN)
    assert page.focus.get_attribute("aria-label") == "Accept “Das Haus ist groß.”"
    page.press(Keys.ARROW_UP)
    page.press("e")
    assert page.focus.tag_name == "textarea"
    page.press(" Always.")
    page.press(Keys.ESCAPE)
    page.press("e")
    page.press(" Now")
    page.focus.send_keys(Keys.CONTROL, Keys.ENTER)
    page.until(lambda: "Accepted" in page.one("#review-status").text)
    assert standin.decided == [("s-0", "accept", "The document is opened. Now")]
    assert page.one("#waiting").text == "1"
    assert page.focus.get_attribute("aria-label") == "Accept “Das Haus ist groß.”"
    page.press("r")
    assert page.focus.text == "Reject"
    page.press(Keys.ESCAPE)
    page.press("r")
    page.press(Keys.ENTER)
    page.until(lambda: page.one("#review-empty").is_displayed())
    assert standin.decided[1:] == [("s-1", "reject", None)]
    assert page.one("#review-nothing").text == "Nothing to review."
    assert not page.one("#waiting").is_displayed()
    assert page.focus.get_attribute("id") == "review-title"
    page.one("#tab-review").send_keys(Keys.ARROW_LEFT)
    page.until(lambda: page.one("#source").is_displayed())
    page.until(lambda: [each.text for each in page.all("#list .target")] == ["The document is opened. Now"])


def test_what_somebody_else_decided_leaves_the_list(reviewer: Page, standin: StandIn) -> None:
    standin.queue.pop(0)
    reviewer.all(".suggestions button")[0].click()
    reviewer.until(lambda: reviewer.one("#review-status").text == "Somebody else decided on this one.")
    assert len(reviewer.all(".suggestions > li")) == 1
    assert standin.decided == []


# ---------------------------------------------------------------------------------------------------- who and when


def test_who_taught_a_segment_is_said_where_it_is_listed_and_where_it_is_used(page: Page, standin: StandIn) -> None:
    standin.add("Haus", "Home.", "added (anna, 2026-03-01T09:30:00Z)")
    standin.memory["taught-Haus"] |= {"author": "anna", "date": "2026-03-01T09:30:00Z"}
    page.browser.refresh()
    page.until(lambda: "anna · 1 Mar 2026" in page.one("#list li").text)
    page.ask("Haus", "Home.")
    page.words[0].click()
    page.until(lambda: "taught by anna · 1 Mar 2026" in page.one("#why .neighbours li").text)
    assert "added" not in page.one("#why .neighbours li").text
