"""Documents that clients upload: translated beside other requests, bounded, and gone when they should be."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from knnmt.corpus import Segment
from knnmt.server.access import add_key
from knnmt.server.document_jobs import plain_name
from knnmt.server.spool import PREFIX, Spool, remove_abandoned

from .conftest import Serve
from .real import serving
from .standin import StandIn
from .team import team

PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n' + "".join(
    f'msgid "{text}"\nmsgstr "{done}"\n\n' for text, done in (("Datei öffnen", ""), ("Ende", "End"), ("Speichern", ""))
)
CUE = "1\n00:00:01,000 --> 00:00:02,000\nGuten Tag\n"
PAIR = {"source": "de", "target": "en"}


def send(client: TestClient, content: str | bytes = PO, name: str = "app.po", **fields: Any) -> Any:
    return client.post("/v1/files", files={"file": (name, content)}, data=fields)


def ended(client: TestClient, answer: Any, **more: Any) -> dict[str, Any]:
    assert answer.status_code == 202, answer.text
    while (status := client.get(f"/v1/files/{answer.json()['id']}", **more).json())["state"] in ("waiting", "running"):
        time.sleep(0.005)
    return dict(status)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Path]]:
    """What is in the folder for temporary files, locks aside."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return lambda: [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock"]


def test_a_document_is_translated_and_fetched(client: TestClient, standin: StandIn) -> None:
    standin.add([Segment("Speichern", "Save", "", "s-1")])
    status = ended(client, send(client))
    assert status["state"] == "done"
    assert (status["done"], status["total"]) == (2, 2)
    assert status["report"] == {"units": 2, "words": 3, "exact": 1, "kept": 1, "left": 0, "problems": []}
    answer = client.get(f"/v1/files/{status['id']}/result")
    assert answer.headers["content-disposition"] == 'attachment; filename="app_en.po"'
    assert '#, fuzzy\nmsgid "Datei öffnen"\nmsgstr "Datei\' öffnen\'"' in answer.text
    assert 'msgid "Speichern"\nmsgstr "Save"' in answer.text
    assert client.delete(f"/v1/files/{status['id']}").status_code == 200
    assert client.get(f"/v1/files/{status['id']}").status_code == 404


def test_libretranslates_two_routes(client: TestClient) -> None:
    answer = client.post("/translate_file", files={"file": ("seite.html", "<p>Guten <b>Morgen</b></p>")}, data=PAIR)
    assert answer.status_code == 200, answer.text
    assert set(answer.json()) == {"translatedFileUrl"}
    place = answer.json()["translatedFileUrl"]
    assert place.startswith("http://localhost/download_file/")
    assert place.endswith(".seite_en.html")
    assert client.get(place).text == "<p>Guten' <b>Morgen'</b></p>"
    assert 'filename="seite_en.html"' in client.get(place).headers["content-disposition"]
    proxied = client.post(
        "/translate_file", files={"file": ("a.txt", "ja")}, data=PAIR, headers={"X-Forwarded-Proto": "https"}
    )
    assert proxied.json()["translatedFileUrl"].startswith("https://")
    settings = client.get("/frontend/settings").json()
    assert settings["filesTranslation"]
    assert {".po", ".xlf", ".html", ".txt"} <= set(settings["supportedFilesFormat"])
    assert client.get("/languages").json()[0]["supportedFilesFormat"] == settings["supportedFilesFormat"]


@pytest.mark.parametrize(
    ("name", "content", "fields", "message"),
    [
        (None, "", PAIR, "missing file parameter"),
        ("a.txt", "ja", {"target": "en"}, "missing source parameter"),
        ("a.txt", "ja", {"source": "de"}, "missing target parameter"),
        ("a.txt", "", PAIR, "empty file"),
        ("a.exe", "ja", PAIR, "file format not supported"),
        ("a", "ja", PAIR, "file format not supported"),
        ("a.txt", "ja", PAIR | {"target": "xx"}, "xx is not supported"),
        ("a.json", '{"a": ', PAIR, "a.json:1"),
        ("a.csv", "x,y\nja,\n", PAIR, "which columns"),
        ("big.txt", "ja " * 400, PAIR, "larger than 1000 bytes"),
    ],
)
def test_what_is_wrong_is_told(
    serve: Serve, temporary: Callable[[], list[Path]], name: str | None, content: str, fields: Any, message: str
) -> None:
    client = serve(max_file=1000)
    files = {"file": (name, content)} if name else {"other": ("", "")}
    answer = client.post("/translate_file", files=files, data=fields)
    assert answer.status_code == 400, answer.text
    assert message in answer.json()["error"]
    assert not temporary()


def test_a_server_can_refuse_documents(serve: Serve) -> None:
    client = serve(max_file=0)
    for path in ("/translate_file", "/v1/files"):
        answer = client.post(path, files={"file": ("a.txt", "ja")}, data=PAIR)
        assert (answer.status_code, answer.json()["error"]) == (403, "Files translation are disabled on this server.")
    assert client.get("/frontend/settings").json()["supportedFilesFormat"] == []


def test_a_page_from_elsewhere_cannot_make_a_browser_upload(client: TestClient) -> None:
    """A form with a file needs no leave of the server to be sent."""
    for path in ("/translate_file", "/v1/files"):
        files, elsewhere = {"file": ("a.txt", "ja")}, {"Origin": "https://elsewhere.example"}
        assert client.post(path, files=files, data=PAIR, headers=elsewhere).status_code == 403
        assert client.post(path, files=files, data=PAIR, headers={"Origin": "http://localhost"}).status_code < 300


def test_columns_format_and_what_is_translated_already_can_be_chosen(client: TestClient) -> None:
    status = ended(client, send(client, "x,y\nja,nein\n", "a.csv", columns="x,y", everything="true"))
    assert client.get(f"/v1/files/{status['id']}/result").text == "x,y\nja,ja'\n"
    status = ended(client, send(client, "ja\n", "a.unknown", format="text"))
    assert client.get(f"/v1/files/{status['id']}/result").text == "ja'\n"
    assert "unknown format 'odt'" in send(client, "ja", "a.odt", format="odt").json()["error"]


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("../../etc/pass\x00wd.po", "passwd.po"),
        ("C:\\Users\\x\\a.po", "a.po"),
        ("..", ".."),
        ("ü.po", "ü.po"),
        ("a" * 500 + ".po", "a" * 100 + ".po"),
    ],
)
def test_a_name_is_a_name_and_no_path(client: TestClient, name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_nothing_but_results_can_be_fetched(client: TestClient) -> None:
    for path in ("/download_file/..%2f..%2fetc%2fpasswd", "/download_file/lock", "/v1/files/../x", "/download_file/."):
        assert client.get(path).status_code == 404


def test_only_the_key_that_uploaded_may_see_a_document(serve: Serve, tmp_path: Path) -> None:
    mine, other = add_key(tmp_path / "keys", "mine"), add_key(tmp_path / "keys", "other")
    client = serve(keys=tmp_path / "keys", rate_limit=3)
    assert client.post("/translate_file", files={"file": ("a.txt", "ja")}, data=PAIR).status_code == 403
    assert send(client).status_code == 403
    answer = client.post("/translate_file", files={"file": ("a.txt", "ja")}, data=PAIR | {"api_key": mine})
    place = answer.json()["translatedFileUrl"]
    id = place.rpartition("/")[2].partition(".")[0]
    for path in (place, f"/v1/files/{id}", f"/v1/files/{id}/result"):
        assert client.get(path).status_code == 403
        assert client.get(path, headers={"Authorization": f"Bearer {other}"}).status_code == 404
        for _ in range(5):  # looking is free, however often
            assert client.get(path, headers={"Authorization": f"Bearer {mine}"}).status_code == 200
    assert client.delete(f"/v1/files/{id}", headers={"Authorization": f"Bearer {other}"}).status_code == 404


def test_a_large_document_does_not_hold_up_small_requests_or_documents(serve: Serve, standin: StandIn) -> None:
    standin.pause = 0.01
    client = serve(standin, batch_tokens=64)
    text = "".join(f"Zeile Nummer {n} von vielen anderen Zeilen.\n" for n in range(10_000))
    large = send(client, text, "large.txt")
    standin.pause = 0.005
    begun = time.monotonic()
    for _ in range(3):
        assert client.post("/translate", json=PAIR | {"q": "ja"}).status_code == 200
        assert ended(client, send(client, "ja", "small.txt"))["state"] == "done"
    assert time.monotonic() - begun < 5
    status = client.get(f"/v1/files/{large.json()['id']}").json()
    assert status["state"] == "running"
    assert 0 < status["done"] < status["total"] == 10_000
    cancelled = client.delete(f"/v1/files/{large.json()['id']}")
    assert cancelled.status_code == 200
    after = len(standin.batches)
    assert client.post("/translate", json=PAIR | {"q": "ja"}).status_code == 200
    time.sleep(0.1)
    assert len(standin.batches) <= after + 3


def test_results_are_removed_after_a_while(serve: Serve, temporary: Callable[[], list[Path]]) -> None:
    client = serve(file_lifetime=0.2)
    status = ended(client, send(client))
    assert len(temporary()) == 1
    time.sleep(0.5)
    assert not temporary()  # though nobody asked
    assert client.get(f"/v1/files/{status['id']}").status_code == 404


def test_documents_are_bounded_in_number_and_size(
    serve: Serve, standin: StandIn, temporary: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve(standin, max_files=2)
    first = ended(client, send(client))
    ended(client, send(client))
    refused = send(client)
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) > 0
    monkeypatch.setattr("knnmt.server.document_jobs.KEPT", 0.0)
    ended(client, send(client))  # the oldest result makes room
    assert client.get(f"/v1/files/{first['id']}").status_code == 404
    assert len(temporary()) == 2
    small = serve(standin, disk=2000)
    assert send(small, "x" * 3000, "a.txt").status_code == 503
    assert ended(small, send(small, "x", "a.txt"))["state"] == "done"


def test_an_upload_is_refused_before_it_is_received(standin: StandIn) -> None:
    """Neither documents nor imports can fill the disk: room is set aside before the body is read."""
    with serving(standin.as_translator(), disk=1000) as port:
        for path in ("/v1/files", "/translate_file", "/v1/memory/import"):
            with contextlib.closing(socket.create_connection(("127.0.0.1", port))) as line:
                head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=x\r\n"
                line.sendall(f"{head}Content-Length: 100000\r\n\r\n".encode())
                line.settimeout(5)
                assert line.recv(100).startswith(b"HTTP/1.1 503")


def test_a_client_that_leaves_cancels_its_document(standin: StandIn) -> None:
    standin.open.clear()
    with serving(standin.as_translator()) as port:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"http://127.0.0.1:{port}/translate_file",
                files={"file": ("a.txt", "ja\n" * 10)},
                data=PAIR,
                timeout=0.3,
            )
        time.sleep(0.5)  # until the server has noticed
        standin.open.set()
        assert httpx.post(f"http://127.0.0.1:{port}/translate", json=PAIR | {"q": "nein"}).status_code == 200
    assert ["ja"] not in standin.batches


def test_the_server_goes_and_its_files_with_it(temporary: Callable[[], list[Path]], tmp_path: Path) -> None:
    standin = StandIn(pause=0.05)
    with serving(standin.as_translator()) as port:
        for content in ("ja\n", "".join(f"Zeile {n}\n" for n in range(5000))):
            httpx.post(f"http://127.0.0.1:{port}/v1/files", files={"file": ("a.txt", content)})
        assert temporary()
    assert not list(tmp_path.glob(f"{PREFIX}*"))


HOLD = """
import time
from knnmt.server.spool import Spool
held = Spool(10).reserve(1)
held.path.touch()
print(held.path, flush=True)
time.sleep(60)
"""


def test_files_of_a_killed_server_are_removed_by_the_next(temporary: Callable[[], list[Path]], tmp_path: Path) -> None:
    held = Spool(10).reserve(1)
    held.path.touch()
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(tmp_path)}
    )
    assert process.stdout is not None
    other = Path(process.stdout.readline().strip())
    remove_abandoned()
    assert other.exists()  # it lives
    process.send_signal(signal.SIGKILL)
    process.wait()
    remove_abandoned()
    assert not other.parent.exists()


def by_hand(fields: dict[str, str], name: str, content: str) -> bytes:
    """A multipart form as a small script writes it."""
    part = '--x\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    parts = [part.format(*each) for each in (*fields.items(), (f'file"; filename="{name}', content))]
    return ("".join(parts) + "--x--\r\n").encode()


def test_a_script_translates_a_file_and_libretranslatepy_the_rest(standin: StandIn) -> None:
    with serving(standin.as_translator()) as port:
        url = f"http://127.0.0.1:{port}/"
        request = urllib.request.Request(url + "translate_file", by_hand(PAIR, "a.srt", CUE))
        request.add_header("Content-Type", "multipart/form-data; boundary=x")
        with urllib.request.urlopen(request) as answer:
            place = json.load(answer)["translatedFileUrl"]
        with urllib.request.urlopen(place) as answer:
            assert answer.read().decode() == CUE.replace("Guten Tag", "Guten' Tag'")
        client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(url)
        assert client.translate("ja", "de", "en") == "ja'"
        assert client.detect("Guten Morgen, wie geht es Ihnen?")[0]["language"] == "de"
        assert [each["code"] for each in client.languages()] == ["de", "en"]


def test_a_server_does_not_wait_for_a_document_that_takes_long_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knnmt.server.document_jobs.GRACE", 0.1)
    monkeypatch.setattr("knnmt.server.document_jobs.open_document", lambda *_, **__: time.sleep(5))
    with serving(StandIn().as_translator()) as port:
        httpx.post(f"http://127.0.0.1:{port}/v1/files", files={"file": ("a.txt", "ja")})
        begun = time.monotonic()
    assert time.monotonic() - begun < 3


def test_the_language_of_a_document_is_detected(tmp_path: Path) -> None:
    english = "The dog sleeps in the garden, and the cat sits at the window.\nWhere is the book that I gave you?\n"
    german = "Der Hund schläft im Garten, und die Katze sitzt am Fenster.\nWo ist das Buch, das ich dir gab?\n"
    french = "Le chien dort dans le jardin, et le chat est assis à la fenêtre.\nOù est le livre que je t'ai donné ?\n"
    ada = {"Authorization": "Bearer ada"}
    with TestClient(team(tmp_path), base_url="http://localhost", headers=ada) as client:

        def sent(text: str, **fields: str) -> Any:
            return client.post("/v1/files", files={"file": ("a.txt", text)}, data=fields)

        assert sent(english, source="auto").json()["result"] == "a_de.txt"
        assert sent(german, source="auto").json()["result"] == "a_en.txt"
        assert sent(german, source="auto", target="en").json()["result"] == "a_en.txt"
        assert sent("7\n", source="auto").status_code == 202  # nothing to go by
        refused = sent(french, source="auto")
        assert (refused.status_code, refused.json()["error"]) == (400, "fr is not supported")
        files = {"file": ("a.txt", french)}
        assert client.post("/translate_file", files=files, data={"source": "auto", "target": "en"}).status_code == 400
        assert client.post("/v2/document", files=files, data={"target_lang": "EN-US"}).status_code == 400
