"""Safe by default: whose pages may call a local server, bodies of any encoding, clients that do not read, methods."""

import contextlib
import gzip
import json
import socket
import time
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from knnmt.corpus import Segment
from knnmt.server import listener
from knnmt.server.access import add_key

from .conftest import Serve
from .real import exchange, serving
from .standin import StandIn

ASKED = {"q": "ja", "source": "de", "target": "en"}
PAGE = {"Origin": "https://elsewhere.example"}


def test_pages_of_other_sites_cannot_use_a_local_server(serve: Serve, standin: StandIn) -> None:
    """They could not read the answer, but a form or a text needs no leave to be sent."""
    client = serve(standin)
    for origin in ("https://elsewhere.example", "http://localhost:8000", "null", "http://127.0.0.1"):
        answers = [
            client.post("/translate", data=ASKED, headers={"Origin": origin}),
            client.post("/v1/translate", content='{"q": "ja"}', headers={"Origin": origin}),
            client.get("/languages", headers={"Origin": origin}),
        ]
        assert [answer.status_code for answer in answers] == [403] * 3, origin
        assert f"--cors {origin}" in answers[0].json()["error"]
    assert not standin.batches


@pytest.mark.parametrize(
    "origin",
    [
        "moz-extension://2c127fa4-62c7-7e4f-90e5-472b45eecfdc",
        "chrome-extension://aapbdbdomjkkjkaonfhkkikfgjllcleb",
        "safari-web-extension://2C127FA4",
        "http://localhost",  # the page of the server itself
        "",
    ],
)
def test_add_ons_and_the_own_page_can(serve: Serve, origin: str) -> None:
    assert serve().post("/translate", json=ASKED, headers={"Origin": origin}).status_code == 200


def test_pages_that_are_allowed_can(serve: Serve, tmp_path: Path) -> None:
    assert serve(cors=("https://elsewhere.example",)).post("/translate", json=ASKED, headers=PAGE).status_code == 200
    assert serve(cors=("*",)).post("/translate", json=ASKED, headers=PAGE).status_code == 200
    proxied = {"Origin": "https://mt.example.org", "Host": "127.0.0.1:5000"}
    assert serve(allow_host=("mt.example.org",)).post("/translate", json=ASKED, headers=proxied).status_code == 200
    key = add_key(tmp_path / "keys", "one")
    kept = serve(keys=tmp_path / "keys")  # a page of another site knows no key
    assert kept.post("/translate", json=ASKED | {"api_key": key}, headers=PAGE).status_code == 200
    assert serve(host="0.0.0.0").post("/translate", json=ASKED, headers=PAGE).status_code == 200


def test_a_compressed_body_is_refused_whatever_it_would_become(client: TestClient) -> None:
    body = gzip.compress(json.dumps(ASKED | {"q": "x" * 10_000_000}).encode())
    assert len(body) < 20_000
    for coding in ("gzip", "deflate", "br", "gzip, identity", "unknown"):
        answer = client.post("/translate", content=body, headers={"Content-Encoding": coding})
        assert answer.status_code == 415
        assert set(answer.json()) == {"error"}
        assert answer.headers["accept-encoding"] == "identity"
    assert client.post("/translate", json=ASKED, headers={"Content-Encoding": "identity"}).status_code == 200


def test_a_chunked_body_is_bounded(standin: StandIn) -> None:
    with serving(standin.as_translator(), max_body=1000) as port:
        head = b"POST /translate HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        status, headers, _ = exchange(port, head + b"400\r\n" + b"x" * 1024)
        assert status.startswith(b"HTTP/1.1 400")
        assert headers[b"connection"] == b"close"


def test_a_client_that_does_not_read_is_cut(standin: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "WRITE_LIMIT", 0.3)
    standin.add([Segment(f"{number} " + "ja " * 90, "yes " * 2000, "", str(number)) for number in range(2000)])
    with serving(standin.as_translator()) as port, socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", port))
        line.settimeout(20)
        line.sendall(b"GET /v1/memory/export?format=tsv HTTP/1.1\r\nHost: x\r\n\r\n")
        received = line.recv(10)
        time.sleep(0.6)
        with contextlib.suppress(ConnectionResetError):
            while piece := line.recv(1 << 20):
                received += piece
        assert len(received) < 8_000_000  # of 16


METHODS = {
    "/translate": "POST, OPTIONS",
    "/languages": "GET, HEAD, OPTIONS",
    "/v1/memory": "GET, HEAD, POST, OPTIONS",
    "/v1/memory/some": "PUT, DELETE, OPTIONS",
    "/v1/files/some": "GET, HEAD, DELETE, OPTIONS",
    "/page/page.js": "GET, HEAD, OPTIONS",
}


@pytest.mark.parametrize(("path", "allowed"), METHODS.items())
def test_methods_are_listed_for_all_routes_of_a_path(client: TestClient, path: str, allowed: str) -> None:
    answer = client.options(path)
    assert (answer.status_code, answer.headers["allow"], answer.content) == (204, allowed, b"")
    for method in ("PATCH", "TRACE"):
        answer = client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    assert client.options("/nowhere").status_code == 404
