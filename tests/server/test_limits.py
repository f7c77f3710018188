"""What a server refuses, and how: always {"error": …}, with a code that clients know."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from knnmt.corpus import Segment
from knnmt.errors import DataError, UsageError
from knnmt.server.access import add_key, read_keys

from .conftest import Serve
from .real import serving
from .standin import StandIn

ASKED = {"q": "ja", "source": "de", "target": "en"}


def test_a_full_queue_answers_503_and_when_to_come_back(serve: Serve, standin: StandIn) -> None:
    client = serve(standin, queue=1)
    standin.open.clear()
    answers: list[int] = []
    threads = [
        threading.Thread(target=lambda: answers.append(client.post("/translate", json=ASKED).status_code))
        for _ in range(2)
    ]
    threads[0].start()
    while not standin.threads:
        time.sleep(0.005)
    threads[1].start()
    while "knnmt_waiting_requests 1.0" not in client.get("/metrics").text:
        time.sleep(0.005)
    answer = client.post("/translate", json=ASKED)
    standin.open.set()
    for thread in threads:
        thread.join()
    assert answer.status_code == 503
    assert set(answer.json()) == {"error"}
    assert int(answer.headers["retry-after"]) >= 1
    assert answers == [200, 200]


def test_what_takes_too_long_answers_504(serve: Serve) -> None:
    client = serve(StandIn(pause=1.0), time_limit=0.5)
    for path, body in (("/translate", ASKED), ("/v1/translate", {"q": "ja"})):
        answer = client.post(path, json=body)
        assert answer.status_code == 504
        assert "0.5 seconds" in answer.json()["error"]


@pytest.mark.parametrize(
    ("settings", "q"),
    [
        ({"max_characters": 10}, "x" * 11),
        ({"max_characters": 10}, ["x" * 6, "y" * 6]),
        ({"max_segments": 2}, ["a", "b", "c"]),
        ({"max_segments": 2}, "a\nb\nc"),
        ({"max_body": 100}, "x" * 200),
    ],
)
def test_too_much_answers_400(serve: Serve, standin: StandIn, settings: dict[str, int], q: object) -> None:
    client = serve(standin, **settings)
    for path, body in (("/translate", ASKED | {"q": q}), ("/v1/translate", {"q": q})):
        answer = client.post(path, json=body)
        assert answer.status_code == 400
        assert set(answer.json()) == {"error"}
    assert not standin.batches
    assert client.post("/translate", json=ASKED).status_code == 200


def test_a_body_that_does_not_say_its_size_is_measured(serve: Serve, standin: StandIn) -> None:
    client = serve(standin, max_body=1000)

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b"q=" + b"x" * 100

    for path in ("/translate", "/v1/translate", "/suggest"):
        answer = client.post(path, content=endless(), headers={"content-type": "application/json"})
        assert answer.status_code == 400
        assert "larger than 1000 bytes" in answer.json()["error"]


def test_a_client_that_asks_too_often_is_slowed_down(serve: Serve) -> None:
    client = serve(rate_limit=3)
    codes = [client.post("/translate", json=ASKED).status_code for _ in range(5)]
    assert codes == [200, 200, 200, 429, 429]
    answer = client.post("/translate", json=ASKED)
    assert answer.json()["error"].startswith("Slowdown")
    assert 1 <= int(answer.headers["retry-after"]) <= 20
    assert client.get("/languages").status_code == 200  # that costs nothing


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def test_a_key_is_needed_where_there_are_keys(serve: Serve, keys: Path) -> None:
    key = add_key(keys, "weblate")
    client = serve(keys=keys)
    closed = [
        ("/translate", ASKED), ("/detect", {"q": "ja"}), ("/suggest", ASKED | {"s": "yes"}),
        ("/v1/translate", {"q": "ja"}), ("/v1/memory", {"source": "ja", "target": "yes"}),
        ("/v1/memory/import", {}),
    ]  # fmt: skip
    for path, body in closed:
        for wrong in ({}, {"api_key": "x" * len(key)}, {"api_key": key[:-1]}):
            answer = client.post(path, json=body | (wrong if not path.startswith("/v1") else {}))
            assert answer.status_code == 403, path
            assert set(answer.json()) == {"error"}
        assert client.post(path, json=body, headers={"Authorization": "Bearer nonsense"}).status_code == 403
    for path in ("/v1/memory", "/v1/systems", "/v1/memory/export", "/v1/jobs/x"):
        assert client.get(path).status_code == 403
    assert client.post("/translate", json=ASKED | {"api_key": key}).status_code == 200
    assert client.post("/translate", data=ASKED | {"api_key": key}).status_code == 200
    assert client.post("/translate", json=ASKED, headers={"Authorization": f"Bearer {key}"}).status_code == 200
    assert client.post("/v1/translate", json={"q": "ja"}, headers={"Authorization": f"Bearer {key}"}).status_code == 200
    for path in ("/languages", "/health", "/ready", "/frontend/settings"):
        assert client.get(path).status_code == 200
    assert client.get("/frontend/settings").json()["keyRequired"]


def test_each_key_has_its_own_limit(serve: Serve, keys: Path) -> None:
    busy, free, usual = add_key(keys, "busy", 1), add_key(keys, "free", 0), add_key(keys, "usual")
    client = serve(keys=keys, rate_limit=2)
    codes = {
        key: [client.post("/translate", json=ASKED | {"api_key": key}).status_code for _ in range(4)]
        for key in (busy, free, usual)
    }
    assert codes == {busy: [200, 429, 429, 429], free: [200] * 4, usual: [200, 200, 429, 429]}


def test_a_key_is_kept_as_a_digest_that_only_its_owner_can_read(keys: Path) -> None:
    key = add_key(keys, "omegat")
    assert key not in keys.read_text()
    assert keys.stat().st_mode & 0o077 == 0
    assert [each.name for each in read_keys(keys)] == ["omegat"]
    with pytest.raises(UsageError, match="already"):
        add_key(keys, "omegat")
    with pytest.raises(UsageError, match="not a valid key name"):
        add_key(keys, "a b")


@pytest.mark.parametrize("content", ["", "# only a remark\n", "name\n", "name abc\n", f"name {'g' * 64}\n"])
def test_a_file_without_keys_is_refused_rather_than_open_to_all(keys: Path, content: str) -> None:
    keys.write_text(content)
    with pytest.raises(DataError, match="knnmt serve --new-key"):
        read_keys(keys)


def test_a_file_of_keys_that_is_not_there_is_refused(keys: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_keys(keys)


def test_unknown_places_answer_as_all_errors_do(client: TestClient) -> None:
    for answer, code in ((client.get("/nowhere"), 404), (client.get("/translate"), 405), (client.put("/detect"), 405)):
        assert answer.status_code == code
        assert set(answer.json()) == {"error"}


def test_a_fault_of_the_server_answers_500_without_its_details(
    client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    answer = client.post("/translate", json=ASKED | {"q": "explode geheim"})
    assert answer.status_code == 500
    assert set(answer.json()) == {"error"}
    assert "geheim" not in answer.text
    assert "geheim" not in caplog.text


def test_a_page_from_elsewhere_cannot_make_a_browser_teach(serve: Serve, standin: StandIn) -> None:
    """A form needs no leave of the server to be sent: that it cannot read the answer would not hinder it."""
    client, elsewhere = serve(standin), {"Origin": "https://elsewhere.example"}
    standin.add([Segment("vorher", "before", "", "s-1")])
    lesson, pair = ASKED | {"s": "no"}, {"source": "ja", "target": "no"}
    for answer in (
        client.post("/suggest", data=lesson, headers=elsewhere),
        client.post("/v1/memory", json=pair, headers=elsewhere),
        client.put("/v1/memory/s-1", json=pair, headers=elsewhere),
        client.delete("/v1/memory/s-1", headers=elsewhere),
        client.post("/v1/memory/import", content="<tmx/>", headers=elsewhere | {"content-type": "text/plain"}),
        client.post("/suggest", data=lesson, headers={"Origin": "null"}),
    ):
        assert answer.status_code == 403
    assert list(standin.store.held) == ["s-1"]
    assert client.post("/suggest", data=lesson, headers={"Origin": "http://localhost"}).status_code == 200
    allowed = serve(cors=("https://elsewhere.example",))
    assert allowed.post("/suggest", data=lesson, headers=elsewhere).status_code == 200


def test_a_body_that_trickles_in_is_given_up(standin: StandIn) -> None:
    with (
        serving(standin.as_translator(), time_limit=0.3) as port,
        socket.create_connection(("127.0.0.1", port)) as line,
    ):
        line.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
        begun, received = time.monotonic(), b""
        line.settimeout(0.1)
        while b'"error"' not in received and time.monotonic() - begun < 10:
            with contextlib.suppress(OSError):
                line.sendall(b"q")
            with contextlib.suppress(OSError):
                received += line.recv(1000)
    assert b" 400 " in received.splitlines()[0]
    assert b"timed out waiting for the body" in received


def test_other_origins_may_not_call_unless_allowed(serve: Serve) -> None:
    asking = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in serve().options("/translate", headers=asking).headers
    assert "access-control-allow-origin" not in serve().post("/translate", json=ASKED, headers=asking).headers
    open_to = serve(cors=("https://elsewhere.example",))
    assert open_to.options("/translate", headers=asking).headers["access-control-allow-origin"] == asking["Origin"]
    other = asking | {"Origin": "https://third.example"}
    assert "access-control-allow-origin" not in open_to.post("/translate", json=ASKED, headers=other).headers
