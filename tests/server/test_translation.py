"""`/v1/translate`: translations that say where they come from."""

import pytest
from starlette.testclient import TestClient

from knnmt.evidence import Neighbour, TokenEvidence
from knnmt.translate import TranslateSettings, Translation

from .standin import StandIn


def test_a_translation_tells_where_its_tokens_come_from(client: TestClient) -> None:
    (found,) = client.post("/v1/translate", json={"q": "ja", "evidence": True}).json()["translations"]
    assert found["text"] == "ja'"
    assert found["score"] == -0.5
    (token,) = found["tokens"]
    assert token.pop("memory") == pytest.approx(0.8 * 0.95 / 0.9)
    near = {
        "source": "ja", "before": "", "token": "ja'", "after": "", "origin": "here", "id": "s-1",
        "memory": "project", "distance": 1.5, "weight": 1.0, "author": None, "date": None,
    }  # fmt: skip
    assert token == {"text": "ja'", "p": 0.9, "p_mt": 0.5, "p_knn": 0.95, "lambda": 0.8, "neighbours": [near]}


def test_texts_alternatives_and_no_evidence_unless_asked_for(client: TestClient) -> None:
    found = client.post("/v1/translate", json={"q": ["ja", "nein"], "alternatives": 1}).json()["translations"]
    assert [each["text"] for each in found] == ["ja'", "nein'"]
    assert found[1]["alternatives"] == [{"text": "nein' (2)", "score": -2.0}]
    assert found[0]["tokens"] == []
    assert client.post("/v1/translate", json={"q": []}).json() == {"translations": []}


def test_systems_and_lambda_are_chosen_by_the_request(client: TestClient, standin: StandIn) -> None:
    listed = client.get("/v1/systems").json()
    base = {"name": "base", "summary": "the model alone, without retrieval"}
    assert listed == {"systems": [base], "default": "fast", "lambda": 0.9, "memories": ["project"]}
    assert client.post("/v1/translate", json={"q": "ja", "system": "base", "lambda": 0.5}).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        {}, {"q": None}, {"q": 1}, {"q": "ja", "lambda": 2}, {"q": "ja", "lambda": -1},
        {"q": "ja", "beam": 0}, {"q": "ja", "beam": 1000}, {"q": "ja", "alternatives": 50}, {"q": "ja", "other": 1},
        {"q": "ja", "weights": 1}, [], "ja", None, {"q": "ja", "alternatives": False}, {"q": "ja", "beam": "2"},
        {"q": "ja", "lambda": True}, {"q": "ja", "evidence": "true"},
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(client: TestClient, standin: StandIn, body: object) -> None:
    answer = client.post("/v1/translate", json=body)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}
    assert not standin.batches


def test_evidence_names_who_taught_a_segment(client: TestClient, standin: StandIn) -> None:
    def one(text: str, settings: TranslateSettings) -> Translation:
        signed = "suggested (anna, 2026-11-16T16:40:12Z)"
        near = Neighbour(0, text, "", "yes", "", signed, "s-1", 1.5, 1.0, "project")
        return Translation("yes", -0.5, (1,), (), (TokenEvidence("yes", 0.9, 0.5, 0.95, 0.8, (near,)),))

    standin._one = one  # type: ignore[method-assign]
    (found,) = client.post("/v1/translate", json={"q": "ja", "evidence": True}).json()["translations"]
    (near,) = found["tokens"][0]["neighbours"]
    assert (near["author"], near["date"]) == ("anna", "2026-11-16T16:40:12Z")


def test_systems_can_be_asked_for_some_memories(client: TestClient) -> None:
    assert client.get("/v1/systems?memories=project").json()["memories"] == ["project"]
    assert client.get("/v1/systems?memories=nowhere").status_code == 404
