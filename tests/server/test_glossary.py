"""Glossaries: the server's, for all requests, and a client's own terms beside it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import knnmt.cli  # noqa: F401  the commands register themselves
from knnmt.cli.app import app
from knnmt.languages import Languages
from knnmt.server.app import create_app
from knnmt.server.glossaries import MAX_TERMS, placed
from knnmt.server.settings import ServerSettings
from knnmt.text.glossary import Glossary
from knnmt.text.terms import Term
from knnmt.translate import Translation

from .standin import StandIn

PAIR = {"source": "de", "target": "en"}


@pytest.fixture
def client() -> Iterator[TestClient]:
    """A server with a glossary of two terms."""
    glossary = Glossary([Term("Verzeichnis", "directory"), Term("Datei", "file")])
    made = create_app(StandIn().as_translator(), ServerSettings(), Languages("de", "en"), glossary)
    with TestClient(made, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


def terms(client: TestClient, q: str, *given: tuple[str, str]) -> dict[str, Any]:
    body = {"q": q, "glossary": [{"source": source, "target": target} for source, target in given]}
    answer = client.post("/v1/translate", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json()["translations"][0])


def test_the_servers_glossary_is_used_for_all_requests(client: TestClient) -> None:
    answer = client.post("/translate", json={"q": "Verzeichnis öffnen", **PAIR})
    assert answer.json()["translatedText"] == "directory öffnen'"
    page = client.post("/translate", json={"q": "<p>Ein <b>Verzeichnis</b></p>", "format": "html", **PAIR})
    assert page.json()["translatedText"] == "<p>Ein' <b>directory</b></p>"
    place = client.post("/translate_file", files={"file": ("a.txt", "Datei da\n")}, data=PAIR).json()
    assert client.get(place["translatedFileUrl"]).text == "file da'\n"


def test_a_clients_terms_count_before_those_of_the_server(client: TestClient) -> None:
    found = terms(client, "Verzeichnis und Datei", ("Verzeichnis", "folder"), ("und", "plus"))
    assert found["text"] == "folder plus file"
    assert [(term["source"], term["target"], term["used"]) for term in found["terms"]] == [
        ("Verzeichnis", "folder", True), ("und", "plus", True), ("Datei", "file", True),
    ]  # fmt: skip
    assert [found["text"][term["start"] : term["end"]] for term in found["terms"]] == ["folder", "plus", "file"]
    assert terms(client, "Verzeichnis")["text"] == "directory"


def test_a_term_that_is_not_used_is_told_with_the_reason(client: TestClient) -> None:
    (term,) = terms(client, "Die Dateien")["terms"]
    assert (term["used"], term["reason"], term["start"]) == (False, "it stands there otherwise", None)


def test_terms_have_their_places_in_the_translation() -> None:
    glossary = Glossary([Term("Datei", "file"), Term("Ordner", "folder")], "de-en")
    text = "Files in folders, and a file"
    places = placed(glossary, "Dateien in Ordnern, und eine Datei", Translation(text, -1.0))
    assert [(term.source, text[term.start : term.end]) for term in places] == [
        ("Datei", "Files"), ("Ordner", "folders"), ("Datei", "file"),
    ]  # fmt: skip


def test_a_document_takes_terms_too(client: TestClient) -> None:
    given = json.dumps([{"source": "Haus", "target": "house"}])
    answer = client.post("/v1/files", files={"file": ("a.txt", "Haus und Datei\n")}, data={"glossary": given})
    while (status := client.get(f"/v1/files/{answer.json()['id']}").json())["state"] in ("waiting", "running"):
        pass
    assert client.get(f"/v1/files/{status['id']}/result").text == "house und' file\n"
    bad = client.post("/v1/files", files={"file": ("a.txt", "Haus\n")}, data={"glossary": "[{"})
    assert bad.status_code == 400


@pytest.mark.parametrize(
    "given",
    [
        [{"source": "a", "target": "b"}] * (MAX_TERMS + 1),
        [{"source": "a" * 201, "target": "b"}],
        [{"source": " ", "target": "b"}],
        [{"source": "a", "target": ""}],
        [{"source": "a", "target": "b", "more": 1}],
        "a=b",
    ],
)
def test_terms_are_bounded(client: TestClient, given: object) -> None:
    answer = client.post("/v1/translate", json={"q": "ja", "glossary": given})
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}


@pytest.mark.parametrize("source", ["*", "***", "-", "%s", "😀", "a*b", "(", "\\"])
def test_odd_terms_do_no_harm(client: TestClient, source: str) -> None:
    assert terms(client, f"ja {source} nein", (source, "x"))["text"]


def test_a_glossary_that_cannot_be_read_is_told_before_the_server_starts(tmp_path: Path) -> None:
    (tmp_path / "terms.tsv").write_text("Verzeichnis\n", encoding="utf-8")
    done = CliRunner().invoke(app, ["serve", "--glossary", str(tmp_path / "terms.tsv"), "--port", "0"])
    assert done.exit_code != 0
    assert "terms.tsv" in str(done.exception) + done.output
