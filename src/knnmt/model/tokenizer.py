"""A model's own tokenizer, with the special tokens and language tags of its family."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Self

from knnmt.errors import UsageError
from knnmt.languages import normal_tag, standard_tag

TAG = re.compile(r"[a-z]{2,3}_[A-Z][A-Za-z]+")  # de_DE of mBART, deu_Latn of NLLB
PLAIN = {"verbose": False, "split_special_tokens": True}  # `</s>` in a text is text: it may be an HTML tag
PROBES = ("Der Hund läuft (sehr) schnell, 12.500 m!", "The dog runs, doesn't it?", "Собака — 狗 \t «x_y»")


@dataclass(frozen=True)
class SpecialTokens:
    """The special tokens of decoding: start, end, pad, forced and banned ones."""

    start: int
    end: int
    pad: int
    prefix: tuple[int, ...] = ()  # forced first tokens: a language tag
    forced_end: bool = True  # force `end` at the length limit; otherwise the text is truncated
    banned: tuple[int, ...] = ()


class Tokenizer:
    """Text to ids and back, for one direction; `source` and `target` are the model's language codes, if it has any."""

    def __init__(self, hf: Any, source: str | None, target: str | None) -> None:
        self._hf = hf
        self._tag = ""
        self.source, self.target = source, target
        self.tag_id: int | None = None  # first token of a translation into the target language
        self._marian = _Marian.of(hf)
        if codes := getattr(hf, "supported_language_codes", None):  # Marian with several targets: a tag in the source
            self._tag = f">>{_choose(target, [code.strip('><') for code in codes], 'target')}<< "
        elif codes := language_codes(hf):
            self.source, self.target = _choose(source, codes, "source"), _choose(target, codes, "target")
            hf.src_lang, hf.tgt_lang = self.source, self.target
            name = getattr(hf, "lang_code_to_token", {}).get(self.target, self.target)
            self.tag_id = int(hf.convert_tokens_to_ids(name))

    def encode_source(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids as the encoder expects them, with tags and `</s>`."""
        if not texts:
            return []
        texts = [self._tag + self._plain(text) for text in texts]
        if self._marian is not None:
            return self._marian.encode_source(texts)
        ids: list[list[int]] = self._hf(texts, **PLAIN)["input_ids"]
        return ids

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of the text alone, without tags and `</s>`."""
        if not texts:
            return []
        if type(self._hf).__name__ == "FSMTTokenizer":
            return [self._fsmt_target(text) for text in texts]
        texts = [self._plain(text) for text in texts]
        if self._marian is not None:
            return self._marian.encode_target(texts)
        ids: list[list[int]] = self._hf(text_target=texts, add_special_tokens=False, **PLAIN)["input_ids"]
        return ids

    def _fsmt_target(self, text: str) -> list[int]:
        """Encode with the target's rules and vocabulary: FSMT's tokenizer supports the source side only."""
        source, self._hf.src_lang = self._hf.src_lang, self._hf.tgt_lang
        try:
            pieces = self._hf.tokenize(text, split_special_tokens=True)
        finally:
            self._hf.src_lang = source
        unknown = self._fsmt_vocabulary[self._hf.unk_token]
        return [self._fsmt_vocabulary.get(piece, unknown) for piece in pieces]

    @cached_property
    def _fsmt_vocabulary(self) -> dict[str, int]:
        return {piece: number for number, piece in self._hf.decoder.items()}

    def _plain(self, text: str) -> str:
        """The text with a space inserted into what would still be parsed as a special token."""
        for token in self._stubborn:
            text = text.replace(token, f"{token[0]} {token[1:]}")
        return text

    @cached_property
    def _stubborn(self) -> list[str]:
        """Special tokens that are ordinary pieces of the vocabulary too, as in mBART."""
        found = []
        for token in self._hf.all_special_tokens:
            ids = self._hf(token, add_special_tokens=False, **PLAIN)["input_ids"]
            if self._hf.convert_tokens_to_ids(token) in ids and len(token) > 1:
                found.append(token)
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of target ids, on one line, without special tokens and incomplete characters."""
        text = self._decoded(ids)
        return " ".join(text.replace("\ufffd", "").split())

    def cut(self, ids: Sequence[int]) -> list[str]:
        """The text that each target id adds to those before it, with spaces; "" for a special token."""
        texts = [
            self._decoded(ids[:end]).rstrip("\ufffd")  # bytes of an incomplete character
            for end in range(len(ids) + 1)
        ]
        return [after[len(before) :] if after.startswith(before) else "" for before, after in pairwise(texts)]

    def _decoded(self, ids: Sequence[int]) -> str:
        if self._marian is not None:
            return self._marian.decode(ids)
        text: str = self._hf.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def tokenize(self, text: str) -> list[str]:
        """The pieces of a source text, as strings, without tags and `</s>`."""
        pieces: list[str] = self._hf.tokenize(text, split_special_tokens=True)
        return pieces

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Source ids as strings."""
        written: list[str] = self._hf.convert_ids_to_tokens(list(ids))
        return written

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the vocabulary, the languages, and the ids of some sample texts."""
        vocabulary = sorted(self._hf.get_vocab().items(), key=lambda item: item[1])
        shown = vocabulary, self.encode_source(PROBES), self.encode_target(PROBES), self.source, self.target
        return blake2b(json.dumps(shown).encode(), digest_size=16).hexdigest()

    @property
    def max_length(self) -> int:
        """Maximum source tokens according to the tokenizer's files (huge if they have no limit)."""
        return int(self._hf.model_max_length)


class _Marian:
    """Marian's SentencePiece models and vocabularies without the tokenizer around them: the same ids and texts, in a
    third of the time."""

    def __init__(self, hf: Any) -> None:
        self._hf, self._end = hf, hf.eos_token_id
        added = hf.get_added_vocab()  # these come first
        self._source = {**hf.encoder, **added}
        self._target = {**(hf.target_encoder if hf.separate_vocabs else hf.encoder), **added}
        self._unknown = hf.encoder[hf.unk_token], self._target[hf.unk_token]
        special = {*hf.all_special_ids}
        self._pieces = {number: piece for number, piece in hf.decoder.items() if number not in special}
        self._special = special
        self._speaks = hf.spm_target if hf.separate_vocabs else hf.spm_source  # as transformers has it

    @classmethod
    def of(cls, hf: Any) -> Self | None:
        """That of a tokenizer; None if this is no Marian tokenizer, or does not do what is expected of one."""
        if type(hf).__name__ != "MarianTokenizer":
            return None
        probes, own = [*PROBES, ">>x<< y", "</s> <pad>", "", " "], cls(hf)
        sources, targets = hf(probes, **PLAIN)["input_ids"], hf(text_target=probes, add_special_tokens=False, **PLAIN)
        same = own.encode_source(probes) == sources and own.encode_target(probes) == targets["input_ids"]
        plain = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
        same = same and all(own.decode(ids) == hf.decode(ids, **plain) for ids in targets["input_ids"])
        return own if same else None

    def encode_source(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids with `</s>`."""
        rows = self._encoded(self._hf.spm_source, self._source, self._unknown[0], texts)
        for row in rows:
            row.append(self._end)
        return rows

    def encode_target(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of the text alone."""
        return self._encoded(self._hf.spm_target, self._target, self._unknown[1], texts)

    def _encoded(self, spm: Any, ids: dict[str, int], unknown: int, texts: Sequence[str]) -> list[list[int]]:
        parts = [self._hf.remove_language_code(text) for text in texts]
        pieces = spm.encode([text for _, text in parts], out_type=str)
        return [
            [ids.get(piece, unknown) for piece in (*tag, *some)] for (tag, _), some in zip(parts, pieces, strict=True)
        ]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of target ids without special tokens."""
        known, named = self._pieces, self._hf.convert_ids_to_tokens  # a model may have more ids than its vocabulary
        pieces = [known.get(number) or named(number) for number in ids if number not in self._special]
        text: str = self._speaks.decode_pieces(pieces)
        return text.replace("▁", " ").strip()


def language_codes(hf: Any) -> list[str]:
    """The language tags of M2M100, NLLB and mBART tokenizers; none for others."""
    if not hasattr(hf, "src_lang"):
        return []
    named = getattr(hf, "lang_code_to_token", None) or [t for t in hf.all_special_tokens if TAG.fullmatch(t)]
    return sorted(named)


def _choose(language: str | None, codes: Sequence[str], side: str) -> str:
    """The model's code for a language: the same, or the only one that matches (`de_DE` or `deu_Latn` for `de`)."""
    if language is None:
        raise UsageError(f"this model has {len(codes)} languages: choose two, such as --langs {codes[0]}-{codes[-1]}")
    wanted = standard_tag(language)
    found = (
        [code for code in codes if normal_tag(code) == normal_tag(language)]
        or [code for code in codes if standard_tag(code) == wanted]
        or [code for code in codes if standard_tag(code).split("-")[0] == wanted]
    )
    if len(found) == 1:
        return found[0]
    shown = ", ".join(found or codes[:12]) + ("" if found or len(codes) <= 12 else ", …")
    raise UsageError(
        f"{side} language {language!r} {'is ambiguous' if found else 'is unknown'} to this model: use one of {shown}"
    )
