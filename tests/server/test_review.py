"""Suggestions wait for a reviewer, on disk, and are used by nobody before; keys expire and have limits."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import knnmt.cli  # noqa: F401  the commands register themselves
from knnmt.cli.app import app
from knnmt.errors import DataError, UsageError
from knnmt.server import review
from knnmt.server.access import add_key, read_keys
from knnmt.server.logs import JsonFormatter
from knnmt.server.people import Caller
from knnmt.server.review import ReviewQueue, Suggestion
from knnmt.server.state import State

from .team import KEYS, team

ASKED = {"q": "Speichern", "source": "de", "target": "en"}
TINA, THEO, RITA, ADA = ({"Authorization": f"Bearer {name}"} for name in ("tina", "theo", "rita", "ada"))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(team(tmp_path), base_url="http://localhost") as client:
        yield client


def translated(client: TestClient) -> str:
    return str(client.post("/translate", json=ASKED, headers=RITA).json()["translatedText"])


def waiting(client: TestClient, who: dict[str, str] = RITA) -> list[dict[str, Any]]:
    return list(client.get("/v1/review", headers=who).json()["suggestions"])


def test_a_suggestion_is_used_when_it_is_accepted(client: TestClient, tmp_path: Path) -> None:
    me = client.get("/v1/me", headers=TINA).json()
    assert (me["name"], me["role"]) == ("tina", "translate")
    assert [(pair["learning"], pair["review"]) for pair in me["pairs"]] == [("handbook", True), (None, False)]
    assert client.post("/suggest", json=ASKED | {"s": "Save"}, headers=TINA).json() == {"success": True}
    assert translated(client) == "Speichern'"
    (found,) = waiting(client)
    assert (found["author"], found["memory"], found["source"], found["target"]) == (
        "tina",
        "handbook",
        "Speichern",
        "Save",
    )
    assert len(ReviewQueue(tmp_path / "review.journal")) == 1  # on disk
    assert client.post(f"/v1/review/{found['id']}/accept", headers=THEO).status_code == 403
    accepted = client.post(f"/v1/review/{found['id']}/accept", json={"target": "Store"}, headers=RITA)
    assert accepted.json()["decision"] == "accepted"
    assert translated(client) == "Store"
    assert waiting(client) == []
    assert client.post(f"/v1/review/{found['id']}/accept", headers=RITA).status_code == 404
    (first, *_) = client.get("/v1/memory", params={"order": "recent"}, headers=RITA).json()["segments"]
    assert first["author"] == "tina"
    actions = [(entry["caller"], entry["action"]) for entry in client.get("/v1/audit", headers=ADA).json()["entries"]]
    assert actions == [("rita", "accept"), ("tina", "suggest")]


def test_a_suggestion_is_rejected_withdrawn_or_replaced(client: TestClient) -> None:
    for target in ("Save", "Keep"):
        client.post("/suggest", json=ASKED | {"s": target}, headers=TINA)
    (found,) = waiting(client)
    assert found["target"] == "Keep"
    assert client.post(f"/v1/review/{found['id']}/reject", headers=TINA).json() == {"decision": "rejected", "ids": []}
    assert waiting(client) == waiting(client, TINA) == []
    assert translated(client) == "Speichern'"


def test_without_a_state_folder_nobody_suggests() -> None:
    with TestClient(team(None), base_url="http://localhost") as client:
        assert client.post("/suggest", json=ASKED | {"s": "Save"}, headers=TINA).status_code == 403
        assert client.post("/suggest", json=ASKED | {"s": "Save"}, headers=THEO).status_code == 200
        assert client.get("/v1/audit", headers=ADA).status_code == 404


def test_the_queue_is_read_again(tmp_path: Path) -> None:
    with TestClient(team(tmp_path), base_url="http://localhost") as client:
        client.post("/suggest", json=ASKED | {"s": "Save"}, headers=TINA)
        with pytest.raises(UsageError, match="another server uses this folder"):
            State(tmp_path)
    with (tmp_path / "audit.jsonl").open("a") as log:
        log.write('{"time": "half a li')
    with TestClient(team(tmp_path), base_url="http://localhost") as client:
        (found,) = waiting(client)
        assert client.post(f"/v1/review/{found['id']}/accept", headers=RITA).status_code == 200
        entries = client.get("/v1/audit", headers=ADA).json()["entries"]
        assert [entry["action"] for entry in entries] == ["accept", "suggest"]


def test_keys_expire_and_have_limits() -> None:
    tina, *others = KEYS
    today = date.today()
    keys = [replace(tina, expires=today - timedelta(days=2)), *others[:-1], replace(others[-1], characters=20)]
    with TestClient(team(None, keys=keys), base_url="http://localhost") as client:
        expired = client.get("/v1/me", headers=TINA)
        assert expired.status_code == 403
        assert "expired" in expired.json()["error"]
        assert client.post("/translate", json=ASKED, headers=ADA).status_code == 200
        assert client.post("/translate", json=ASKED, headers=ADA).status_code == 200
        assert client.post("/translate", json=ASKED, headers=ADA).status_code == 429
        assert client.post("/translate", json=ASKED, headers=THEO).status_code == 200


def test_a_key_file_names_roles(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    add_key(keys, "old", 7)
    told = CliRunner().invoke(
        app,
        ["serve", "--keys", str(keys), "--new-key", "anna", "--role", "review", "--expires", "2027-01-01",
         "--key-memories", "a,b", "--json"],
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    assert json.loads(told.output)["name"] == "anna"
    old, anna = read_keys(keys)
    assert (old.limit, old.role, old.memories, old.expires) == (7, "teach", None, None)
    assert anna.caller == Caller("anna", "review", anna.digest, ("a", "b"))
    assert anna.expires == date(2027, 1, 1)
    for wrong in ("role=boss", "expires=tomorrow", "colour=red", "characters=0"):
        keys.write_text(f"x {'0' * 64} {wrong}\n")
        with pytest.raises(DataError, match=f"keys:1: {wrong}"):
            read_keys(keys)


def test_a_log_for_machines() -> None:
    record = logging.LogRecord(
        "knnmt.server.access", logging.INFO, "", 0, "%s %s %d %.0f ms", ("GET", "/", 200, 1.5), None
    )
    entry = json.loads(JsonFormatter().format(record))
    assert (entry["method"], entry["route"], entry["status"], entry["ms"]) == ("GET", "/", 200, 1.5)
    other = logging.LogRecord("knnmt", logging.ERROR, "", 0, "no %s", ("room",), None)
    assert json.loads(JsonFormatter().format(other))["message"] == "no room"


def test_what_was_decided_does_not_stay_in_the_journal_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review, "SETTLED", 10)
    path = tmp_path / "review.journal"
    queue = ReviewQueue(path)
    (kept,) = queue.suggest([Suggestion("handbook", "eins", "one", "", "tina")])
    sizes = []
    for number in range(100):
        (id,) = queue.suggest([Suggestion("handbook", f"Text {number}", "text", "", "tina")])
        queue.decide(id, "rejected", "rita")
        sizes.append(path.stat().st_size)
    assert max(sizes[50:]) <= max(sizes[:50])
    again = ReviewQueue(path)  # which rewrites it too
    assert [each.id for each in again.waiting(Caller("rita", "review"))] == [kept]
    assert path.stat().st_size < max(sizes) / 2
    again.suggest([Suggestion("handbook", "zwei", "two", "", "tina")])
    assert len(ReviewQueue(path)) == 2
    again.decide(kept, "accepted", "rita")
    assert len(ReviewQueue(path)) == 1


def test_a_queue_that_cannot_be_rewritten_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "review.journal"
    queue = ReviewQueue(path)
    first, second = queue.suggest([Suggestion("handbook", text, "x", "", "tina") for text in ("eins", "zwei")])
    queue.decide(first, "rejected", "rita")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("knnmt.store.journal.write_whole", full)
    assert [each.id for each in ReviewQueue(path).waiting(Caller("rita", "review"))] == [second]
