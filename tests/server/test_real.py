"""A server with a real model and a real store: lessons count at once, and are still there afterwards."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from knnmt import BuildSettings, Datastore, Translator
from knnmt.corpus import Segment
from knnmt.server.app import create_app
from knnmt.server.settings import ServerSettings
from knnmt.systems.table import SYSTEMS

from ..build.examples import parallel_text
from .test_memory import finished, tmx

TEXT, LESSON = "der Hund läuft im Garten", "a big cat sleeps in the house"
ASKED = {"q": TEXT, "source": "de", "target": "en"}


@pytest.fixture(scope="module")
def built(model_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    corpus = parallel_text(folder / "train.tsv", 80)
    nameless = [line.rpartition("\t")[0] for line in corpus.read_text(encoding="utf-8").splitlines()]
    corpus.write_text("\n".join(nameless), encoding="utf-8")
    settings = BuildSettings.model_validate({"clean": None, "cluster_size": 16})
    Datastore.build(corpus, model=model_folder("marian"), langs="de-en", out=folder / "store", settings=settings)
    return folder / "store"


@pytest.fixture
def store(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "store"))


@pytest.fixture
def client(model_folder: Callable[[str], Path], store: Path) -> Iterator[TestClient]:
    translator = Translator(model_folder("marian"), store, langs="de-en")
    with TestClient(create_app(translator, ServerSettings(beam=2)), base_url="http://localhost") as client:
        yield client


def test_a_lesson_counts_at_once_and_is_kept(
    client: TestClient, store: Path, model_folder: Callable[[str], Path]
) -> None:
    before = client.post("/translate", json=ASKED).json()["translatedText"]
    assert before != LESSON
    assert client.post("/suggest", json=ASKED | {"s": LESSON}).json() == {"success": True}
    assert client.post("/translate", json=ASKED).json()["translatedText"] == LESSON
    again = Translator(model_folder("marian"), store, langs="de-en")
    assert again.translate([TEXT])[0].text == LESSON


def test_a_later_lesson_takes_the_place_of_an_earlier_one(client: TestClient) -> None:
    size = client.get("/v1/memory").json()["total"]
    for lesson in (LESSON, "the tree sees a small dog"):
        client.post("/suggest", json=ASKED | {"s": lesson})
        assert client.post("/translate", json=ASKED).json()["translatedText"] == lesson
    assert client.get("/v1/memory").json()["total"] == size + 1
    (newest,) = client.get("/v1/memory", params={"order": "recent"}).json()["segments"]
    assert newest["target"] == "the tree sees a small dog"
    assert newest["id"].startswith("taught-")


def test_evidence_names_the_lesson(client: TestClient) -> None:
    (name,) = client.post("/v1/memory", json={"source": TEXT, "target": LESSON, "id": "mine"}).json()["ids"]
    (found,) = client.post("/v1/translate", json={"q": TEXT, "evidence": True}).json()["translations"]
    assert found["text"] == LESSON
    heaviest = [token["neighbours"][0] for token in found["tokens"]]
    assert {near["id"] for near in heaviest} == {name}
    assert "".join(token["text"] for token in found["tokens"]).strip() == LESSON
    assert all(0 <= token["memory"] <= 1 for token in found["tokens"])
    base: Any = client.post("/v1/translate", json={"q": TEXT, "system": "base"}).json()
    assert base["translations"][0]["text"] != LESSON


def test_every_system_that_is_offered_answers(client: TestClient) -> None:
    offered = client.get("/v1/systems").json()
    systems = {each["name"]: each["summary"] for each in offered["systems"]}
    assert offered["default"] in systems
    assert systems.items() >= {name: system.summary for name, system in SYSTEMS.items()}.items()
    assert offered["memories"] == ["store"]
    for system in systems:
        answer = client.post("/v1/translate", json={"q": TEXT, "system": system, "lambda": 0.3})
        assert answer.status_code == 200, answer.text


def test_a_stored_segment_is_changed_and_forgotten(client: TestClient) -> None:
    first = client.get("/v1/memory", params={"limit": 1}).json()
    name, total = first["segments"][0]["id"], first["total"]
    assert name == "#0"
    answer = client.put(f"/v1/memory/{quote(name, safe='')}", json={"source": TEXT, "target": LESSON})
    (changed,) = answer.json()["ids"]
    assert client.get("/v1/memory").json()["total"] == total
    assert client.post("/translate", json=ASKED).json()["translatedText"] == LESSON
    assert client.delete(f"/v1/memory/{quote(changed, safe='')}").json() == {"ids": [changed]}
    assert client.get("/v1/memory").json()["total"] == total - 1


def test_a_memory_goes_out_and_in_again(client: TestClient) -> None:
    words = "Hund Katze Baum Garten Haus".split()
    pairs = [(f"der {a} sieht die {b} und läuft", f"the dog {a} sees {b}") for a in words for b in words]
    content = tmx([Segment(source, target, "", f"u{n}") for n, (source, target) in enumerate(pairs)])
    content = content.replace(b"</body>", tmx([Segment("das " * 200, "the", "", "long")]).partition(b"<body>")[2])
    content = content.partition(b"</tmx>")[0] + b"</tmx>"
    job = finished(client, client.post("/v1/memory/import?clean=false", content=content))
    assert job["state"] == "done", job
    assert job["report"]["added"] == 25
    assert job["report"]["dropped"] == {"unfit": 1}
    assert "upload.tmx#long" in job["report"]["faults"][0]
    given = client.get("/v1/memory/export", params={"format": "tsv"}).text.splitlines()
    assert len(given) == client.get("/v1/memory").json()["total"]


def test_html_keeps_its_tags(client: TestClient) -> None:
    body = {"q": "<p>der <b>Hund</b> läuft</p>", "format": "html", "source": "de", "target": "en"}
    answer = client.post("/translate", json=body).json()["translatedText"]
    assert answer.startswith("<p>")
    assert answer.count("<b>") == answer.count("</b>") == 1
