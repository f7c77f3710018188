"""Texts through the server: what the pipeline keeps, it keeps here too, in plain text and in HTML."""

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
