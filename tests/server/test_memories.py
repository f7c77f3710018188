"""A server of several stores: it searches all of them, says which one a word is from, and teaches the last."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from knnmt import BuildSettings, Datastore, Translator
from knnmt.model.checkpoint import Model
from knnmt.retrieval.tuned import Tuned
from knnmt.server.app import create_app
from knnmt.server.settings import ServerSettings
from knnmt.store.manifest import TUNED
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS, serves

from ..build.examples import parallel_text

TEXT, LESSON = "der Hund läuft im großen Garten", "a big cat sleeps in the house"
COMPANY = ("knn", "fast", "proto")
PROJECT = ("fast", "similar")


@pytest.fixture
def stores(model: Model, tmp_path: Path) -> list[Path]:
    """A company's store and a project's, which were built for different systems."""
    made = []
    for seed, (name, systems) in enumerate({"company": COMPANY, "project": PROJECT}.items()):
        text = parallel_text(tmp_path / f"{name}.tsv", 40, seed)
        nameless = [line.rpartition("\t")[0] for line in text.read_text(encoding="utf-8").splitlines()]
        text.write_text("\n".join(nameless), encoding="utf-8")  # each is called by its number
        settings = BuildSettings(clean=None, cluster_size=16, systems=systems)
        Datastore.build(text, model=model, langs="de-en", out=tmp_path / name, settings=settings, workers=1)
        made.append(tmp_path / name)
    return made


@pytest.fixture
def client(model: Model, stores: list[Path]) -> Iterator[TestClient]:
    with TestClient(
        create_app(Translator(model, stores), ServerSettings(beam=1)), base_url="http://localhost"
    ) as client:
        yield client


def test_tuned_settings_of_a_system_that_not_all_memories_have_are_not_used(model: Model, stores: list[Path]) -> None:
    Tuned(RetrievalSettings(system="similar", weight=0.5)).save(stores[-1] / TUNED)
    alone, together = (Translator(model, opened).retriever for opened in (stores[-1], stores))
    assert alone is not None
    assert together is not None
    assert (alone.system.name, alone.settings.weight) == ("similar", 0.5)
    assert together.system.name == "fast"
    assert together.settings.weight != 0.5


def test_the_last_of_several_memories_learns(client: TestClient, stores: list[Path]) -> None:
    company, project = map(Datastore.open, stores)
    offered = client.get("/v1/systems").json()
    common = [name for name in SYSTEMS if serves(company, name) and serves(project, name)]
    assert [each["name"] for each in offered["systems"]] == ["base", *common]
    assert offered["default"] in common
    assert offered["memories"] == ["company", "project"]
    missing = next(name for name in SYSTEMS if name not in common)
    assert client.post("/v1/translate", json={"q": TEXT, "system": missing}).status_code == 404

    asked = {"q": TEXT, "source": "de", "target": "en"}
    assert client.post("/suggest", json=asked | {"s": LESSON}).json() == {"success": True}
    assert client.post("/translate", json=asked).json()["translatedText"] == LESSON
    assert [len(Datastore.open(path)) for path in stores] == [40, 41]
    assert client.get("/v1/memory").json()["total"] == 81


def test_evidence_names_the_memory(client: TestClient) -> None:
    (found,) = client.post("/v1/translate", json={"q": TEXT, "evidence": True}).json()["translations"]
    named = {near["memory"] for token in found["tokens"] for near in token["neighbours"]}
    assert named == {"company", "project"}


def test_segments_of_other_memories_are_corrected_but_not_removed(client: TestClient, stores: list[Path]) -> None:
    listed = client.get("/v1/memory").json()["segments"]
    assert [each["memory"] for each in listed] == ["company"] * 40 + ["project"] * 10
    first = listed[0]
    place = f"/v1/memory/{quote(first['id'], safe='')}"
    refused = client.delete(place)
    assert refused.status_code == 403
    assert "project" in refused.json()["error"]
    assert client.delete("/v1/memory/none").status_code == 404
    assert client.put(place, json={"source": first["source"], "target": LESSON}).status_code == 200
    asked = {"q": first["source"], "source": "de", "target": "en"}
    assert client.post("/translate", json=asked).json()["translatedText"] == LESSON
    assert [len(Datastore.open(path)) for path in stores] == [40, 41]
    assert len(client.get("/v1/memory", params={"q": LESSON}).json()["segments"]) == 1
