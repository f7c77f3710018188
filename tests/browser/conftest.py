"""A headless Chromium, where there is one; tests of the page are skipped where there is not."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .standin import StandIn, serving

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run --disable-dev-shm-usage "
    "--disable-component-update --disable-sync --disable-extensions --window-size=1280,1000 --force-color-profile=srgb"
).split()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The browser; it and its driver are those of the machine, and nothing is fetched."""
    selenium = pytest.importorskip("selenium", reason="there is no selenium: pip install 'knnmt[dev]'")
    assert selenium
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("there is no Chromium with its driver (Debian: apt install chromium chromium-driver)")
    options = ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = Chrome(options=options, service=Service(executable_path=driver))
    try:
        yield opened
    finally:
        opened.quit()


@pytest.fixture
def standin() -> Iterator[StandIn]:
    """A server with canned answers."""
    server = StandIn()
    with serving(server):
        yield server


@pytest.fixture
def tmx(tmp_path: Path) -> Path:
    """A translation memory of three segments."""
    pairs = [
        ("Die Datei wird geöffnet.", "The document opens."),
        ("Ein Baum.", "A tree."),
        ("Zwei Bäume.", "Two trees."),
    ]
    units = "".join(
        f'<tu><tuv xml:lang="de"><seg>{german}</seg></tuv><tuv xml:lang="en"><seg>{english}</seg></tuv></tu>'
        for german, english in pairs
    )
    path = tmp_path / "terms.tmx"
    head = '<header srclang="de" segtype="sentence" datatype="plaintext"/>'
    path.write_text(f'<?xml version="1.0"?><tmx version="1.4">{head}<body>{units}</body></tmx>', encoding="utf-8")
    return path


@pytest.fixture
def screen(browser: Any) -> Iterator[Callable[[int, str], None]]:
    """Choose the width of the screen and the colours that the system prefers."""

    def choose(width: int, colours: str) -> None:
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        preferred = [{"name": "prefers-color-scheme", "value": colours}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": preferred})

    yield choose
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def complaints(browser: Any, *expected: str) -> list[str]:
    """What the console holds that should not be there: errors, warnings, violations of the policy."""
    entries = browser.get_log("browser")
    return [json.dumps(each) for each in entries if not any(some in each["message"] for some in expected)]
