"""`/v1/memory`: what a server remembers, and how a translator changes it."""

import io
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from knnmt.corpus import Languages, Segment
from knnmt.corpus.writers import write
from knnmt.store.store import Added

from .conftest import Serve
from .standin import LONGEST, StandIn

PAIRS = [
    ("Datei öffnen", "Open file"),
    ("Datei speichern", "Save file"),
    ("Bearbeiten", "Edit"),
]


@pytest.fixture
def taught(client: TestClient) -> list[str]:
    body = [{"source": source, "target": target, "id": f"s-{n}"} for n, (source, target) in enumerate(PAIRS)]
    answer = client.post("/v1/memory", json=body)
    assert answer.status_code == 201
    ids: list[str] = answer.json()["ids"]
    return ids


def tmx(segments: list[Segment]) -> bytes:
    out = io.BytesIO()
    write(segments, out, "tmx", Languages("de", "en"))
    return out.getvalue()


def finished(client: TestClient, answer: Any) -> dict[str, Any]:
    assert answer.status_code == 202, answer.text
    for _ in range(1000):
        job: dict[str, Any] = client.get(f"/v1/jobs/{answer.json()['id']}").json()
        if job["state"] not in ("waiting", "running"):
            return job
        time.sleep(0.01)
    raise AssertionError("the import does not end")


def test_segments_are_listed_page_by_page(client: TestClient, taught: list[str]) -> None:
    whole = client.get("/v1/memory").json()
    assert whole["total"] == 3
    assert not whole["more"]
    texts = {"source": "Datei speichern", "target": "Save file"}
    assert whole["segments"][1] == {
        "id": "s-1",
        **texts,
        "origin": "added",
        "memory": "project",
        "author": None,
        "date": None,
    }
    part = client.get("/v1/memory", params={"offset": 1, "limit": 1}).json()
    assert [each["id"] for each in part["segments"]] == ["s-1"]
    assert part["more"]
    newest = client.get("/v1/memory", params={"order": "recent", "limit": 1}).json()
    assert [each["id"] for each in newest["segments"]] == ["s-2"]


def test_segments_are_found_by_either_text(client: TestClient, taught: list[str]) -> None:
    for sought, ids in (("DATEI", ["s-0", "s-1"]), ("edit", ["s-2"]), ("nirgends", [])):
        found = client.get("/v1/memory", params={"q": sought}).json()
        assert [each["id"] for each in found["segments"]] == ids


def test_a_segment_is_added_changed_and_forgotten(client: TestClient, standin: StandIn) -> None:
    (name,) = client.post("/v1/memory", json={"source": "Speichern", "target": "Save"}).json()["ids"]
    asked = {"q": "Speichern", "source": "de", "target": "en"}
    assert client.post("/translate", json=asked).json()["translatedText"] == "Save"
    answer = client.put(f"/v1/memory/{name}", json={"source": "Speichern", "target": "Store"})
    assert answer.json() == {"ids": [name]}
    assert client.post("/translate", json=asked).json()["translatedText"] == "Store"
    assert client.delete(f"/v1/memory/{name}").json() == {"ids": [name]}
    assert client.post("/translate", json=asked).json()["translatedText"] == "Speichern'"
    assert client.delete(f"/v1/memory/{name}").status_code == 404
    assert client.put(f"/v1/memory/{name}", json={"source": "a", "target": "b"}).status_code == 404


@pytest.mark.parametrize("name", ["a/b", "de/en?x=1&y", "ünïcode id", "100%"])
def test_an_id_may_be_anything(client: TestClient, standin: StandIn, name: str) -> None:
    assert client.post("/v1/memory", json={"source": "a", "target": "b", "id": name}).json() == {"ids": [name]}
    place = f"/v1/memory/{quote(name, safe='')}"
    assert client.put(place, json={"source": "a", "target": "c"}).json() == {"ids": [name]}
    assert client.delete(place).json() == {"ids": [name]}
    assert not standin.store.held


def test_of_several_segments_all_are_added_or_none(client: TestClient, standin: StandIn) -> None:
    body = [{"source": "a", "target": "b"}, {"source": "wort " * (LONGEST + 1), "target": "c"}]
    answer = client.post("/v1/memory", json=body)
    assert answer.status_code == 400
    assert "too long" in answer.json()["error"]
    assert not standin.store.held


@pytest.mark.parametrize("how", ["raw", "multipart"])
def test_a_tmx_file_is_read_in_as_a_job(client: TestClient, standin: StandIn, how: str) -> None:
    content = tmx([Segment(f"Satz Nummer {n}", f"Sentence number {n}", "", f"u{n}") for n in range(100)])
    if how == "raw":
        answer = client.post("/v1/memory/import", content=content, headers={"content-type": "application/xml"})
    else:
        answer = client.post("/v1/memory/import", files={"file": ("memory.tmx", content, "application/xml")})
    job = finished(client, answer)
    assert job["state"] == "done"
    assert job["done"] == job["total"] == 100
    assert job["report"] == {"added": 100, "dropped": {}, "faults": []}
    assert standin.store.held["u7"].target == "Sentence number 7"
    assert standin.store.held["u7"].origin == "upload.tmx#u7"


def test_an_import_tells_what_it_dropped_and_why(client: TestClient, standin: StandIn) -> None:
    content = tmx(
        [
            Segment("Ein guter Satz", "A good sentence", ""),
            Segment("Ein guter Satz", "A good sentence", ""),
            Segment("Leer", " ", ""),
            Segment("wort " * (LONGEST + 20), "word " * (LONGEST + 20), ""),
            Segment("BROKEN", "broken", "", "u5"),
            Segment("Noch ein Satz", "Another sentence", ""),
        ]
    )
    content = content.replace(b"BROKEN", b"&nowhere;").replace(b"<tmx ", b'<!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx ')
    job = finished(client, client.post("/v1/memory/import", content=content))
    assert job["state"] == "done"
    assert job["report"]["added"] == len(standin.store.held) == 2
    assert job["report"]["dropped"] == {"duplicate": 1, "empty": 1, "unfit": 1, "unreadable": 1}
    assert any("upload.tmx#u5" in fault and "nowhere" in fault for fault in job["report"]["faults"])


def test_translation_goes_on_during_an_import(serve: Serve) -> None:
    standin = StandIn()
    add = standin.add

    def slowly(segments: Sequence[Segment], **more: Any) -> Added:
        time.sleep(0.02)
        return add(segments, **more)

    standin.add = slowly  # type: ignore[method-assign]
    client = serve(standin)
    content = tmx([Segment(f"Satz {n}", f"Sentence {n}", "") for n in range(2000)])
    answer = client.post("/v1/memory/import", content=content)
    between = 0
    while client.get(f"/v1/jobs/{answer.json()['id']}").json()["state"] in ("waiting", "running"):
        asked = {"q": "ja", "source": "de", "target": "en"}
        assert client.post("/translate", json=asked).status_code == 200
        between += 1
    assert between > 5
    assert len(standin.store) == 2000


def test_what_is_given_out_can_be_read_in(client: TestClient, standin: StandIn, taught: list[str]) -> None:
    for kind, media in (("tmx", "x-tmx"), ("tsv", "tab-separated"), ("jsonl", "jsonl")):
        answer = client.get("/v1/memory/export", params={"format": kind})
        assert answer.status_code == 200
        assert media in answer.headers["content-type"]
        assert f"memory.{kind}" in answer.headers["content-disposition"]
        assert all(source in answer.text and target in answer.text for source, target in PAIRS)
    whole = client.get("/v1/memory/export").content
    before = dict(standin.store.held)
    standin.store.held.clear()
    finished(client, client.post("/v1/memory/import", content=whole))
    assert {name: (s.source, s.target) for name, s in standin.store.held.items()} == {
        name: (s.source, s.target) for name, s in before.items()
    }


def test_a_job_that_never_was_is_not_there(client: TestClient) -> None:
    assert client.get("/v1/jobs/nothing").status_code == 404
    assert set(client.get("/v1/jobs/nothing").json()) == {"error"}


def test_an_id_of_a_megabyte_is_not_imported(client: TestClient, standin: StandIn) -> None:
    content = tmx([Segment("Ein Satz", "A sentence", "", "x" * 1_000_000), Segment("Noch einer", "Another", "", "u2")])
    job = finished(client, client.post("/v1/memory/import", content=content))
    assert list(standin.store.held) == ["u2"]
    assert job["report"]["dropped"] == {"unreadable": 1}
    assert "an id of 1000000 characters" in job["report"]["faults"][0]


def test_an_id_with_a_line_feed_can_be_changed_and_removed(client: TestClient) -> None:
    assert client.post("/v1/memory", json={"source": "a", "target": "b", "id": "x\ny"}).status_code == 201
    assert client.put("/v1/memory/x%0Ay", json={"source": "a", "target": "c"}).json()["ids"] == ["x\ny"]
    assert client.delete("/v1/memory/x%0Ay").json()["ids"] == ["x\ny"]


def test_a_lesson_of_several_lines_is_used_line_by_line(client: TestClient) -> None:
    lesson = {"q": "Datei\n\n Ordner", "s": "File\n\n Folder", "source": "de", "target": "en"}
    assert client.post("/suggest", json=lesson).status_code == 200
    for text, translation in (("Datei\nOrdner", "File\nFolder"), ("Ordner", "Folder"), (lesson["q"], lesson["s"])):
        asked = {"q": text, "source": "de", "target": "en"}
        assert client.post("/translate", json=asked).json()["translatedText"] == translation


def test_a_lesson_with_tags_is_used_in_html(client: TestClient) -> None:
    asked = {"q": "Klicken Sie auf <b>Speichern</b>", "source": "de", "target": "en"}
    assert client.post("/suggest", json=asked | {"s": "Click <b>Save</b>"}).status_code == 200
    for kind in ("html", "text"):
        assert client.post("/translate", json=asked | {"format": kind}).json()["translatedText"] == "Click <b>Save</b>"


def test_a_search_need_not_stand_in_the_address(client: TestClient, standin: StandIn) -> None:
    client.post("/v1/memory", json=[{"source": f"Text {n}", "target": f"text {n}", "id": str(n)} for n in range(12)])
    asked: dict[str, str | int] = {"q": "text 1", "offset": 1, "limit": 2}
    found = client.post("/v1/memory/search", json=asked).json()
    assert found == client.get("/v1/memory", params=asked).json()
    assert [each["id"] for each in found["segments"]] == ["10", "11"]
    assert client.post("/v1/memory/search", json={}).json()["total"] == 12
    for wrong in ({"limit": 0}, {"limit": "5"}, {"q": "x" * 1001}, {"order": "random"}, {"what": 1}):
        assert client.post("/v1/memory/search", json=wrong).status_code == 400, wrong
    assert client.post("/v1/memory/search", json={"memory": ["nowhere"]}).status_code == 404
