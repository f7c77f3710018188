"""Fuzzy matches over HTTP: what a tool asks a translation memory for."""

from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from knnmt.corpus import Segment
from knnmt.languages import Languages
from knnmt.server import match_index
from knnmt.server.desks import Memory
from knnmt.server.match_index import MatchIndex
from knnmt.store.store import Store
from knnmt.translate.fuzzy import FuzzyIndex

from ..build.examples import written
from ..oracle import datastore as oracle
from .conftest import Serve
from .standin import StandIn


@pytest.fixture
def standin() -> StandIn:
    made = StandIn()
    made.add(
        [
            Segment("Datei öffnen", "Open file", "", "1"),
            Segment("Datei schließen", "Close file", "import", "2"),
            Segment("Die Datei jetzt öffnen", "Open the file now", "", "3"),
            Segment("Etwas ganz anderes", "Something else", "", "4"),
        ]
    )
    return made


def test_matches_come_with_scores_exact_first(client: TestClient) -> None:
    (found,) = client.post("/v1/matches", json={"q": "Datei öffnen"}).json()["matches"]
    assert [(each["id"], each["score"]) for each in found] == [("1", 1.0), ("2", 0.5), ("3", 0.5)]
    assert found[1] == {
        "score": 0.5, "source": "Datei schließen", "target": "Close file", "id": "2", "origin": "import",
        "memory": "project",
    }  # fmt: skip
    assert client.get("/v1/matches", params={"q": "Datei öffnen"}).json()["matches"] == [found]
    several = client.post("/v1/matches", json={"q": ["datei öffnen!", "nichts davon"], "limit": 1}).json()["matches"]
    assert [[each["score"] for each in some] for some in several] == [[0.99], []]
    assert client.get("/v1/matches", params={"q": "Datei öffnen", "least": 0.9}).json()["matches"][0] == found[:1]


def test_what_is_taught_or_removed_counts_at_once(client: TestClient) -> None:
    asked = {"q": "Fenster schließen"}
    assert [each["id"] for each in client.get("/v1/matches", params=asked).json()["matches"][0]] == ["2"]
    client.post("/v1/memory", json={"source": "Fenster schließen", "target": "Close window", "id": "5"})
    assert [each["id"] for each in client.get("/v1/matches", params=asked).json()["matches"][0]] == ["5", "2"]
    client.delete("/v1/memory/2")
    assert [each["id"] for each in client.get("/v1/matches", params=asked).json()["matches"][0]] == ["5"]


def test_requests_are_bounded(client: TestClient, serve: Serve) -> None:
    for change in ({"limit": "51"}, {"limit": "0"}, {"least": "0.1"}, {"q": ""}, {"least": "nan"}):
        assert client.get("/v1/matches", params={"q": "a"} | change).status_code == 400, change
    assert client.post("/v1/matches", json={"q": "x" * 60_000}).status_code == 400
    assert client.post("/v1/matches", json={"q": "a", "memories": ["nowhere"]}).status_code == 404
    assert client.post("/v1/matches", json={"q": "a", "source": "fr"}).status_code == 404
    assert serve(StandIn()).post("/v1/matches", json={"q": "a"}).json() == {"matches": [[]]}


def test_clients_of_amagama_get_theirs(client: TestClient) -> None:
    assert client.get("/tmserver/languages/").json() == {"sourceLanguages": ["de"], "targetLanguages": ["en"]}
    found = client.get("/tmserver/de/en/unit/Datei%20%C3%B6ffnen?min_similarity=50").json()
    assert [(each["target"], each["quality"]) for each in found][:2] == [("Open file", 100.0), ("Close file", 50.0)]
    assert client.get("/tmserver/de/en/unit/a/b%3Fc").json() == []
    assert client.get("/tmserver/en/fr/unit/a").status_code == 404


def test_sealed_parts_are_indexed_once_and_lessons_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    segments = oracle.random_segments(rng, count=8, types=4, width=4)
    arrays = oracle.build(segments, oracle.random_clusters(rng, segments), 5, 7)
    store = Store(written(arrays, tmp_path / "store", vocabulary=5, k_max=7).path)
    memory, index = Memory("one", Languages("de", "en"), store), MatchIndex()
    every = list(store.segments())
    made: list[int] = []
    build = FuzzyIndex

    def counted(store: Store, segments: object) -> object:
        made.append(1)
        return build(store, segments)  # type: ignore[arg-type]

    monkeypatch.setattr(match_index, "FuzzyIndex", counted)
    text = every[3].source + " zzz"
    found = index.find([memory], text, 5, 0.3)
    assert every[3].id in [match.segment.id for match in found]
    assert [match.score for match in found] == sorted((match.score for match in found), reverse=True)
    assert len(made) == 2
    store.remove([every[3].id or ""])
    assert every[3].id not in [match.segment.id for match in index.find([memory], text, 5, 0.3)]
    assert len(made) == 3
    monkeypatch.setattr(match_index, "MOST", 1)
    assert MatchIndex().find([memory], every[2].source, 1, 0.3)[0].score == 1.0
    assert all(match.score == 1.0 for match in MatchIndex().find([memory], every[2].source, 5, 0.3))
