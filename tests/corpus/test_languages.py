"""A language pair is read from what people write, and tags in files match it as people would expect."""

import pytest

from knnmt.corpus import Languages
from knnmt.corpus.identify import Identifier
from knnmt.errors import UsageError
from knnmt.languages import closeness
from knnmt.model.tokenizer import _choose
from knnmt.server.detection import name_of


@pytest.mark.parametrize(
    ("text", "source", "target"),
    [
        ("de-en", "de", "en"),
        ("DE-EN", "de", "en"),
        ("en-pt-BR", "en", "pt-BR"),
        ("pt-BR-en", "pt-BR", "en"),
        ("pt_br-en", "pt-BR", "en"),
        ("pt-BR-pt-PT", "pt-BR", "pt-PT"),
        ("zh-Hant-TW-en-GB", "zh-Hant-TW", "en-GB"),
        ("es-419-haw", "es-419", "haw"),
        ("deu_Latn-eng_Latn", "deu-Latn", "eng-Latn"),
    ],
)
def test_a_pair_is_read_with_or_without_regions(text: str, source: str, target: str) -> None:
    languages = Languages.parse(text)
    assert (languages.source, languages.target) == (source, target)
    assert str(languages) == f"{source}-{target}"


@pytest.mark.parametrize("text", ["", "de", "german-english", "de>en", "de-en-fr", "en-pt-br", "d-e", "de-en\n"])
def test_what_is_no_pair_is_refused_with_the_way_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match="such as de-en"):
        Languages.parse(text)


@pytest.mark.parametrize("text", ["de-de", "de-DE", "en-en-GB", "pt_BR-pt"])
def test_two_sides_that_no_file_could_tell_apart_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="cannot be told apart"):
        Languages.parse(text)


@pytest.mark.parametrize(
    ("asked", "found", "rank"),
    [
        ("de", "de", 2),
        ("de", "DE", 2),
        ("de", "de-DE", 1),
        ("de", "DE_de", 1),
        ("pt-BR", "pt_br", 2),
        ("pt-BR", "pt", 1),
        ("pt-BR", "pt-PT", 0),
        ("zh-TW", "zh-Hant-TW", 1),
        ("de", "en", 0),
        ("de", "den", 0),
        ("de", "", 0),
        ("de", "de.bak", 0),
    ],
)
def test_tags_match_by_language_and_never_across_regions(asked: str, found: str, rank: int) -> None:
    assert closeness(asked, found) == rank


@pytest.mark.parametrize(
    ("asked", "found", "rank"),
    [
        ("de", "deu", 2),
        ("de", "ger", 2),
        ("he", "iw", 2),
        ("ar", "arb", 2),
        ("zh-Hans", "zho_Hans", 2),
        ("sr-Latn", "sr@latin", 2),
        ("ca", "ca@valencia", 1),
        ("sr-Cyrl", "sr@latin", 0),
        ("nb", "nn", 0),
        ("de", "x", 0),
    ],
)
def test_other_names_of_a_language_are_known(asked: str, found: str, rank: int) -> None:
    assert closeness(asked, found) == rank


@pytest.mark.parametrize(
    ("tag", "code"), [("nb", "no"), ("fil", "tl"), ("deu", "de"), ("iw", "he"), ("zh-Hant-TW", "zh")]
)
def test_the_identifier_knows_languages_by_any_tag(tag: str, code: str) -> None:
    found = Identifier.of(Languages(tag, "en"))
    assert found is not None
    assert found.source == code


@pytest.mark.parametrize(
    ("tag", "code"), [("de", "deu_Latn"), ("ar", "arb_Arab"), ("lv", "lvs_Latn"), ("zh-Hans", "zho_Hans")]
)
def test_a_model_s_own_code_is_found_by_the_usual_tag(tag: str, code: str) -> None:
    assert _choose(tag, ["arb_Arab", "ary_Arab", "deu_Latn", "lvs_Latn", "zho_Hans", "zho_Hant"], "source") == code


@pytest.mark.parametrize(
    ("tag", "name"), [("de", "German"), ("pt-BR", "Portuguese (Brazil)"), ("yo", "Yoruba"), ("xx", "xx")]
)
def test_a_server_names_languages_in_english(tag: str, name: str) -> None:
    assert name_of(tag) == name
