"""LibreTranslate's interface, as its clients use it."""

import json

import pytest
from starlette.testclient import TestClient

from knnmt.documents.formats import FORMATS
from knnmt.translate import TranslateSettings, Translation

from .conftest import Serve
from .standin import StandIn

ASKED = {"source": "de", "target": "en"}
GERMAN = "Wir haben heute morgen das alte Haus am Ende der Straße gesehen."
ENGLISH = "This morning we have seen the old house at the end of the street."


def test_a_text_is_translated(client: TestClient) -> None:
    answer = client.post("/translate", json={"q": "Guten Morgen", **ASKED})
    assert answer.status_code == 200
    assert answer.json() == {"translatedText": "Guten' Morgen'"}


def test_texts_are_translated_in_their_order(client: TestClient) -> None:
    answer = client.post("/translate", json={"q": ["eins", "", "zwei drei"], **ASKED})
    assert answer.json() == {"translatedText": ["eins'", "", "zwei' drei'"]}


def test_a_form_means_the_same(client: TestClient) -> None:
    for form in ({"data": {"q": "Grüße", **ASKED}}, {"data": {"q": "Grüße", **ASKED}, "files": {"x": (None, "y")}}):
        answer = client.post("/translate", **form)
        assert answer.json() == {"translatedText": "Grüße'"}, answer.text


def test_a_form_may_hold_bare_utf_8_as_curl_sends_it(client: TestClient) -> None:
    body = "q=Schöne Grüße&source=de&target=en".encode()
    answer = client.post("/translate", content=body, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.json() == {"translatedText": "Schöne' Grüße'"}


def test_lines_and_outer_spaces_stay(client: TestClient) -> None:
    answer = client.post("/translate", json={"q": "  eins zwei\n\n\tdrei \n", **ASKED})
    assert answer.json() == {"translatedText": "  eins' zwei'\n\n\tdrei' \n"}


def test_alternatives_come_when_asked_for(client: TestClient) -> None:
    one = client.post("/translate", json={"q": "eins\nzwei", "alternatives": 2, **ASKED}).json()
    assert one["alternatives"] == ["eins' (2)\nzwei' (2)", "eins' (3)\nzwei' (3)"]
    several = client.post("/translate", json={"q": ["eins", "zwei"], "alternatives": 1, **ASKED}).json()
    assert several["alternatives"] == [["eins' (2)"], ["zwei' (2)"]]


def test_the_language_is_found_and_told(client: TestClient) -> None:
    one = client.post("/translate", json={"q": GERMAN, "source": "auto", "target": "en"}).json()
    assert one["detectedLanguage"]["language"] == "de"
    assert 90 < one["detectedLanguage"]["confidence"] <= 100
    several = client.post("/translate", json={"q": [GERMAN, ENGLISH], "source": "auto", "target": "en"}).json()
    assert [each["language"] for each in several["detectedLanguage"]] == ["de", "en"]
    assert several["translatedText"][1] == ENGLISH  # it is in the target language already


def test_what_could_be_either_language_is_taken_for_the_source(client: TestClient) -> None:
    answer = client.post("/translate", json={"q": "OK", "source": "auto", "target": "en"}).json()
    assert answer["translatedText"] == "OK'"


@pytest.mark.parametrize("code", ["de", "DE", "de-DE", "de_AT"])
def test_codes_are_taken_however_they_are_written(client: TestClient, code: str) -> None:
    assert client.post("/translate", json={"q": "ja", "source": code, "target": "EN"}).status_code == 200


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"q": ""}, "missing q parameter"),
        ({"q": []}, "missing q parameter"),
        ({"q": None}, "missing q parameter"),
        ({"q": 5}, "q: "),
        ({"q": ["a", 5]}, "q: "),
        ({"q": {"a": 1}}, "q: "),
        ({"source": None}, "missing source parameter"),
        ({"target": ""}, "missing target parameter"),
        ({"source": "fr"}, "fr is not supported"),
        ({"target": "fr"}, "fr is not supported"),
        ({"source": "en", "target": "de"}, "German (de) is not available as a target language from English (en)"),
        ({"target": "de"}, "German (de) is not available"),
        ({"format": "pdf"}, "pdf format is not supported"),
        ({"alternatives": "many"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 99}, "Invalid request: alternatives parameter must be <= 8"),
        ({"q": "a\ud800b"}, "lone surrogate"),
        ({"source": "\ud800"}, "source contains a lone surrogate"),
    ],
)
def test_what_cannot_be_meant_is_refused(client: TestClient, change: dict[str, object], said: str) -> None:
    body = json.dumps({"q": "ja", **ASKED} | change).encode()
    answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}
    assert said in answer.json()["error"]


def test_the_languages_are_listed(client: TestClient) -> None:
    files = client.get("/frontend/settings").json()["supportedFilesFormat"]
    assert client.get("/languages").json() == [
        {"code": "de", "name": "German", "targets": ["en"], "supportedFilesFormat": files},
        {"code": "en", "name": "English", "targets": [], "supportedFilesFormat": files},
    ]


def test_a_language_is_detected(client: TestClient) -> None:
    for text, language in ((GERMAN, "de"), (ENGLISH, "en"), ("Où est la bibliothèque, s'il vous plaît ?", "fr")):
        (found,) = client.post("/detect", data={"q": text}).json()
        assert found["language"] == language
        assert 50 < found["confidence"] <= 100
    assert client.post("/detect", data={}).json() == {"error": "Invalid request: missing q parameter"}


def test_what_is_suggested_is_known_to_the_next_translation(client: TestClient, standin: StandIn) -> None:
    for lesson in ("Save", "Store"):  # the second replaces the first
        answer = client.post("/suggest", json={"q": "Speichern", "s": lesson, **ASKED})
        assert answer.json() == {"success": True}
        assert client.post("/translate", json={"q": "Speichern", **ASKED}).json() == {"translatedText": lesson}
    assert len(standin.store) == 1


@pytest.mark.parametrize("change", [{"q": ""}, {"s": ""}, {"s": None}, {"source": "fr"}, {"target": "de"}, {"s": " "}])
def test_a_suggestion_that_is_none_is_refused(client: TestClient, standin: StandIn, change: dict[str, object]) -> None:
    answer = client.post("/suggest", json={"q": "ja", "s": "yes", **ASKED} | change)
    assert answer.status_code == 400
    assert set(answer.json()) == {"error"}
    assert len(standin.store) == 0


def test_a_server_that_only_reads_learns_nothing(serve: Serve, standin: StandIn) -> None:
    client = serve(standin, teach=False)
    assert client.post("/suggest", json={"q": "ja", "s": "yes", **ASKED}).status_code == 403
    assert client.post("/v1/memory", json={"source": "ja", "target": "yes"}).status_code == 403
    assert not client.get("/frontend/settings").json()["suggestions"]
    assert len(standin.store) == 0


def test_health_and_settings(client: TestClient) -> None:
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/frontend/settings").json() == {
        "apiKeys": False,
        "charLimit": 50_000,
        "filesTranslation": True,
        "frontendTimeout": 500,
        "keyRequired": False,
        "language": {"source": {"code": "de", "name": "German"}, "target": {"code": "en", "name": "English"}},
        "suggestions": True,
        "supportedFilesFormat": [suffix for each in FORMATS for suffix in each.suffixes],
    }


def test_tags_of_html_stay_around_their_words(client: TestClient) -> None:
    body = {"q": "<p>Das ist <b>ein Haus</b>.</p><p>Ja &amp; nein</p>", "format": "html", **ASKED}
    assert client.post("/translate", json=body).json() == {
        "translatedText": "<p>Das' ist' <b>ein' Haus.</b>'</p><p>Ja' &amp;' nein'</p>"
    }


def test_html_comes_in_lists_and_with_alternatives(client: TestClient, standin: StandIn) -> None:
    body = {"q": ["<b>eins</b>", "", "<i>zwei</i> <br>"], "format": "html", "alternatives": 1, **ASKED}
    answer = client.post("/translate", json=body).json()
    assert answer["translatedText"] == ["<b>eins'</b>", "", "<i>zwei'</i> <br>"]
    assert [len(each) for each in answer["alternatives"]] == [1, 0, 1]
    assert answer["alternatives"][0][0] == "<b>eins' (2)</b>"
    assert len(standin.batches) == 1


# ------------------------------------------------------------------- what LibreTranslate's own tests of its API check


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/detect"), ("POST", "/languages"), ("POST", "/health"), ("POST", "/spec")]
)
def test_other_methods_answer_405(client: TestClient, method: str, path: str) -> None:
    assert client.request(method, path).status_code == 405


def test_errors_are_in_its_words(client: TestClient) -> None:
    form = {"q": "Hallo", "source": "de", "target": "en", "format": "text"}
    for change, said in (
        ({"target": "zz"}, "zz is not supported"),
        ({"source": "zz"}, "zz is not supported"),
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"source": ""}, "Invalid request: missing source parameter"),
        ({"format": "pdf"}, "pdf format is not supported"),
        ({"alternatives": "x"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": "9"}, "Invalid request: alternatives parameter must be <= 8"),
    ):
        answer = client.post("/translate", data=form | change)
        assert (answer.status_code, answer.json()) == (400, {"error": said})
    assert client.post("/detect").json() == {"error": "Invalid request: missing q parameter"}
    refused = client.post("/translate", json=form | {"alternatives": False})
    assert refused.json() == {"error": "Invalid request: alternatives parameter is not a number"}


def test_fewer_than_no_alternatives_are_none(client: TestClient) -> None:
    form = {"q": "Hallo", "source": "de", "target": "en"}
    assert client.post("/translate", data=form | {"alternatives": "-1"}).json() == {"translatedText": "Hallo'"}
    assert client.post("/translate", json=form | {"alternatives": None}).json() == {"translatedText": "Hallo'"}


def test_alternatives_are_different_from_each_other(client: TestClient, standin: StandIn) -> None:
    def same(text: str, settings: TranslateSettings) -> Translation:
        others = tuple(Translation(word, -1.0) for word in ("yes", "yeah", "yeah", "")[: settings.n_best - 1])
        return Translation("yes", -0.5, (1,), others)

    standin._one = same  # type: ignore[method-assign]
    answer = client.post("/translate", json={"q": "ja", "source": "de", "target": "en", "alternatives": 4}).json()
    assert answer == {"translatedText": "yes", "alternatives": ["yeah"]}
