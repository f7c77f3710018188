"""The page as its users meet it, in a real browser: typing, asking why, teaching, importing, by mouse and by key."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .conftest import complaints
from .standin import StandIn, serving

LINES = "return [...document.querySelectorAll('#words > p')].map((line) => line.textContent).join('\\n')"
LATE = 20  # seconds after which something does not come any more


class Page:
    """The page in the browser, in a user's words."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser

    def one(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.browser.find_elements("css selector", selector)
        return found

    def until(self, true: Callable[[], Any], what: str = "") -> Any:
        """Wait for something; what is shown may be replaced meanwhile."""
        from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
        from selenium.webdriver.support.ui import WebDriverWait

        gone = (NoSuchElementException, StaleElementReferenceException, IndexError)
        return WebDriverWait(self.browser, LATE, 0.05, ignored_exceptions=gone).until(lambda _: true(), what)

    @property
    def translation(self) -> str:
        return str(self.browser.execute_script(LINES))

    def advanced(self) -> None:
        """Open the advanced settings, as a click elsewhere closes them."""
        if not self.one("#system").is_displayed():
            self.one("#advanced summary").click()

    @property
    def words(self) -> list[Any]:
        return self.all("#words button")

    def word(self, text: str) -> Any:
        return next(word for word in self.words if word.text == text)

    def shade(self, text: str) -> int:
        classes = self.word(text).get_attribute("class").split()
        return next(int(name[1:]) for name in classes if name[0] == "s" and name[1:].isdigit())

    @property
    def focus(self) -> Any:
        return self.browser.switch_to.active_element

    @property
    def paper(self) -> str:
        return str(self.browser.execute_script("return getComputedStyle(document.documentElement).backgroundColor"))

    def type(self, text: str) -> None:
        self.one("#source").send_keys(text)

    def press(self, *keys: str) -> None:
        from selenium.webdriver import ActionChains

        ActionChains(self.browser).send_keys(*keys).perform()

    def ask(self, text: str, translation: str) -> None:
        self.type(text)
        self.until(lambda: self.translation == translation, f"{translation!r}, not {self.translation!r}")

    def teach(self, text: str) -> None:
        self.one("#correct").click()
        field = self.one("#edit")
        field.clear()
        field.send_keys(text)
        self.one("#teach").click()
        self.until(lambda: self.one("#learnt").is_displayed())


@pytest.fixture
def page(browser: Any, standin: StandIn) -> Iterator[Page]:
    """The page of the stand-in; after each test the console must be empty."""
    browser.get_log("browser")
    browser.get(standin.url)
    browser.execute_script("localStorage.clear(); sessionStorage.clear()")
    page = Page(browser)
    page.until(lambda: page.one("#pair").text == "German to English")
    yield page
    assert complaints(browser, "status of 400", "status of 503", "ERR_CONNECTION_REFUSED") == []


# ----------------------------------------------------------------------------------------- words and what changed

WORDS = """
const done = arguments[arguments.length - 1];
import("/page/words.js").then(({ toWords }) => {
  const tokens = arguments[0].map(([text, memory]) => ({ text, memory }));
  done(toWords({ text: "", tokens }).map(({ text, space, pieces, memory }) => [text, space, pieces.length, memory]));
});
"""
CHANGES = """
const done = arguments[arguments.length - 1];
import("/page/words.js").then(({ changes }) => done(changes(arguments[0].split(" "), arguments[1].split(" "))));
"""


def test_pieces_become_words_and_punctuation_stands_alone(page: Page) -> None:
    tokens = [["\u201c", 0], ["Don", 1], ["'", 0], ["t", 0.5], [",", 0], [" go", 0.25], ["", 0], ["Then", 1], ["!", 0]]
    assert page.browser.execute_async_script(WORDS, tokens) == [
        ["\u201c", False, 1, 0],
        ["Don't", False, 3, 0.5],
        [",", False, 1, 0],
        ["go", True, 1, 0.25],
        ["Then", True, 1, 1],  # a long text is translated in parts, and an end stands between them
        ["!", False, 1, 0],
    ]


def test_what_changed_is_what_the_longest_common_sequence_leaves(page: Page) -> None:
    for before, after, changed in [
        ("a b c", "a b c", ""),
        ("a b c", "a x c", "x"),
        ("a b c", "b c", ""),
        ("b c", "a b c d", "a d"),
        ("a b", "c d", "c d"),
        ("a b a", "b a a", "a"),
    ]:
        marks = page.browser.execute_async_script(CHANGES, before, after)
        assert [word for word, mark in zip(after.split(), marks, strict=True) if mark] == changed.split()


# ----------------------------------------------------------------------------------------------- translating


def test_it_translates_as_one_types_and_shades_words_by_their_memory(page: Page, standin: StandIn) -> None:
    page.ask("Das Haus ist groß.", "The house is big.")
    assert page.shade("house") == 9  # the segment is in the memory
    assert "95% from memory" in page.word("house").get_attribute("aria-label")
    page.type("\nDie Datei wird geöffnet")
    page.until(lambda: page.translation == "The house is big.\nThe file is opened.")
    assert page.shade("opened") == 0
    assert len(standin.asked) < 10  # not one for each key
    assert standin.asked[-1]["q"] == ["Das Haus ist groß.", "Die Datei wird geöffnet"]


def test_only_the_last_request_counts(page: Page, standin: StandIn) -> None:
    standin.delay = 0.6
    page.type("Haus")
    page.until(lambda: standin.asked)
    standin.delay = 0.0
    page.type(" ist")
    page.until(lambda: page.translation == "House is.")
    page.until(lambda: page.one("#status").text == "")
    assert page.translation == "House is."
    page.one("#clear").click()
    page.until(lambda: page.translation == "")


def test_system_and_lambda_are_the_users_choice(page: Page, standin: StandIn) -> None:
    page.ask("Das Haus ist groß.", "The house is big.")
    assert standin.asked[-1] == {"q": ["Das Haus ist groß."], "evidence": True}
    page.advanced()
    page.browser.execute_script(
        "const range = arguments[0]; range.value = 0.3; range.dispatchEvent(new Event('input'))", page.one("#weight")
    )
    page.until(lambda: standin.asked[-1].get("lambda") == 0.3)
    assert page.one("#weight-shown").text == "0.30"
    page.one("#weight-reset").click()
    page.until(lambda: "lambda" not in standin.asked[-1])
    page.one("#system option[value=base]").click()
    page.until(lambda: standin.asked[-1].get("system") == "base")
    page.until(lambda: page.shade("house") == 0)
    assert not page.one("#weight").is_enabled()


# --------------------------------------------------------------------------------------------------- evidence


def test_a_word_tells_what_model_and_memory_thought_and_which_segments_spoke_for_it(page: Page) -> None:
    page.ask("Das Haus ist groß.", "The house is big.")
    page.word("house").click()
    numbers = [cell.text for cell in page.all("#why .bars .number")]
    assert numbers == ["20%", "95%", "80%"]
    page.one("#why .formulas summary").click()
    assert "0.80 · 0.95 + 0.20 · 0.20 = 0.80" in page.one("#why .formula").text
    first, other = page.all("#why .neighbours > li")
    assert first.find_element("css selector", ".target").text == "The house is big."
    assert first.find_element("css selector", "mark.same").text == "house"
    assert "corpus.tmx" in first.text
    assert "90%" in first.text
    assert other.find_element("css selector", "mark").text == "garden"
    assert "another word" in other.text


def test_a_word_of_several_pieces_tells_of_each(page: Page) -> None:
    page.ask("Die Datei wird geöffnet", "The file is opened.")
    page.word("opened").click()
    pieces = page.all("#why .piece")
    assert [piece.text for piece in pieces] == ["open", "ed"]
    pieces[1].click()
    page.until(lambda: page.all("#why .piece")[1].get_attribute("aria-pressed") == "true")
    assert "Probabilities of ed" in page.one("#why caption").get_attribute("textContent")


def test_the_model_alone_has_no_evidence_and_says_so(page: Page) -> None:
    page.advanced()
    page.one("#system option[value=base]").click()
    page.ask("Das Haus ist groß.", "The house is big.")
    page.words[1].click()
    assert "model alone" in page.one("#why-body").text


# --------------------------------------------------------------------------------------------------- teaching


def test_what_is_taught_is_used_at_once_and_marked(page: Page, standin: StandIn) -> None:
    page.ask("Klicken Sie auf Speichern.", "Click on save.")
    page.teach("Click on Save now.")
    assert page.translation == "Click on Save now."
    marked = [word.text for word in page.all("#words .changed")]
    assert marked == ["Save", "now"]
    assert "now matches yours" in page.one("#learnt").text
    assert "2 words changed" in page.one("#learnt").text
    assert standin.memory["taught-Klicken Sie auf Speichern."]["target"] == "Click on Save now."
    page.word("Save").click()
    assert page.one("#why .badge").text == "taught"
    page.until(lambda: [each.text for each in page.all("#list .target")] == ["Click on Save now."])
    assert page.one("#memory-size").text == "2 segments"
    page.type(" ")  # what is typed next is no news
    page.until(lambda: not page.all("#words .changed"))


def test_only_the_lines_that_were_changed_are_taught(page: Page, standin: StandIn) -> None:
    page.ask("Das Haus ist groß.\n\nSpeichern", "The house is big.\n\nSave.")
    page.teach("The house is big.\n\nStore!")
    assert standin.taught == ["taught-Speichern"]
    assert page.translation == "The house is big.\n\nStore!"


def test_lines_that_do_not_match_are_refused_and_nothing_is_lost(page: Page, standin: StandIn) -> None:
    page.ask("Speichern", "Save.")
    page.teach("Save.\nNow.")
    assert "1 line, the translation 2 lines" in page.one("#learnt").text
    assert page.one("#edit").get_property("value") == "Save.\nNow."
    page.one("#cancel").click()
    assert page.translation == "Save."
    assert standin.taught == []


def test_a_segment_can_be_removed_again(page: Page, standin: StandIn) -> None:
    page.ask("Speichern", "Save.")
    page.teach("Store.")
    page.until(lambda: page.all("#list .remove"))
    page.one("#list .remove").click()
    page.until(lambda: page.translation == "Save.")
    assert page.one("#learnt").text.startswith("Removed.")
    assert page.all("#list li") == []
    assert standin.taught == []


def test_the_memory_can_be_searched(page: Page, standin: StandIn) -> None:
    for number in range(30):
        standin.add(f"Satz {number}", f"Sentence {number}", "corpus.tmx")
    page.one("#sought").send_keys("satz")
    page.until(lambda: len(page.all("#list li")) == 20)
    page.one("#more").click()
    page.until(lambda: len(page.all("#list li")) == 30)
    assert not page.one("#more").is_displayed()
    page.one("#sought").send_keys(" 29")
    page.until(lambda: [each.text for each in page.all("#list .source")] == ["Satz 29"])


# ----------------------------------------------------------------------------------------------------- import


def imported(page: Page) -> None:
    page.until(lambda: "3 segments added from terms.tmx" in page.one("#import-words").text)
    assert "dropped: 2 too long" in page.one("#import-words").text
    page.until(lambda: page.translation == "The document opens.")
    assert page.all("#words .changed")
    page.until(lambda: page.one("#memory-size").text == "4 segments")
    assert page.one("#import-faults").is_displayed()


def test_a_tmx_is_imported_by_the_file_chooser(page: Page, tmx: Path) -> None:
    page.ask("Die Datei wird geöffnet.", "The file is opened.")
    page.one("#file").send_keys(str(tmx))
    page.until(lambda: "of 3 segments" in page.one("#import-words").text)  # on the way
    assert page.one("#import-bar").is_displayed()
    imported(page)


DROP = """
const transfer = new DataTransfer();
transfer.items.add(new File([arguments[0]], "terms.tmx", { type: "" }));
for (const kind of ["dragenter", "dragover", "drop"]) {
  const event = new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true });
  document.querySelector(kind === "drop" ? "#drop-memory" : "main").dispatchEvent(event);
  if (kind === "dragenter" && document.getElementById("veil").hidden) throw new Error("no veil");
}
"""


def test_a_tmx_is_imported_by_dropping_it_on_the_page(page: Page, tmx: Path) -> None:
    page.ask("Die Datei wird geöffnet.", "The file is opened.")
    page.browser.execute_script(DROP, tmx.read_text(encoding="utf-8"))
    assert not page.one("#veil").is_displayed()
    imported(page)


def test_a_broken_tmx_is_refused_with_the_servers_reason(page: Page, tmx: Path) -> None:
    tmx.write_text("<tmx", encoding="utf-8")
    page.one("#file").send_keys(str(tmx))
    page.until(lambda: "terms.tmx was not imported: " in page.one("#import-words").text)
    assert "error" in page.one("#import-state").get_attribute("class")


# --------------------------------------------------------------------------------------------------- keyboard


def test_all_can_be_done_without_a_mouse(page: Page) -> None:
    from selenium.webdriver import Keys

    page.ask("Das Haus ist groß.", "The house is big.")
    for _ in range(8):
        page.press(Keys.TAB)
        if page.focus.get_attribute("class").startswith("word"):
            break
    assert page.focus.text == "The"
    page.press(Keys.ARROW_RIGHT)
    assert page.focus.text == "house"
    page.press(Keys.ENTER)
    page.until(lambda: page.one("#why .chosen strong").text == "house")
    page.press(Keys.ARROW_RIGHT)  # the panel follows
    page.until(lambda: page.one("#why .chosen strong").text == "is")
    page.press(Keys.END)
    assert page.focus.text == "."
    page.press(Keys.HOME)
    assert page.focus.text == "The"
    assert [word.get_attribute("tabindex") for word in page.words].count("0") == 1
    page.press(Keys.ESCAPE)
    page.until(lambda: not page.all("#why .chosen"))
    page.press(Keys.TAB, Keys.TAB)
    assert page.focus.get_attribute("id") == "correct"
    page.press(Keys.ENTER)
    assert page.focus.get_attribute("id") == "edit"
    page.press(Keys.ESCAPE)
    assert page.focus.get_attribute("id") == "correct"
    page.press(Keys.ENTER)
    page.press(" Indeed.")
    page.one("#edit").send_keys(Keys.CONTROL, Keys.ENTER)
    page.until(lambda: page.translation == "The house is big. Indeed.")


def test_arrows_up_and_down_go_from_line_to_line(page: Page) -> None:
    from selenium.webdriver import Keys

    page.ask("Das Haus ist groß.\nDie Datei", "The house is big.\nThe file.")
    page.words[0].click()
    page.press(Keys.ARROW_DOWN)
    assert page.focus == page.words[5]
    page.press(Keys.ARROW_DOWN)
    assert page.focus == page.words[5]
    page.press(Keys.ARROW_UP)
    assert page.focus == page.words[0]


def test_what_has_no_words_has_a_name(page: Page) -> None:
    page.ask("Das Haus ist groß.", "The house is big.")
    page.word("house").click()
    nameless = page.browser.execute_script(
        """
        const named = (each) => each.getAttribute("aria-label") || each.getAttribute("aria-labelledby") ||
          each.textContent.trim() || each.labels?.length;
        const controls = [...document.querySelectorAll("button, input, select, textarea, a")];
        return controls.filter((each) => !named(each)).map((each) => each.outerHTML);
        """
    )
    assert nameless == []
    assert page.one("#status").get_attribute("aria-live") == "polite"


# ------------------------------------------------------------------------------------------------ when it fails


def test_the_servers_message_is_shown(page: Page, standin: StandIn) -> None:
    standin.failing = 400, "Invalid request: request (9000) exceeds text limit (5000) of characters"
    page.type("Das Haus")
    page.until(lambda: page.one("#failure").is_displayed())
    said = "This text is too long: 9,000 characters, and 5,000 is the limit. Shorten it, or translate it as a file."
    assert page.one("#failure").text == said
    assert not page.one("#retry").is_displayed()  # which would be refused again
    standin.failing = None
    page.type(" ist")
    page.until(lambda: page.translation == "The house is.")
    assert not page.one("#failed").is_displayed()


def test_a_busy_server_is_asked_again(page: Page, standin: StandIn) -> None:
    standin.failing = 503, "the server is busy"
    page.type("Haus")
    page.until(lambda: page.one("#failure").text == "The server is busy. Retrying…")
    standin.failing = None
    page.until(lambda: page.translation == "House.")


def test_a_server_that_is_gone_is_said_to_be(browser: Any) -> None:
    page = Page(browser)
    with serving(StandIn()) as url:
        browser.get(url)
        page.until(lambda: page.one("#pair").text)
    page.type("Haus")
    page.until(lambda: "Offline" in page.one("#failure").text)
    browser.get("about:blank")
    browser.get_log("browser")


# ------------------------------------------------------------------------------------------- servers that do less


def test_a_server_that_wants_a_key_gets_one(page: Page, standin: StandIn) -> None:
    standin.key = "open sesame"
    page.browser.refresh()
    page.until(lambda: page.one("#key").is_displayed())
    assert "API key is needed" in page.one("#key-message").text
    assert not page.one("#source").is_displayed()
    page.one("#key-input").send_keys("abracadabra\n")
    page.until(lambda: "error" in page.one("#key-message").get_attribute("class"))
    page.one("#key-input").send_keys("open sesame\n")
    page.until(lambda: not page.one("#key").is_displayed())
    page.ask("Das Haus ist groß.", "The house is big.")
    page.browser.execute_script("sessionStorage.clear()")
    complaints(page.browser)  # of the 403, which a browser logs


def test_a_server_that_does_not_learn_offers_no_lessons(page: Page, standin: StandIn) -> None:
    standin.learns = False
    standin.add("Haus", "House", "corpus.tmx")
    page.browser.refresh()
    page.ask("Das Haus ist groß.", "The house is big.")
    page.until(lambda: page.all("#list li"))
    assert not page.all("#list .remove")
    assert not page.one("#correct").is_displayed()
    assert not page.one("#import").is_displayed()
    assert page.one("#copy").is_displayed()


def test_a_server_without_a_store_just_translates(page: Page, standin: StandIn) -> None:
    standin.learns, standin.systems, standin.memories = False, ["base"], []
    page.browser.refresh()
    page.ask("Das Haus ist groß.", "The house is big.")
    page.until(lambda: page.one("#memory-size").text == "none")
    assert not page.one("#system").is_enabled()
    assert not page.one("#search").is_displayed()
    page.words[0].click()
    assert "model alone" in page.one("#why-body").text


def test_a_server_of_several_memories_names_them_and_changes_the_last_only(page: Page, standin: StandIn) -> None:
    standin.memories = ["company", "project"]
    standin.add("Haus", "House", "added")
    standin.memory["#0"]["memory"] = "company"
    page.browser.refresh()
    page.ask("Das Haus ist groß.", "The house is big.")
    page.word("house").click()
    assert "project · corpus.tmx" in page.all("#why .neighbours > li")[0].text
    page.one("#sought").send_keys("h")
    page.until(lambda: len(page.all("#list li")) == 2)
    assert [
        ("company" in row.text, bool(row.find_elements("css selector", ".remove"))) for row in page.all("#list li")
    ] == [
        (True, False),
        (False, True),
    ]


def test_systems_are_described_by_the_server(page: Page) -> None:
    page.advanced()
    assert [option.text for option in page.all("#system option")][1:] == [
        "fast: what fast does",
        "proto: what proto does",
    ]


# --------------------------------------------------------------------------------------------------- how it looks


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_it_fits_a_phone_and_words_can_be_read_at_every_shade(
    page: Page, screen: Callable[[int, str], None], colours: str
) -> None:
    screen(360, colours)
    page.ask("Das Haus ist groß. " + "Donaudampfschifffahrtsgesellschaft" * 2, page_text())
    page.words[1].click()
    assert page.browser.execute_script("return document.documentElement.scrollWidth") <= 360
    contrast = page.browser.execute_script(CONTRAST)
    assert len(contrast) == 10
    assert min(contrast) >= 4.5


def page_text() -> str:
    return "The house is big " + "Donaudampfschifffahrtsgesellschaft" * 2 + "."


CONTRAST = """
const canvas = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const paint = (...colours) => {
  for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
  return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
const light = (colour) => colour.map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, n) => sum + c * [0.2126, 0.7152, 0.0722][n], 0);
const word = document.querySelector("#words button");
const paper = getComputedStyle(document.querySelector(".panes")).backgroundColor;
return [...Array(10).keys()].map((n) => {
  word.className = `word s${n}`;
  const style = getComputedStyle(word);
  const [a, b] = [light(paint(paper, style.backgroundColor)), light(paint(paper, style.color))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
});
"""


def test_colours_follow_the_system_until_the_user_chooses(page: Page, screen: Callable[[int, str], None]) -> None:
    screen(1280, "light")
    light = page.paper
    screen(1280, "dark")
    dark = page.paper
    assert light != dark
    page.one("#theme").click()
    assert page.one("#theme").get_attribute("aria-label") == "Theme: light"
    assert page.paper == light
    page.browser.refresh()
    assert page.paper == light
    page.one("#theme").click()
    assert page.paper == dark


def test_the_policy_lets_nothing_else_in(page: Page) -> None:
    page.browser.execute_script(
        "const node = document.createElement('script'); node.textContent = 'hacked = 1'; document.body.append(node)"
    )
    assert page.browser.execute_script("return window.hacked") is None
    assert any("Content Security Policy" in line for line in complaints(page.browser))
