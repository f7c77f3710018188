"""Words are linked that attend to each other, and tags follow them."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from knnmt import Translator
from knnmt.model.checkpoint import load
from knnmt.model.tokenizer import SpecialTokens
from knnmt.text.words import diagonal, words
from knnmt.translate import word_alignment
from knnmt.translate.word_alignment import WordAligner


def spelt(text: str) -> list[str]:
    return [text[begin:end] for begin, end in words(text)]


def test_words_are_runs_of_letters_and_single_marks() -> None:
    assert spelt("Klicken Sie, z.B., auf „Speichern“ (2.5 %)!") == (
        ["Klicken", "Sie", ",", "z.B", ".", ",", "auf", "„", "Speichern", "“", "(", "2.5", "%", ")", "!"]
    )
    assert spelt("don’t e-mail a_b") == ["don’t", "e-mail", "a_b"]
    assert spelt("我爱Python 3") == ["我", "爱", "Python", "3"]


@given(st.text())
def test_every_character_but_space_is_in_one_word(text: str) -> None:
    assert "".join(spelt(text)) == "".join(letter for letter in text if not letter.isspace())


@given(st.integers(0, 9), st.integers(0, 9))
def test_by_place_every_word_has_a_link_and_none_cross(n: int, m: int) -> None:
    links = diagonal("a " * n, "b " * m)
    if n and m:
        assert {i for i, _ in links} == set(range(n))
        assert {j for _, j in links} == set(range(m))
        assert links == sorted(links, key=lambda link: link[::-1])
    else:
        assert links == []


@pytest.fixture(scope="module", params=["de-en", "en-de"])
def translator(request: pytest.FixtureRequest) -> Translator:
    return Translator(langs=request.param)


TAGGED = {
    "de-en": """
        Datei <b>öffnen</b> | open
        <b>Datei</b> öffnen | file
        Klicken Sie auf <b>Speichern</b>, um die Änderungen zu übernehmen. | save
        Gestern hat <i>der Benutzer</i> das Passwort geändert. | the user
        Möchten Sie die Datei wirklich <em>löschen</em>? | delete
        Weitere Informationen finden Sie in der <a href="/doc">Dokumentation</a>. | documentation
        Die <code>Einstellungen</code> wurden gespeichert. | settings
        Das <b>Kennwort</b> ist zu kurz. | password
        Wählen Sie <b>eine Sprache</b> aus. | a language
        Das Bild konnte <b>nicht</b> geladen werden. | not""",
    "en-de": """
        <b>Open</b> file | öffnen
        Open <b>file</b> | datei
        The user changed <i>the password</i> yesterday. | das passwort
        Do you really want to <em>delete</em> the file? | gelöscht
        See the <a href="/doc">documentation</a> for more information. | dokumentation
        The <code>settings</code> have been saved. | einstellungen
        This field must <strong>not</strong> be empty. | nicht
        The <b>password</b> is too short. | passwort
        Select <b>a language</b>. | eine sprache
        The image could <b>not</b> be loaded. | nicht""",
}


def test_tags_go_around_the_words_that_translate_theirs(translator: Translator) -> None:
    """Without a store. The words are those of the translation without tags."""
    lines = TAGGED[f"{translator.languages.source}-{translator.languages.target}"].strip().splitlines()
    texts, inside = zip(*(line.strip().split(" | ") for line in lines), strict=True)
    found = [each.text for each in translator.translate(texts)]
    assert [re.search("<([a-z]+)[^>]*>(.*)</\\1>", text)[2].lower() for text in found] == list(inside)  # type: ignore[index]
    bare = translator.translate([re.sub("<[^>]+>", "", text) for text in texts])
    assert [re.sub("<[^>]+>", "", text) for text in found] == [each.text for each in bare]


def test_texts_are_aligned_together_as_one_by_one(translator: Translator) -> None:
    """Whatever stands beside them in a batch; what is too long, or empty, is linked by place, or not at all."""
    lines = TAGGED[f"{translator.languages.source}-{translator.languages.target}"].strip().splitlines()
    texts = [re.sub("<[^>]+>", "", line.strip().split(" | ")[0]) for line in lines]
    texts += ["", "OK", " ".join(texts), "lang " * 2000]
    pairs = [(text, found.text) for text, found in zip(texts, translator.translate(texts[:-1]), strict=False)]
    pairs += [(texts[-1], "long"), pairs[0]]
    together = translator.align(pairs)
    assert together == {pair: WordAligner(translator.model)(*pair) for pair in pairs}
    assert len(together) == len(set(pairs))
    assert together[texts[-1], "long"] == diagonal(texts[-1], "long")
    assert all(together[pair] for pair in pairs if pair[0])


def test_nothing_is_aligned_where_nothing_is_left_out(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    def attended(*_: object) -> None:
        raise AssertionError("a pass of the model that nothing needs")

    monkeypatch.setattr(word_alignment, "attended", attended)
    assert translator.translate(["OK.", "Version 3.5.2 (2024)\n", "%s: OK"])
    with pytest.raises(AssertionError):
        translator.translate(["Version <b>2</b> is new."])


@pytest.mark.parametrize("family", ["marian", "fsmt", "m2m_100", "mbart", "nllb"])
def test_every_family_aligns(family: str, model_folder: Callable[[str], Path]) -> None:
    """Each word is linked once at most; what is too long for the model is linked by place."""
    align = WordAligner(load(model_folder(family), device="cpu", langs="de-en"))
    found = align("der große Hund schläft im Garten .", "in garden sleeps the dog .")
    assert found
    assert all(0 <= i < 7 and 0 <= j < 6 for i, j in found)
    assert len({i for i, _ in found}) == len({j for _, j in found}) == len(found)
    assert align("Katze", "") == align("", "cat") == []
    long = "der Hund " * 60
    assert align(long, "the dog") == diagonal(long, "the dog")
    assert align("der Hund", "the dog " * 60) == diagonal("der Hund", "the dog " * 60)


@pytest.mark.parametrize("tagged", [False, True])
def test_a_token_is_linked_by_what_it_reads_and_by_what_it_predicts(tagged: bool) -> None:
    """The lower half of the layers speaks of the token that a position reads, the upper half of the next one."""

    class Network:
        def encode(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            return ids

        def attention(self, ids: torch.Tensor, encoded: torch.Tensor) -> torch.Tensor:
            """Of 4 layers, the lower look at the place of the token that they read, the others at that of the next."""
            tokens = [*ids[0].tolist(), 0]
            weights = torch.zeros(4, 1, ids.size(1), encoded.size(1))
            for layer in range(4):
                for place in range(ids.size(1)):
                    wanted = tokens[place + (layer >= 2)]
                    weights[layer, 0, place, [i for i, token in enumerate(encoded[0].tolist()) if token == wanted]] = 1
            return weights

    special = SpecialTokens(start=90, end=0, pad=91, prefix=(95,) if tagged else ())
    model = SimpleNamespace(special=special, transformer=Network(), device=torch.device("cpu"))
    (found,) = word_alignment.attended(model, [[5, 6, 7, 0]], [[7, 5, 6]])  # type: ignore[arg-type]
    assert found.tolist() == [[0, 0, 4, 0], [4, 0, 0, 0], [0, 4, 0, 0]]
