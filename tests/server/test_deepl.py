"""DeepL's API, as DeepL's own Python client speaks it."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deepl
import httpx
import pytest
from deepl.api_data import MultilingualGlossaryDictionaryEntries
from starlette.testclient import TestClient

from knnmt.server import caller_glossaries
from knnmt.server.access import add_key
from knnmt.server.caller_glossaries import CallerGlossaries, CallerGlossary, parse_entries
from knnmt.server.people import Caller

from .conftest import Serve
from .real import serving
from .standin import StandIn

Port = tuple[int, str, str]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Port]:
    """A server with two keys."""
    deepl.http_client.max_network_retries = 0
    keys = tmp_path_factory.mktemp("keys") / "keys"
    first, second = add_key(keys, "first"), add_key(keys, "second")
    with serving(StandIn().as_translator(), keys=keys) as number:
        yield number, first, second


@pytest.fixture
def client(port: Port) -> deepl.DeepLClient:
    return deepl.DeepLClient(port[1], server_url=f"http://127.0.0.1:{port[0]}")


@pytest.fixture
def other(port: Port) -> deepl.DeepLClient:
    return deepl.DeepLClient(port[2], server_url=f"http://127.0.0.1:{port[0]}")


def text_of(found: Any) -> str:
    assert isinstance(found, deepl.TextResult)
    return found.text


def test_a_text_is_translated(client: deepl.DeepLClient) -> None:
    found = client.translate_text("Guten Morgen", source_lang="DE", target_lang="EN-US")
    assert isinstance(found, deepl.TextResult)
    assert (found.text, found.detected_source_lang, found.billed_characters) == ("Guten' Morgen'", "DE", 12)


def test_texts_come_in_lists_and_their_language_is_found(client: deepl.DeepLClient) -> None:
    found = client.translate_text(["Wo ist der Bahnhof?", "", "Where is the station?"], target_lang="en-gb")
    assert isinstance(found, list)
    assert [each.text for each in found] == ["Wo' ist' der' Bahnhof?'", "", "Where is the station?"]
    assert [each.detected_source_lang for each in found] == ["DE", "DE", "EN"]


def test_what_has_no_effect_is_accepted(client: deepl.DeepLClient) -> None:
    found = client.translate_text(
        "ja", source_lang="DE", target_lang="EN-US", context="Ein Zug.", split_sentences="nonewlines",
        preserve_formatting=True, formality="prefer_more", outline_detection=False, splitting_tags=["p"],
        non_splitting_tags="b,i", model_type="quality_optimized",
    )  # fmt: skip
    assert isinstance(found, deepl.TextResult)
    assert (found.text, found.model_type_used) == ("ja'", "latency_optimized")


def test_tags_stay_around_their_words(client: deepl.DeepLClient) -> None:
    def translated(text: str, kind: str, **more: Any) -> str:
        return text_of(client.translate_text(text, source_lang="DE", target_lang="EN-US", tag_handling=kind, **more))

    assert translated("<p>Das ist <b>ein Haus</b>.</p>", "html") == "<p>Das' ist' <b>ein' Haus.</b>'</p>"
    assert translated("Hier &amp; <b>dort</b>", "xml") == "Hier' &amp;' <b>dort'</b>"
    kept = translated('Datei <x id="6"></x> öffnen', "xml", ignore_tags="x")
    assert kept == """Datei' <x id="6"></x>' öffnen'"""
    document = "<doc>\n<title>Ein Titel</title>\n<p>Ein <i>Satz</i>.</p><br/></doc>"
    assert translated(document, "xml") == "<doc>\n<title>Ein' Titel'</title>\n<p>Ein' <i>Satz.</i>'</p><br/></doc>"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target_lang": "XX"}, "Value for 'target_lang' not supported."),
        ({"target_lang": "DE"}, "Value for 'target_lang' not supported."),
        ({"source_lang": "FR"}, "Value for 'source_lang' not supported."),
        ({"formality": "more"}, "'formality' is not supported for given 'target_lang'."),
        ({"formality": "polite"}, "Value for 'formality' not supported."),
        ({"tag_handling": "markdown"}, "Value for 'tag_handling' not supported."),
        ({"split_sentences": "maybe"}, "Value for 'split_sentences' not supported."),
        ({"glossary": "00000000-0000-0000-0000-000000000000"}, "Glossary not found"),
        (
            {"tag_handling": "xml", "text": "<b>offen"},
            "Tag handling parsing failed, please check input: text:1: invalid XML",
        ),
    ],
)
def test_refusals_are_in_deepls_words(client: deepl.DeepLClient, given: dict[str, Any], said: str) -> None:
    asked: dict[str, Any] = {"text": "ja", "source_lang": "DE", "target_lang": "EN-US"} | given
    with pytest.raises(deepl.DeepLException, match=said.replace("'", ".")):
        client.translate_text(asked.pop("text"), **asked)


def test_keys_are_checked(port: Port) -> None:
    stranger = deepl.DeepLClient("nonsense", server_url=f"http://127.0.0.1:{port[0]}")
    with pytest.raises(deepl.AuthorizationException):
        stranger.translate_text("ja", target_lang="EN-US")
    with pytest.raises(deepl.AuthorizationException):
        stranger.get_usage()
    with pytest.raises(deepl.AuthorizationException):
        stranger.list_glossaries()


def test_languages_and_usage(client: deepl.DeepLClient, other: deepl.DeepLClient) -> None:
    assert [(each.code, each.name) for each in client.get_source_languages()] == [("DE", "German")]
    targets = [(each.code, each.name, each.supports_formality) for each in client.get_target_languages()]
    assert targets == [("EN-GB", "English (British)", False), ("EN-US", "English (American)", False)]
    before, others = client.get_usage().character.count, other.get_usage().character.count
    client.translate_text("fünf!", source_lang="DE", target_lang="EN-US")
    assert before is not None
    assert client.get_usage().character.count == before + 5
    assert other.get_usage().character.count == others
    assert not client.get_usage().any_limit_reached
    assert [(each.source_lang, each.target_lang) for each in client.get_glossary_languages()] == [("de", "en")]


def test_glossaries_are_made_used_and_deleted(client: deepl.DeepLClient, other: deepl.DeepLClient) -> None:
    made = client.create_glossary("mine", "DE", "EN-US", {"Konto": "account", "Bank": "bank"})
    assert (made.name, made.source_lang, made.target_lang, made.entry_count, made.ready) == (
        "mine",
        "DE",
        "EN",
        2,
        True,
    )
    assert client.get_glossary(made.glossary_id).creation_time == made.creation_time
    assert made.glossary_id in [each.glossary_id for each in client.list_glossaries()]
    assert client.get_glossary_entries(made) == {"Konto": "account", "Bank": "bank"}
    found = client.translate_text("mein Konto", source_lang="DE", target_lang="EN-US", glossary=made)
    assert text_of(found) == "mein' account"
    assert text_of(client.translate_text_with_glossary("Konto", made)) == "account"
    for refused in (other.get_glossary, other.get_glossary_entries, other.delete_glossary):
        with pytest.raises(deepl.GlossaryNotFoundException):
            refused(made.glossary_id)
    assert made.glossary_id not in [each.glossary_id for each in other.list_glossaries()]
    client.delete_glossary(made)
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_glossary(made.glossary_id)


def test_a_glossary_comes_as_csv_too(client: deepl.DeepLClient) -> None:
    made = client.create_glossary_from_csv("csv", "DE", "EN", 'Konto,account\n"Haus, Hof","house, yard",de,en\n')
    assert client.get_glossary_entries(made) == {"Konto": "account", "Haus, Hof": "house, yard"}


def test_multilingual_glossaries(client: deepl.DeepLClient) -> None:
    terms = MultilingualGlossaryDictionaryEntries("DE", "EN", {"Konto": "account"})
    made = client.create_multilingual_glossary("several", [terms])
    assert [(each.source_lang, each.target_lang, each.entry_count) for each in made.dictionaries] == [("DE", "EN", 1)]
    more = MultilingualGlossaryDictionaryEntries("DE", "EN", {"Bank": "bench", "Konto": "ledger"})
    client.update_multilingual_glossary_dictionary(made, more)
    content = client.get_multilingual_glossary_entries(made, "DE", "EN").dictionaries[0]
    assert str(content.entries) == "Konto\tledger\nBank\tbench"
    replaced = MultilingualGlossaryDictionaryEntries("DE", "EN", {"Bank": "bank"})
    assert client.replace_multilingual_glossary_dictionary(made, replaced).entry_count == 1
    client.update_multilingual_glossary_name(made, "renamed")
    assert client.get_multilingual_glossary(made.glossary_id).name == "renamed"
    assert "renamed" in [each.name for each in client.list_multilingual_glossaries()]
    found = client.translate_text("Bank", source_lang="DE", target_lang="EN-US", glossary=made)
    assert text_of(found) == "bank"
    client.delete_multilingual_glossary_dictionary(made, source_lang="DE", target_lang="EN")
    with pytest.raises(deepl.DeepLException, match="Dictionary not found"):
        client.get_multilingual_glossary_entries(made, "DE", "EN")
    client.delete_multilingual_glossary(made)
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_multilingual_glossary(made.glossary_id)


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ("Konto account", "line 1 has no target"),
        ("Konto\taccount\nBank\t", "line 2 has an empty term"),
        ("Konto\ta\nKonto\tb", "line 2 repeats"),
        ("a\tb\tc", "line 1 has too many columns"),
        ("x" * 300 + "\tb", "longer than 200"),
    ],
)
def test_entries_that_are_none_are_refused(port: Port, entries: str, said: str) -> None:
    body = {"name": "x", "source_lang": "de", "target_lang": "en", "entries": entries, "entries_format": "tsv"}
    sent = {"Authorization": f"DeepL-Auth-Key {port[1]}"}
    answer = httpx.post(f"http://127.0.0.1:{port[0]}/v2/glossaries", json=body, headers=sent)
    assert answer.status_code == 400
    assert said in answer.json()["message"]
    answer = httpx.post(f"http://127.0.0.1:{port[0]}/v2/glossaries", json=body | {"target_lang": "fr"}, headers=sent)
    assert answer.json() == {"message": "Unsupported glossary source and target language pair"}


def test_a_document_is_translated(client: deepl.DeepLClient, other: deepl.DeepLClient) -> None:
    glossary = client.create_glossary("document", "DE", "EN", {"Konto": "account"})
    out = io.BytesIO()
    content = b'msgid "mein Konto"\nmsgstr ""\n'
    handle = client.translate_document_upload(
        content, filename="x.po", source_lang="DE", target_lang="EN-US", glossary=glossary
    )
    status = client.translate_document_get_status(handle)
    while not status.done:
        assert status.ok
        status = client.translate_document_get_status(handle)
    client.translate_document_download(handle, out)
    assert b"mein' account" in out.getvalue()
    with pytest.raises(deepl.DeepLException, match="Not found"):
        other.translate_document_get_status(handle)
    with pytest.raises(deepl.DeepLException, match="Not found"):
        client.translate_document_get_status(deepl.DocumentHandle(handle.document_id, "x"))
    with pytest.raises(deepl.DeepLException, match="format"):
        client.translate_document_upload(b"\x00\x01", filename="x.bin", source_lang="DE", target_lang="EN-US")


def test_forms_and_missing_fields(serve: Serve) -> None:
    client: TestClient = serve()
    answer = client.post("/v2/translate", content="text=ja&text=nein&target_lang=EN&source_lang=de")
    assert [each["text"] for each in answer.json()["translations"]] == ["ja'", "nein'"]
    for body, name in (({"target_lang": "EN"}, "text"), ({"text": ["ja"]}, "target_lang")):
        answer = client.post("/v2/translate", json=body)
        assert (answer.status_code, answer.json()) == (400, {"message": f"Parameter '{name}' not specified."})
    answer = client.post("/v2/translate", content="{", headers={"content-type": "application/json"})
    assert (answer.status_code, set(answer.json())) == (400, {"message"})
    answer = serve(max_body=100).post("/v2/translate", json={"text": ["ja" * 100], "target_lang": "EN"})
    assert (answer.status_code, set(answer.json())) == (400, {"message"})
    limited = serve(rate_limit=1)
    codes = [limited.get("/v2/usage") for _ in range(2)]
    assert [each.status_code for each in codes] == [200, 429]
    assert "retry-after" in codes[1].headers


def test_pages_of_other_origins_make_no_glossaries(serve: Serve) -> None:
    client = serve(host="0.0.0.0")
    body = {"name": "x", "source_lang": "de", "target_lang": "en", "entries": "a\tb", "entries_format": "tsv"}
    assert client.post("/v2/glossaries", data=body, headers={"Origin": "https://x.example"}).status_code == 403
    assert client.get("/v2/glossaries").json() == {"glossaries": []}


def test_glossaries_survive_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mine, yours = Caller("a", id="1"), Caller("b", id="2")
    kept = CallerGlossaries(tmp_path / "glossaries")
    first = kept.put(mine, CallerGlossary.new("one", {("de", "en"): parse_entries("Größe\tsize", "tsv")}))
    second = kept.put(mine, CallerGlossary.new("two", {("de", "en"): parse_entries("a\tb", "tsv")}))
    kept.remove(mine, second.id)
    (tmp_path / "glossaries" / "x.json").write_text("{")
    again = CallerGlossaries(tmp_path / "glossaries")
    assert again.listed(mine) == [first]
    assert again.listed(yours) == []
    assert "x.json is corrupt" in caplog.text


def test_glossaries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caller_glossaries, "MOST", 2)
    monkeypatch.setattr(caller_glossaries, "MOST_TERMS", 3)
    monkeypatch.setattr(caller_glossaries, "CHARACTERS", 20)
    kept, caller = CallerGlossaries(), Caller("a", id="1")
    made = [kept.put(caller, CallerGlossary.new("x", {("de", "en"): parse_entries("ab\tcd", "tsv")})) for _ in "12"]
    with pytest.raises(Exception, match="Too many glossaries"):
        kept.put(caller, CallerGlossary.new("x", {}))
    kept.put(Caller("b", id="2"), made[0])
    kept.remove(caller, made[1].id)
    with pytest.raises(Exception, match="too large"):
        kept.put(caller, CallerGlossary.new("x", {("de", "en"): parse_entries("a" * 15 + "\tcd", "tsv")}))
    with pytest.raises(Exception, match="more than 3 terms"):
        parse_entries("a\tb\nc\td\ne\tf\ng\th", "tsv")
