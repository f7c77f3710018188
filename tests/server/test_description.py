"""What the server says about itself is true: what its description allows is accepted, and nothing else."""

from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from knnmt.server.fields import WRITTEN
from knnmt.server.rights import RIGHTS, methods_of

from .conftest import Serve
from .standin import StandIn
from .team import team

ADA = {"Authorization": "Bearer ada"}
MULTIPART = "multipart/form-data"


@pytest.fixture
def ada(tmp_path: Path) -> Any:
    with TestClient(team(tmp_path), base_url="http://localhost", headers=ADA) as client:
        yield client


def schema(client: TestClient, path: str, kind: str = "application/json") -> Any:
    """The schema of the body of a route."""
    return client.get("/openapi.json").json()["paths"][path]["post"]["requestBody"]["content"][kind]["schema"]


def test_languages_are_those_of_the_server_and_only_its_pairs(ada: TestClient) -> None:
    translate = schema(ada, "/translate")
    assert translate["properties"]["source"]["enum"] == ["de", "en", "auto"]
    assert translate["properties"]["target"]["enum"] == ["en", "de"]
    pairs = [{name: each["enum"] for name, each in kind["properties"].items()} for kind in translate["anyOf"]]
    assert pairs == [{"source": ["de", "auto"], "target": ["en"]}, {"source": ["en", "auto"], "target": ["de"]}]
    deepl = schema(ada, "/v2/translate", MULTIPART)
    assert {"DE", "de", "EN", "EN-GB", "EN-US"} <= set(deepl["properties"]["target_lang"]["enum"])
    assert deepl["anyOf"][0]["properties"]["source_lang"]["enum"] == ["DE", "de", "", None]
    assert "x-l" not in ada.get("/openapi.json").text


def test_limits_are_those_of_the_settings(serve: Serve) -> None:
    client = serve(max_alternatives=3, max_beam=7)
    assert schema(client, "/translate", MULTIPART)["properties"]["alternatives"]["maximum"] == 3
    described = client.get("/openapi.json").json()["components"]["schemas"]
    (asked,) = (each for name, each in described.items() if name.endswith("translation__Asked"))
    assert (
        asked["properties"]["beam"]["anyOf"][0] | {"maximum": 7, "minimum": 1}
        == asked["properties"]["beam"]["anyOf"][0]
    )


def test_after_a_reload_the_description_has_the_new_languages(ada: TestClient) -> None:
    server: Any = ada.app.state.server  # type: ignore[attr-defined]
    assert schema(ada, "/translate")["properties"]["target"]["enum"] == ["en", "de"]
    server.desks.directions = server.desks.directions[:1]
    assert schema(ada, "/translate")["properties"]["target"]["enum"] == ["en"]


def test_what_is_not_there_is_not_found_and_for_other_tools_invalid(ada: TestClient) -> None:
    """A valid request of ours that names what the server does not have is 404; LibreTranslate and DeepL say 400."""
    for body in ({"source": "fr"}, {"source": "de", "target": "de"}, {"system": "magic"}, {"memories": ["nowhere"]},
                 {"source": "en", "target": "de", "memories": ["company"]}):  # fmt: skip
        assert ada.post("/v1/translate", json={"q": "a"} | body).status_code == 404, body
    for path in ("/v1/systems?source=fr", "/v1/matches?q=a&target=fr", "/tmserver/fr/en/unit/a"):
        assert ada.get(path).status_code == 404, path
    sent = {"file": ("a.txt", b"ja")}
    assert ada.post("/v1/files", files=sent, data={"target": "fr"}).status_code == 404
    assert ada.post("/translate_file", files=sent, data={"source": "de", "target": "fr"}).status_code == 400
    assert ada.post("/translate", json={"q": "a", "source": "de", "target": "de"}).status_code == 400
    assert ada.post("/v2/translate", json={"text": ["a"], "target_lang": "FR"}).status_code == 400


def test_a_glossary_that_is_not_there_is_not_found_whatever_else_is_missing(ada: TestClient) -> None:
    asked = {"text": ["ja"], "target_lang": "EN-US", "glossary_id": "none"}
    assert ada.post("/v2/translate", json=asked).status_code == 404
    made = {"name": "x", "source_lang": "de", "target_lang": "en", "entries": "ja\tyes", "entries_format": "tsv"}
    id = ada.post("/v2/glossaries", json=made).json()["glossary_id"]
    assert ada.post("/v2/translate", json=asked | {"glossary_id": id}).status_code == 400  # it needs source_lang
    assert schema(ada, "/v2/translate")["dependentRequired"]["glossary_id"] == ["source_lang"]


def test_a_field_that_takes_one_or_several_says_so(ada: TestClient) -> None:
    fields = schema(ada, "/v2/translate", MULTIPART)["properties"]
    for name in ("text", "ignore_tags", "glossary_ids"):
        assert [kind["type"] for kind in fields[name]["anyOf"]] == ["string", "array"]
    for ignored in ("x,y", ["x", "y"]):
        asked = {"text": "<a>ja</a>", "target_lang": "EN", "source_lang": "DE", "tag_handling": "xml"}
        assert ada.post("/v2/translate", json=asked | {"ignore_tags": ignored}).status_code == 200


def test_a_lesson_of_white_space_is_invalid(client: TestClient, standin: StandIn) -> None:
    for body in (
        {"source": "\u00a0", "target": "a"},
        {"source": "\u0085", "target": "a"},
        {"source": "a", "target": " \n"},
    ):
        answer = client.post("/v1/memory", json=body)
        assert answer.status_code == 400, body
        assert "pattern" in answer.json()["error"]
    assert not standin.store.held


def test_a_form_with_a_file_has_an_example_of_its_name(ada: TestClient) -> None:
    paths = ada.get("/openapi.json").json()["paths"]
    for path in ("/v1/files", "/translate_file", "/v2/document", "/v1/memory/import"):
        form = paths[path]["post"]["requestBody"]["content"][MULTIPART]
        disposition = form["encoding"]["file"]["headers"]["Content-Disposition"]["example"]
        name = disposition.partition('filename="')[2].rstrip('"')
        (example,) = form["schema"]["properties"]["file"]["examples"]
        sent = ada.post(
            path, files={"file": (name, example)}, data={"source": "de", "target": "en", "target_lang": "EN"}
        )
        assert sent.status_code < 300, (path, sent.text)


def test_allow_lists_the_methods_of_each_path(ada: TestClient) -> None:
    assert methods_of("/v1/memory/export") == ["GET", "HEAD", "OPTIONS"]
    assert methods_of("/v1/memory/import") == ["POST", "OPTIONS"]
    assert methods_of("/v1/memory/an id") == ["PUT", "DELETE", "OPTIONS"]
    assert methods_of("/nowhere") == []
    for path in {path for _, path in RIGHTS}:
        place = path.replace("{id:segment}", "x").replace("{file:path}", "page.js").replace("{text:path}", "x")
        place = place.replace("{id}", "x").replace("{name}", "x").replace("{source}", "de").replace("{target}", "en")
        allowed = {method for method, each in RIGHTS if each == path}
        for answer in (ada.options(place), ada.request("TRACE", place)):
            listed = set(answer.headers["allow"].split(", "))
            assert listed - {"HEAD", "OPTIONS"} == allowed, path


def test_a_whole_number_may_have_a_point_and_a_truth_value_is_none(ada: TestClient) -> None:
    assert ada.post("/v1/matches", json={"q": "a", "limit": 5.0}).status_code == 200
    for limit in (5.5, True, "5"):
        assert ada.post("/v1/matches", json={"q": "a", "limit": limit}).status_code == 400, limit


def test_forms_say_which_fields_are_lists_and_what_names_they_have(ada: TestClient) -> None:
    assert schema(ada, "/translate", MULTIPART)["properties"]["q"]["type"] == "string"
    assert "anyOf" in schema(ada, "/translate")["properties"]["q"]
    sent = {"q": "ja", "source": "de", "target": "en", "a\x0fb": "x"}
    assert ada.post("/translate", data=sent).status_code == 400
    part = '--x\r\nContent-Disposition: form-data; name="{}"\r\n\r\nja\r\n'
    body = part.format("a\x0fb") + part.format('file"; filename="a.txt') + "--x--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    assert ada.post("/v1/files", content=body, headers=kind).status_code == 400
    assert ada.post("/v1/files", content=body.replace("\x0f", ""), headers=kind).status_code == 202
    assert schema(ada, "/v1/files", MULTIPART)["properties"]["memories"]["type"] == "string"  # with commas


def test_names_of_fields_are_printable_ascii(ada: TestClient) -> None:
    """As the description says: parsers of forms disagree on other names."""
    sent = {"q": "ja", "source": "de", "target": "en"}
    for name, code in (("größe", 400), ("", 400), ("Size, in bytes", 200)):
        assert ada.post("/translate", data=sent | {name: "x"}).status_code == code, name
    assert ada.post("/v1/files", files={"file": ("a.txt", b"ja")}, data={"größe": "x"}).status_code == 400
    for path in ("/translate", "/v1/files"):
        assert schema(ada, path, MULTIPART)["propertyNames"] == {"pattern": "^[ -~]+$"}


def test_a_term_of_white_space_is_invalid_and_told_with_its_place(ada: TestClient) -> None:
    terms = [{"source": "a", "target": "b"}, {"source": "\r", "target": "b"}]
    answer = ada.post("/v1/translate", json={"q": "a", "glossary": terms})
    assert answer.status_code == 400
    assert answer.json()["error"] == "Invalid request: missing glossary[1].source parameter"
    items = schema(ada, "/v1/files", MULTIPART)["properties"]["glossary"]["items"]
    assert items["properties"]["source"]["pattern"] == WRITTEN


def test_a_caller_who_sends_too_much_at_once_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """429 for what is the caller's own doing, 503 for what others do."""
    monkeypatch.setattr("knnmt.server.imports.MAX_OWN", 0)
    with TestClient(team(tmp_path, max_files=2), base_url="http://localhost") as client:
        theo = {"Authorization": "Bearer theo"}
        refused = client.post("/v1/memory/import", content="<tmx/>", headers=theo)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "30")
        sent = {"file": ("a.txt", b"ja")}
        assert [client.post("/v1/files", files=sent, headers=theo).status_code for _ in range(3)] == [202, 202, 429]
        assert client.post("/v1/files", files=sent, headers=ADA).status_code == 503
        monkeypatch.setattr("knnmt.server.imports.MAX_OWN", 8)
        monkeypatch.setattr("knnmt.server.imports.MAX_WAITING", 0)
        assert client.post("/v1/memory/import", content="<tmx/>", headers=theo).status_code == 503


def test_too_many_glossaries_are_no_fault_of_the_request(ada: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("knnmt.server.caller_glossaries.MOST", 0)
    made = {"name": "x", "source_lang": "de", "target_lang": "en", "entries": "ja\tyes", "entries_format": "tsv"}
    answer = ada.post("/v2/glossaries", json=made)
    assert (answer.status_code, set(answer.json())) == (409, {"message"})
    assert "409" in ada.get("/openapi.json").json()["paths"]["/v2/glossaries"]["post"]["responses"]


def test_an_empty_list_is_no_text_and_no_key(ada: TestClient) -> None:
    answer = ada.post("/translate", json={"q": [], "source": "de", "target": "en"})
    assert (answer.status_code, answer.json()["error"]) == (400, "Invalid request: missing q parameter")
    assert ada.post("/detect", json={"q": "ja", "api_key": []}).status_code == 400
    assert ada.post("/v2/translate", json={"text": ["ja"], "target_lang": "EN", "ignore_tags": []}).status_code == 200


def test_what_may_be_missing_may_be_empty(ada: TestClient) -> None:
    """A browser sends every field of a form, those left blank too."""
    properties = schema(ada, "/v2/translate", MULTIPART)["properties"]
    assert "" in properties["source_lang"]["enum"]
    assert "" in properties["tag_handling"]["enum"]
    assert "" not in properties["target_lang"]["enum"]
    blank = {"text": "Guten Tag, wie geht es dir?", "target_lang": "EN-US", "source_lang": "", "tag_handling": ""}
    assert ada.post("/v2/translate", data=blank).status_code == 200
    assert ada.post("/v2/translate", data=blank | {"target_lang": ""}).status_code == 400
