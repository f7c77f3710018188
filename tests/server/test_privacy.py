"""What a server tells of its clients to logs and counters: nothing."""

import logging
import re
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from knnmt.server.access import add_key

from .conftest import Serve
from .standin import StandIn

SECRET = "Kontonummer"


def test_neither_text_nor_keys_nor_addresses_reach_logs_and_counters(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = add_key(tmp_path / "keys", "client")
    client = serve(keys=tmp_path / "keys")
    pair, bearer = {"source": SECRET, "target": "x"}, {"Authorization": f"Bearer {key}"}
    asked = {"q": SECRET, "source": "de", "target": "en", "api_key": key}
    client.post("/translate", json=asked)
    client.post("/translate", params=asked)
    client.post("/suggest", data=asked | {"s": SECRET})
    client.post("/detect", json=asked)
    client.post("/v1/translate", json={"q": SECRET, "evidence": True}, headers=bearer)
    client.get("/v1/memory", params={"q": SECRET, "api_key": key})
    client.put(f"/v1/memory/{SECRET}", json=pair, headers=bearer)
    client.get(f"/{SECRET}")
    client.get(f"/page/{SECRET}")
    client.request(SECRET.upper(), "/translate")
    client.post("/translate", content=SECRET.encode(), headers={"content-type": "application/json"})
    client.post("/translate", json=asked | {"q": f"explode {SECRET}"})
    client.post("/v1/memory/import", content=f"<tmx>{SECRET}", headers=bearer)
    metrics = client.get("/metrics").text
    ours = "".join(f"{each.getMessage()}{each.exc_text or ''}" for each in caplog.records if "httpx" not in each.name)
    for told in (ours, metrics):
        for hidden in (SECRET, SECRET.upper(), key, "testclient", "127.0.0.1"):
            assert hidden not in told
    assert "POST /translate 200" in ours


def test_counters_tell_what_an_operator_needs(client: TestClient) -> None:
    client.post("/translate", json={"q": ["eins", "zwei drei"], "source": "de", "target": "en"})
    client.post("/suggest", json={"q": "ja", "s": "yes", "source": "de", "target": "en"})
    client.post("/translate", json={})
    client.delete("/v1/memory/nothing")
    text = client.get("/metrics").text
    for line in (
        'knnmt_requests_total{method="POST",route="/translate",status="200"} 1.0',
        'knnmt_requests_total{method="POST",route="/translate",status="400"} 1.0',
        'knnmt_requests_total{method="DELETE",route="/v1/memory/{id:segment}",status="404"} 1.0',
        "knnmt_batch_segments_sum 2.0",
        "knnmt_source_tokens_total 5.0",
        "knnmt_taught_segments_total 1.0",
        "knnmt_memory_segments 1.0",
        "knnmt_waiting_requests 0.0",
        'knnmt_request_seconds_count{route="/translate"} 2.0',
    ):
        assert line in text
    assert "process_resident_memory_bytes" in text


def test_what_a_browser_may_do_is_told_with_every_answer(client: TestClient, standin: StandIn) -> None:
    for path in ("/health", "/docs", "/nowhere", "/openapi.json"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert "uvicorn" not in headers.get("server", "")


def test_the_page_and_all_that_it_needs_come_from_here(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    needed = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert any(path.endswith(".js") for path in needed)
    for path in needed:
        assert client.get(path).status_code == 200, path
    assert not re.search(r"<script(?![^>]* src=)|<style|\son\w+=|\sstyle=|javascript:", page.text)
    for outside in ("/page/../app.py", "/page/%2e%2e/app.py", "/page//etc/passwd"):
        assert client.get(outside).status_code == 404


def test_the_interface_can_be_read_without_scripts(client: TestClient) -> None:
    page = client.get("/docs").text
    for path in ("/translate", "/v1/memory/{id}", "/metrics"):
        assert path in page
    assert "<script" not in page
    assert "style=" not in page
    assert "http" not in page.replace("/openapi.json", "").replace("HTTP", "")
