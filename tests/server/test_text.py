"""Texts through the server: what the pipeline keeps, it keeps here too, in plain text and in HTML."""

import re

from starlette.testclient import TestClient

from knnmt.translate import Translation

from .standin import StandIn


def test_white_space_stays_and_spans_are_protected(client: TestClient) -> None:
    text = "  eins %(name)s\n\n\tDrei <b>vier</b>. Fünf? \n"
    answer = client.post("/translate", json={"q": text, "source": "de", "target": "en"}).json()
    found = answer["translatedText"]
    assert found.startswith("  eins' %(name)s")
    assert found.endswith(" \n")
    assert found.count("\n") == text.count("\n")
    assert "%(name)s" in found
    assert "<b>" in found
    assert "</b>" in found
    assert client.post("/v1/translate", json={"q": " ja\n"}).json()["translations"][0]["text"] == " ja'\n"


def test_placeholders_in_html_are_protected(client: TestClient) -> None:
    body = {"q": "<p>Hallo %(name)s, <b>%d%% von</b> {0}</p>", "format": "html", "source": "de", "target": "en"}
    found = client.post("/translate", json=body).json()["translatedText"]
    assert all(span in found for span in ("%(name)s", "%d", "%%", "{0}", "<b>", "</b>"))


def test_what_could_not_be_translated_is_told(client: TestClient, standin: StandIn) -> None:
    standin._one = lambda text, settings: Translation("{9}", -1.0)  # type: ignore[method-assign]
    (found,) = client.post("/v1/translate", json={"q": " Datei %s fehlt"}).json()["translations"]
    assert (found["text"], found["problems"]) == (" Datei %s fehlt", ["{9} is not in the source"])


def test_what_was_taught_with_its_tags_is_used_in_html(client: TestClient) -> None:
    pair = {"source": "de", "target": "en"}
    lesson = {"q": "Auf <b>Speichern</b> klicken", "s": "Click <b>Save</b>"}
    assert client.post("/suggest", json=lesson | pair).status_code == 200
    body = {"q": [lesson["q"], "<p>Auf <b>Speichern</b></p>"], "format": "html", **pair}
    found = client.post("/translate", json=body).json()["translatedText"]
    assert found == [lesson["s"], "<p>Auf' <b>Speichern'</b></p>"]


def test_what_was_taught_in_several_lines_is_used(client: TestClient) -> None:
    pair = {"source": "de", "target": "en"}
    lesson = {"q": "Guten Tag\nBis bald", "s": "Hello\nSee you"}
    client.post("/suggest", json=lesson | pair)
    assert client.post("/translate", json={"q": lesson["q"], **pair}).json()["translatedText"] == lesson["s"]


def test_attributes_that_people_read_are_translated(client: TestClient) -> None:
    page = '<p><img src="a.png" alt="ein Hund"> <input placeholder="Name eingeben" title="Ihr Name" value="x"></p>'
    found = client.post("/translate", json={"q": page, "source": "de", "target": "en", "format": "html"}).json()
    for name, text in (("alt", "ein' Hund'"), ("placeholder", "Name' eingeben'"), ("title", "Ihr' Name'")):
        written = text.replace("'", "(?:'|&#x27;|&#39;|&apos;)")
        assert re.search(f'{name}="{written}"', found["translatedText"]), found
    assert 'src="a.png"' in found["translatedText"]
    assert 'value="x"' in found["translatedText"]
