"""What clients send, as bytes on a socket, and what they read from the answer.

Fields and encodings of Weblate's requests are those of its own code (both the form it sent before batches and the JSON
since); headers are what `requests` adds. OmegaT's and the browsers' are written after the interface's documentation
and the habits of their HTTP libraries: they were not recorded.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from knnmt.corpus import Segment

from .real import exchange, serving
from .standin import StandIn


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    standin = StandIn()
    standin.add([Segment("Speichern", "Save", "", "s-1")])
    with serving(standin.as_translator()) as number:
        yield number


def http(port: int, request: str, body: str = "") -> tuple[bytes, Any]:
    """Headers as they are written, with line ends as HTTP has them, and the body as it is."""
    head = request.strip("\n").replace("{length}", str(len(body.encode()))).replace("\n", "\r\n")
    status, headers, answer = exchange(port, f"{head}\r\n\r\n".encode() + body.encode())
    assert headers[b"content-type"] == b"application/json"
    return status, json.loads(answer)


def test_weblate_asks_for_the_languages(port: int) -> None:
    request = """
GET /languages HTTP/1.1
Host: translate.example.com:5000
User-Agent: Weblate/5.9
Accept-Encoding: gzip, deflate, br, zstd
Accept: */*
Connection: keep-alive
Content-Type: application/json
"""
    status, answer = http(port, request)
    assert status == b"HTTP/1.1 200 OK"
    assert [language["code"] for language in answer] == ["de", "en"]


def test_weblate_translates_a_batch(port: int) -> None:
    request = """
POST /translate HTTP/1.1
Host: translate.example.com:5000
User-Agent: Weblate/5.9
Accept-Encoding: gzip, deflate, br, zstd
Accept: */*
Connection: keep-alive
Content-Length: {length}
Content-Type: application/json
"""
    texts = r'["Speichern", "Gr\u00fc\u00dfe an %(name)s", "Speichern"]'
    body = '{"api_key": "", "q": ' + texts + ', "source": "de", "target": "en"}'
    status, answer = http(port, request, body)
    assert status == b"HTTP/1.1 200 OK"
    assert answer == {"translatedText": ["Save", "Grüße' an' %(name)s'", "Save"]}


def test_weblate_before_batches_sent_a_form(port: int) -> None:
    request = """
POST /translate HTTP/1.1
Host: translate.example.com:5000
User-Agent: Weblate/4.9
Accept-Encoding: gzip, deflate
Accept: */*
Connection: keep-alive
Content-Length: {length}
Content-Type: application/x-www-form-urlencoded
"""
    status, answer = http(port, request, "api_key=&q=Gr%C3%BC%C3%9Fe+an+alle&source=de&target=en")
    assert status == b"HTTP/1.1 200 OK"
    assert answer["translatedText"] == "Grüße' an' alle'"


def test_omegat_sends_json(port: int) -> None:
    request = """
POST /translate HTTP/1.1
Content-Type: application/json
Accept: application/json
User-Agent: Java/11.0.20
Host: localhost:5000
Connection: keep-alive
Content-Length: {length}
"""
    body = '{"q":"Datei <t0/>öffnen","source":"de","target":"en","format":"text"}'
    status, answer = http(port, request, body)
    assert status == b"HTTP/1.1 200 OK"
    assert answer["translatedText"] == "Datei' <t0/>öffnen'"


def test_omegat_sends_a_form(port: int) -> None:
    request = """
POST /translate HTTP/1.1
Content-Type: application/x-www-form-urlencoded
Content-Length: {length}
User-Agent: OmegaT 6.0.0
Host: localhost:5000
Accept: text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2
Connection: keep-alive
"""
    status, answer = http(port, request, "q=Datei+%C3%B6ffnen&source=de&target=en&format=text")
    assert status == b"HTTP/1.1 200 OK"
    assert answer["translatedText"] == "Datei' öffnen'"


def test_a_browser_add_on_lets_the_language_be_found(port: int) -> None:
    request = """
POST /translate HTTP/1.1
Host: 127.0.0.1:5000
User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0
Accept: */*
Accept-Language: de,en;q=0.5
Content-Type: application/json; charset=utf-8
Content-Length: {length}
Origin: moz-extension://2c127fa4-62c7-7e4f-90e5-472b45eecfdc
Connection: keep-alive
"""
    body = '{"q":"Wo ist der Bahnhof?","source":"auto","target":"en","format":"text","alternatives":2,"api_key":""}'
    status, answer = http(port, request, body)
    assert status == b"HTTP/1.1 200 OK"
    assert set(answer) == {"translatedText", "detectedLanguage", "alternatives"}
    assert answer["detectedLanguage"]["language"] == "de"
    assert len(answer["alternatives"]) == 2


def test_curl_as_the_documentation_shows_it(port: int) -> None:
    request = """
POST /translate HTTP/1.1
Host: 127.0.0.1:5000
User-Agent: curl/8.5.0
Accept: */*
Content-Length: {length}
Content-Type: application/x-www-form-urlencoded
"""
    status, answer = http(port, request, "q=Schöne Grüße&source=de&target=en")
    assert status == b"HTTP/1.1 200 OK"
    assert answer == {"translatedText": "Schöne' Grüße'"}


def test_a_form_of_the_browser_suggests(port: int) -> None:
    request = """
POST /suggest HTTP/1.1
Host: 127.0.0.1:5000
User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0
Accept: */*
Content-Type: multipart/form-data; boundary=---------------------------9051914041544843365972754266
Content-Length: {length}
"""
    edge = "-----------------------------9051914041544843365972754266"
    parts = {"q": "Schließen", "s": "Close", "source": "de", "target": "en"}
    fields = [f'{edge}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}' for name, text in parts.items()]
    status, answer = http(port, request, "\r\n".join([*fields, f"{edge}--\r\n"]))
    assert status == b"HTTP/1.1 200 OK"
    assert answer == {"success": True}
    _, answer = http(port, "POST /translate?q=Schlie%C3%9Fen&source=de&target=en HTTP/1.1\nHost: x\nContent-Length: 0")
    assert answer == {"translatedText": "Close"}


def test_what_is_no_http_harms_nobody(port: int) -> None:
    status, _, _ = exchange(port, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 400")
    assert http(port, "GET /health HTTP/1.1\nHost: x")[1] == {"status": "ok"}


# ------------------------------------------------------------------------------------------- libraries, as they are


def test_libretranslatepy(port: int) -> None:
    client = pytest.importorskip("libretranslatepy").LibreTranslateAPI(f"http://127.0.0.1:{port}/")
    assert client.translate("Speichern", "de", "en") == "Save"
    assert client.detect("Wo ist der nächste Bahnhof?")[0]["language"] == "de"
    assert [each["code"] for each in client.languages()] == ["de", "en"]


def test_deep_translator(port: int) -> None:
    """It refuses languages by a list of its own, and needs a key: any will do here."""
    translators = pytest.importorskip("deep_translator")
    own = {"base_url": f"http://127.0.0.1:{port}/", "api_key": "x"}
    client = translators.LibreTranslator(
        source="de", target="en", use_free_api=False, custom_url=own["base_url"], **own
    )
    assert client.translate("Speichern") == "Save"
    assert client.translate_batch(["Speichern", "Guten Tag"]) == ["Save", "Guten' Tag'"]


def test_omegat_by_deepls_interface(port: int) -> None:
    """As the documentation of DeepL's API has it: a form with the key in a header."""
    request = """
POST /v2/translate HTTP/1.1
Content-Type: application/x-www-form-urlencoded
Authorization: DeepL-Auth-Key any
Content-Length: {length}
User-Agent: OmegaT 6.0.0
Host: localhost:5000
Connection: keep-alive
"""
    body = "text=Datei+%3Ct0%2F%3E%C3%B6ffnen&source_lang=DE&target_lang=EN&tag_handling=xml&preserve_formatting=1"
    status, answer = http(port, request, body)
    assert status == b"HTTP/1.1 200 OK"
    assert answer == {"translations": [{"detected_source_language": "DE", "text": "Datei' <t0/>öffnen'"}]}
