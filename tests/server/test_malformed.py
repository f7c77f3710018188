"""Bodies that are broken in every way: each is refused by a 4xx, and the memory stays as it was."""

import json
import random
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from knnmt.corpus import Segment

from .standin import StandIn
from .test_memory import tmx

SOUND = tmx([Segment(f"Satz {n}", f"Sentence {n}", "", f"u{n}") for n in range(30)])
JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
PARTS = {"content-type": "multipart/form-data; boundary=x"}
FILE_PART = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.tmx"\r\n\r\n'
BOMB = b'<?xml version="1.0"?><!DOCTYPE tmx [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]><tmx><body>&b;</body></tmx>'
OUTSIDE = b'<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]><tmx><body><tu><tuv>&x;</tuv></tu></body></tmx>'


def broken_tmx() -> Iterator[bytes]:
    """Cut short anywhere, with bytes changed to what no XML holds, and quite other files."""
    rng = random.Random(7)
    yield from (
        b"",
        b"   ",
        b"<tmx>",
        b"<tmx/>",
        b"<html></html>",
        b"{}",
        b"\x00",
        b"\xff\xfe\x00",
        b"PK\x03\x04",
        BOMB,
    )
    yield OUTSIDE
    yield SOUND.replace(b'"de"', b'"fr"')
    yield SOUND.replace(b"</tmx>", b"</tmx><tmx>")
    yield SOUND + SOUND
    yield SOUND.replace(b"<body>", b"<body><body>")
    yield from (SOUND[: rng.randrange(len(SOUND) - 10)] for _ in range(45))
    for _ in range(45):
        place = rng.randrange(len(SOUND))
        yield (
            SOUND[:place] + rng.choice((b"\x00", b"\xff", b"<", b"&", b"\x01", b"]]><")) + b"\xff" + SOUND[place + 1 :]
        )


def broken_json() -> Iterator[bytes]:
    rng = random.Random(8)
    sound = json.dumps({"q": "ja", "s": "yes", "source": "de", "target": "en"}).encode()
    yield from (b"", b"null", b"[]", b"1", b'"text"', b"NaN", b"{", b"[" * 100_000, b'{"q":' * 5000, b"\xff", b"\x00")
    yield from (sound[:size] for size in rng.sample(range(1, len(sound)), 20))
    yield sound.decode().encode("utf-16")[2:] + b"\x00"
    wrong: tuple[object, ...] = (1, {}, [[]], True, [1])
    yield from (json.dumps({"q": value, "source": "de", "target": "en"}).encode() for value in wrong)
    yield json.dumps({"q": "\ud800", "s": "\udfff", "source": "de", "target": "en"}).encode()
    for _ in range(20):
        place = rng.randrange(len(sound))
        yield sound[:place] + b"\xff\x00" + sound[place + 2 :]


def broken_forms() -> Iterator[tuple[dict[str, str], bytes]]:
    rng = random.Random(9)
    part = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nja\r\n--x--\r\n'
    yield from (
        (FORM, body) for body in (b"", b"&&&", b"q", b"q=%ff%fe", b"=ja", b"q=ja", b"q=\xff&source=de&target=en")
    )
    yield FORM, b"&".join(b"f%d=1" % n for n in range(5000))
    yield from ((PARTS, body) for body in (b"", b"--x", b"--y\r\n", b"--x--", b"\x00" * 50, part, part[:-6], part * 50))
    yield from ((PARTS, part[: rng.randrange(len(part))]) for _ in range(20))
    yield {"content-type": "multipart/form-data"}, part
    yield {"content-type": "multipart/form-data; boundary=" + "x" * 500}, part
    yield {"content-type": "text/plain"}, b"q=ja"
    yield {"content-type": "application/octet-stream"}, bytes(rng.randbytes(100))


def test_there_are_enough_of_them() -> None:
    assert len(list(broken_tmx())) + len(list(broken_json())) + len(list(broken_forms())) >= 200


@pytest.fixture
def remembering(client: TestClient, standin: StandIn) -> Iterator[TestClient]:
    standin.add([Segment("vorher", "before", "", "s-1")])
    before = dict(standin.store.held)
    yield client
    assert client.get("/v1/memory").json()["total"] == 1
    assert standin.store.held == before


def refused(client: TestClient, path: str, body: bytes, headers: dict[str, str]) -> None:
    answer = client.post(path, content=body, headers=headers)
    assert 400 <= answer.status_code < 500, (path, body[:200], answer.text)
    assert answer.status_code != 422
    assert set(answer.json()) == {"error"}


def test_broken_tmx_changes_nothing(remembering: TestClient) -> None:
    for body in broken_tmx():
        refused(remembering, "/v1/memory/import", body, {"content-type": "application/xml"})
        parts = (
            b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.tmx"\r\n\r\n' + body + b"\r\n--x--\r\n"
        )
        refused(remembering, "/v1/memory/import", parts, PARTS)


def test_broken_json_changes_nothing(remembering: TestClient) -> None:
    for body in broken_json():
        for path in ("/translate", "/suggest", "/v1/translate", "/v1/memory"):
            if path != "/v1/memory" or body not in (b"[]",):  # no segments are none to add
                refused(remembering, path, body, JSON)


def test_broken_forms_change_nothing(remembering: TestClient) -> None:
    for headers, body in broken_forms():
        for path in ("/translate", "/suggest", "/v1/memory/import"):
            refused(remembering, path, body, headers)
