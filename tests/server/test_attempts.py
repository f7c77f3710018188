"""Attempts that must fail: at keys, at files outside the server's folders, by pages of other sites."""

import base64
import hashlib
import itertools
import logging
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from knnmt.server.access import add_key

from .conftest import Serve
from .real import exchange, serving
from .standin import StandIn

SECRET = "the text of a request"
ASKED = {"q": "ja", "source": "de", "target": "en"}
UP = (
    "../../../../", "..%2f..%2f..%2f..%2f", "%2e%2e/%2e%2e/", "..%5c..%5c", "....//....//", "..%252f..%252f", "%2f",
)  # fmt: skip
PLACES, FILES = ("/page/", "/download_file/", "/v1/files/"), ("etc/passwd", "server/access.py")
TRAVERSALS = ["".join(parts) for parts in itertools.product(PLACES, UP, FILES)]


def headers_without_a_key(key: str) -> list[dict[str, str]]:
    """Ways to send a key, or nearly one, that are none."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    basic = base64.b64encode(f"weblate:{key}".encode()).decode()
    wrong = [
        "", "x", key[:-1], f"{key}x", key.swapcase(), key[::-1], digest, digest.upper(), "null", "undefined", "None",
        "true", "0", "*", "weblate", f'"{key}"', f"{key},{key}", f"{key} {key}", "' OR 1=1 --", "../keys", "a" * 5000,
    ]  # fmt: skip
    values = [f"Bearer {each}" for each in wrong] + [key, f"Basic {basic}", f"Digest {key}", f"Token {key}", "Bearer"]
    values += [f"Bearer\t{key}", f"BearerX {key}", f"DeepL-Auth-Key {digest}", "DeepL-Auth-Key", f"api_key={key}"]
    others = [{"X-API-Key": key}, {"Cookie": f"api_key={key}"}, {"Proxy-Authorization": f"Bearer {key}"}]
    return [{"Authorization": value} for value in values] + others


def test_nothing_but_a_key_is_a_key(serve: Serve, tmp_path: Path, standin: StandIn) -> None:
    key = add_key(tmp_path / "keys", "weblate")
    client, tried = serve(standin, keys=tmp_path / "keys"), headers_without_a_key(key)
    assert len(tried) >= 30
    for headers in tried:
        answer = client.post("/translate", json=ASKED, headers=headers)
        assert answer.status_code == 403, headers
        assert key not in answer.text
    for value in (None, "", key[:-1], [key], {"key": key}, 1, True, key.encode().hex()):
        assert client.post("/translate", json=ASKED | {"api_key": value}).status_code in (400, 403), value
    assert not standin.batches


@pytest.mark.parametrize("path", TRAVERSALS)
def test_no_path_leads_out(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (404, 405), path
    assert set(answer.json()) == {"error"}


def test_no_path_leads_out_on_the_wire(standin: StandIn) -> None:
    """Clients normalize paths; an attacker does not."""
    with serving(standin.as_translator()) as port:
        for path in TRAVERSALS:
            status, _, body = exchange(port, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            assert status.split()[1] in (b"400", b"404"), path
            assert b"root:" not in body
            assert b"import" not in body


ORIGINS = ("https://elsewhere.example", "http://localhost:8000", "null", "https://localhost.elsewhere.example")
CHANGES = (
    ("POST", "/suggest", {"q": "ja", "s": "yes", "source": "de", "target": "en"}),
    ("POST", "/v1/memory", {"source": "ja", "target": "yes"}),
    ("PUT", "/v1/memory/x", {"source": "ja", "target": "yes"}),
    ("DELETE", "/v1/memory/x", None),
    ("POST", "/v1/memory/import", None),
    ("POST", "/v1/files", None),
    ("POST", "/v1/reload", None),
    ("POST", "/v2/glossaries", {"name": "x", "source_lang": "de", "target_lang": "en", "entries": "a\tb"}),
)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("origin", ORIGINS)
def test_a_page_of_another_site_changes_nothing(serve: Serve, standin: StandIn, origin: str, host: str) -> None:
    """Also where pages may read: the server of a whole network answers them, but none makes a browser teach."""
    client = serve(standin, host=host)
    for method, path, body in CHANGES:
        answer = client.request(method, path, json=body, headers={"Origin": origin})
        assert answer.status_code in (400, 403, 404), (method, path)
        assert "access-control-allow-origin" not in answer.headers
    assert not standin.store.held


def test_an_error_of_the_system_without_a_number_is_a_fault_that_is_logged(
    serve: Serve, standin: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    def add(*_: object, **__: object) -> None:
        raise OSError(SECRET)

    standin.add = add  # type: ignore[method-assign,assignment]
    with caplog.at_level(logging.ERROR):
        answer = serve(standin).post("/suggest", json=ASKED | {"s": "yes"})
    assert (answer.status_code, answer.json()) == (500, {"error": "internal error; see the server's log"})
    assert "OSError" in caplog.text
    assert SECRET not in caplog.text


def test_an_export_has_origins_as_they_were_taught(client: TestClient) -> None:
    client.post("/v1/memory", json={"source": "ja", "target": "yes", "id": "1", "origin": "handbook"})
    for format in ("tmx", "jsonl"):
        assert "handbook" in client.get(f"/v1/memory/export?format={format}").text, format
