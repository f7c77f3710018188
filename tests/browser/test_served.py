"""The page and the real server together: a model, a store, and a user who teaches it a word."""

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from knnmt.build.settings import BuildSettings
from knnmt.datastore import Datastore
from knnmt.translate import Translator

from .conftest import complaints
from .test_page import DROP, Page

THINGS = {
    "Datei": "file", "Ordner": "folder", "Seite": "page", "Bild": "image", "Nachricht": "message", "Liste": "list",
}  # fmt: skip
DEEDS = {
    "Wählen Sie die {}.": "Select the {}.", "Die {} wurde gespeichert.": "The {} was saved.",
    "Möchten Sie die {} löschen?": "Do you want to delete the {}?", "Die {} ist leer.": "The {} is empty.",
}  # fmt: skip


@pytest.fixture(scope="module")
def address(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the embedded model with a small store of its own, on a free port of this machine."""
    uvicorn = pytest.importorskip("uvicorn")
    from knnmt.server.app import create_app
    from knnmt.server.listener import configured, listening
    from knnmt.server.settings import ServerSettings

    folder = tmp_path_factory.mktemp("served")
    pairs = [(de.format(thing), en.format(THINGS[thing])) for de, en in DEEDS.items() for thing in THINGS]
    random.Random(0).shuffle(pairs)
    (folder / "train.tsv").write_text("".join(f"{de}\t{en}\n" for de, en in pairs), encoding="utf-8")
    settings = BuildSettings(clean=None, systems=("proto", "fast"), cluster_size=16)
    store = Datastore.build(folder / "train.tsv", out=folder / "store", langs="de-en", settings=settings, workers=1)
    app = create_app(Translator(store=store, device="cpu"), ServerSettings(port=0))
    place = listening(ServerSettings(port=0))
    server = uvicorn.Server(configured(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{place.getsockname()[1]}/"
    server.should_exit = True
    thread.join(timeout=30)


def test_a_user_translates_asks_why_teaches_and_imports(browser: Any, address: str, tmx: Path) -> None:
    page = Page(browser)
    browser.get_log("browser")
    browser.get(address)
    page.until(lambda: page.one("#pair").text == "German to English")
    page.until(lambda: page.one("#memory-size").text == "24 segments")

    page.type("Die Datei wurde gespeichert.")
    page.until(lambda: page.translation == "The file was saved.")
    assert page.shade("file") >= 5
    page.word("file").click()
    piece = next((each.text for each in page.all("#why .piece")), "file")
    first = page.all("#why .neighbours > li")[0]
    assert first.find_element("css selector", "mark.same").text == piece
    assert "file" in first.find_element("css selector", ".target").text
    assert "train.tsv" in first.text

    page.teach("The document was stored.")
    assert page.translation == "The document was stored."
    assert {"document", "stored"} <= {word.text for word in page.all("#words .changed")}
    page.word("document").click()
    assert "taught" in {badge.text for badge in page.all("#why .badge")}
    page.until(lambda: [each.text for each in page.all("#list .target")] == ["The document was stored."])

    browser.refresh()  # it was written down, not just shown
    page.until(lambda: page.one("#memory-size").text == "25 segments")
    page.type("Die Datei wurde gespeichert.")
    page.until(lambda: page.translation == "The document was stored.")
    page.one("#list .remove").click()
    page.until(lambda: page.translation == "The file was saved.")

    page.browser.execute_script(DROP, tmx.read_text(encoding="utf-8"))
    page.until(lambda: " added from terms.tmx" in page.one("#import-words").text, "the import")
    page.one("#clear").click()
    page.type("Die Datei wird geöffnet.")
    page.until(lambda: page.translation == "The document opens.")

    page.advanced()
    page.one("#system option[value=base]").click()
    page.until(lambda: page.one("#words button").get_attribute("aria-label").find("memory") < 0)
    assert complaints(browser) == []
