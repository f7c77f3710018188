"""Connections and addresses: those that say nothing, forged headers, and pages that lie about who they are."""

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.testclient import TestClient

from knnmt.server import listener
from knnmt.server.access import add_key
from knnmt.server.listener import listening
from knnmt.server.settings import ServerSettings

from ..forked import Forked
from .conftest import Serve
from .real import exchange, serving
from .standin import StandIn

ASKED = {"q": "ja", "source": "de", "target": "en"}
ROOT = Path(__file__).parents[2]
FEW = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from tests.server.real import serving
from tests.server.standin import StandIn
with serving(StandIn().as_translator()) as port:
    print(port, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def silent() -> Iterator[list[socket.socket]]:
    opened: list[socket.socket] = []
    yield opened
    for line in opened:
        line.close()


def test_connections_that_say_nothing_do_not_use_up_the_files(silent: list[socket.socket]) -> None:
    process = Forked(FEW, "few", path=[str(ROOT)])
    port = int(process.stdout.readline())
    for number in range(140):
        line = socket.create_connection(("127.0.0.1", port), timeout=5)
        if number % 2:
            line.sendall(b"GET / HTT")  # a head that never ends
        silent.append(line)
    for _ in range(3):
        assert httpx.get(f"http://127.0.0.1:{port}/health", timeout=5).status_code == 200
    _, log = process.communicate()
    assert "Traceback" not in log


def test_a_head_that_does_not_come_in_time_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "HEAD_LIMIT", 0.2)
    standin = StandIn(pause=0.5)
    with serving(standin.as_translator()) as port:
        for begun in (b"", b"GET /health HTTP/1.1\r\nHost: x\r\n"):
            with socket.create_connection(("127.0.0.1", port)) as line:
                line.settimeout(5)
                line.sendall(begun)
                with contextlib.suppress(ConnectionError):
                    assert line.recv(100) == b""
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:  # a kept connection has more time
            for _ in range(2):
                assert client.post("/translate", json=ASKED).status_code == 200  # which takes longer than a head may
                time.sleep(0.3)


def test_an_answer_on_a_kept_connection_is_sent_at_once() -> None:
    """asyncio turns Nagle's algorithm off, which costs 40 ms an answer, only where the protocol is named."""
    with listening(ServerSettings(port=0)) as place:
        assert place.proto == socket.IPPROTO_TCP


def test_a_forged_address_does_not_escape_the_rate_limit(standin: StandIn) -> None:
    with serving(standin.as_translator(), rate_limit=2) as port:
        codes = [
            httpx.post(f"http://127.0.0.1:{port}/translate", json=ASKED, headers={"X-Forwarded-For": f"10.0.0.{n}"})
            for n in range(4)
        ]
        assert [each.status_code for each in codes] == [200, 200, 429, 429]


def test_a_local_server_without_keys_answers_to_its_own_names_only(serve: Serve, tmp_path: Path) -> None:
    client = serve()
    for name in ("localhost:5000", "127.0.0.1", "127.0.0.1:80", "[::1]:5000", "knnmt.localhost"):
        assert client.get("/health", headers={"Host": name}).status_code == 200, name
    for name in ("evil.example", "evil.example:5000", "127.0.0.1.evil.example", "10.0.0.1"):
        answer = client.post("/translate", json=ASKED, headers={"Host": name})
        assert answer.status_code == 403, name
        assert "--allow-host" in answer.json()["error"]
    named = {"Host": "mt.example.org"}
    assert serve(allow_host=("mt.example.org",)).get("/health", headers=named).status_code == 200
    assert serve(host="0.0.0.0").get("/health", headers=named).status_code == 200
    key = add_key(tmp_path / "keys", "one")
    kept = serve(keys=tmp_path / "keys")
    assert kept.post("/translate", json=ASKED | {"api_key": key}, headers=named).status_code == 200


def test_a_client_that_leaves_in_the_middle_of_a_body_is_no_error(
    standin: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with serving(standin.as_translator()) as port:
        for path in ("/translate", "/v1/memory/import", "/translate_file"):
            with socket.create_connection(("127.0.0.1", port)) as line:
                kind = "multipart/form-data; boundary=x" if path == "/translate_file" else "application/json"
                head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: 1000"
                line.sendall(f"{head}\r\n\r\n--x\r\n".encode())
                time.sleep(0.1)
        until = time.monotonic() + 5
        while sum("499" in line for line in caplog.messages) < 3 and time.monotonic() < until:
            time.sleep(0.02)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert sum("499" in line for line in caplog.messages) == 3


def test_what_can_be_got_can_be_asked_for_by_head(client: TestClient, standin: StandIn) -> None:
    for path in ("/", "/health", "/languages", "/frontend/settings", "/page/page.js", "/spec"):
        answer = client.head(path)
        assert answer.status_code == 200, path
        assert answer.content == b""
    assert client.head("/translate").status_code == 405
    with serving(standin.as_translator()) as port:
        status, headers, body = exchange(port, b"HEAD /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert (status, headers[b"content-length"], body) == (b"HTTP/1.1 200 OK", b"15", b"")


def test_the_description_is_where_libretranslate_has_it(client: TestClient) -> None:
    assert client.get("/spec").json() == client.get("/openapi.json").json()
    assert "/translate" in client.get("/spec").json()["paths"]


def test_keys_close_all_but_what_probes_and_the_page_need(serve: Serve, tmp_path: Path) -> None:
    key = add_key(tmp_path / "keys", "one")
    client, sent = serve(keys=tmp_path / "keys"), {"Authorization": f"Bearer {key}"}
    for path in ("/metrics", "/docs", "/openapi.json", "/spec"):
        assert client.get(path).status_code == 403
        assert client.get(path, headers=sent).status_code == 200
    for path in ("/", "/health", "/ready", "/languages", "/frontend/settings"):
        assert client.get(path).status_code == 200
    # a key in the address would end up in logs
    assert client.post(f"/translate?api_key={key}", json=ASKED).status_code == 403
    assert client.post(f"/translate?api_key={key}", data=ASKED).status_code == 403
    assert client.get(f"/v1/memory?api_key={key}").status_code == 403


def test_html_is_counted_in_segments_too(serve: Serve, standin: StandIn) -> None:
    client = serve(standin, max_segments=100)
    answer = client.post("/translate", json=ASKED | {"q": "<p>Hallo" * 200, "format": "html"})
    assert answer.status_code == 400
    assert "(200) exceeds text limit (100) of segments" in answer.json()["error"]
    assert not standin.batches


def test_a_disk_that_cannot_be_written_is_named(
    serve: Serve, standin: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    def add(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system", "/srv/store/journal")

    standin.add = add  # type: ignore[method-assign,assignment]
    answer = serve(standin).post("/suggest", json=ASKED | {"s": "yes"})
    assert answer.status_code == 503
    assert answer.json() == {"error": "the server cannot write to its disk: Read-only file system"}
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert errors == ["cannot write to /srv/store: Read-only file system"]  # one line for each refusal, no traceback


def test_a_crowd_need_not_knock_twice(standin: StandIn) -> None:
    """The system keeps hundreds of connections until the server accepts them; those beyond would wait for a second."""

    async def story() -> float:
        begun = time.monotonic()
        lines = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(300)))
        took = time.monotonic() - begun
        for _, writer in lines:
            writer.close()
        return took

    with serving(standin.as_translator()) as port:
        assert asyncio.run(story()) < 0.9
