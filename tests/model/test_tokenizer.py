"""Marian texts are tokenized without the layers around SentencePiece: the ids are those of transformers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.model.checkpoint import load
from knnmt.model.tokenizer import PLAIN, Tokenizer

MARKS = st.sampled_from(
    ["</s>", "<pad>", "<unk>", ">>de<<", ">>", "<<", "▁", " ", "\u00a0", "ß", "%s", "𝒳", "狗", "Haus"]
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return load(device="cpu").tokenizer


@given(texts=st.lists(st.lists(st.one_of(MARKS, st.text(max_size=4)), max_size=8).map("".join), max_size=4))
def test_ids_and_texts_are_those_of_transformers(tokenizer: Tokenizer, texts: list[str]) -> None:
    hf, plain = tokenizer._hf, [tokenizer._plain(text) for text in texts]
    assert tokenizer._marian is not None
    assert tokenizer.encode_source(texts) == [hf(text, **PLAIN)["input_ids"] for text in plain]
    targets = tokenizer.encode_target(texts)
    assert targets == [hf(text_target=text, add_special_tokens=False, **PLAIN)["input_ids"] for text in plain]
    for ids in targets:
        assert tokenizer._decoded(ids) == hf.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@given(ids=st.lists(st.integers(0, 7999), max_size=12))
def test_any_ids_have_the_text_that_transformers_gives_them(tokenizer: Tokenizer, ids: list[int]) -> None:
    expected = tokenizer._hf.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    assert tokenizer._decoded(ids) == expected


def test_a_tokenizer_that_behaves_otherwise_is_asked_itself(tokenizer: Tokenizer) -> None:
    class MarianTokenizer(type(tokenizer._hf)):  # type: ignore[misc]
        def _tokenize(self, text: str) -> list[str]:
            return ["x", *super()._tokenize(text)]

    hf = tokenizer._hf
    try:
        hf.__class__ = MarianTokenizer
        other = Tokenizer(hf, tokenizer.source, tokenizer.target)
        assert other._marian is None
        assert other.encode_source(["a"]) == hf(["a"], **PLAIN)["input_ids"]
    finally:
        hf.__class__ = MarianTokenizer.__mro__[1]
