"""Shortlists: a search over a sentence's own list is one over the whole vocabulary, renormalised over that list."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from knnmt.align.bitext import Bitext, Links
from knnmt.align.fastalign import train
from knnmt.align.links import symmetrise
from knnmt.align.settings import AlignSettings
from knnmt.decode import beam
from knnmt.decode.beam import Hypothesis, search
from knnmt.errors import DataError, UsageError
from knnmt.model.checkpoint import FAMILIES, convert, load
from knnmt.model.lexicon import LEAST, Lexicon, LexiconSettings
from knnmt.model.linear import Precision
from knnmt.model.shortlist import Shortlists
from knnmt.model.tokenizer import SpecialTokens
from knnmt.model.transformer import States, Transformer

from ..conftest import END, PAD, TAG, VOCABULARY

Ragged = tuple[Tensor, Tensor]
LISTED = 40  # target types per source type


@pytest.fixture(autouse=True, params=["compiled", "plain"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps in compiled loops, and by torch, as until those are ready."""
    monkeypatch.setattr(beam, "compiled", lambda states: request.param == "compiled")


def special_of(family: str) -> SpecialTokens:
    prefix = (TAG,) if family in ("m2m_100", "mbart") else ()
    return SpecialTokens(END, END, PAD, prefix, forced_end=family != "m2m_100", banned=(PAD,))


def random_lexicon(types: int, seed: int = 0) -> Lexicon:
    """Each source type has as many random target types."""
    rng = np.random.default_rng(seed)
    rows = [np.sort(rng.choice(VOCABULARY, LISTED, replace=False)) for _ in range(types)]
    offsets = np.arange(types + 1) * LISTED
    frequent = np.array([11, 12, 13], np.int32)
    return Lexicon("", offsets, np.concatenate(rows).astype(np.int32), frequent, np.ones(types, np.uint8))


def lists(lexicon: Lexicon, ids: Tensor, mask: Tensor, special: SpecialTokens) -> Tensor:
    """The plain truth about which tokens each sentence may give. (B, V)."""
    own = torch.zeros(len(ids), VOCABULARY, dtype=torch.bool)
    for row, (some, there) in enumerate(zip(ids.tolist(), mask.tolist(), strict=True)):
        tokens = {special.start, special.end, special.pad, *special.prefix, *lexicon.frequent.tolist()}
        for token in (token for token, real in zip(some, there, strict=True) if real):
            tokens |= {token, *lexicon.targets[lexicon.offsets[token] : lexicon.offsets[token + 1]].tolist()}
        own[row, list(tokens)] = True
    return own


class Renormalised:
    """The oracle: with the whole vocabulary, log p is renormalised over the list of each sentence (B, V)."""

    static = False
    normalises = False

    def __init__(self, own: Tensor) -> None:
        self.own = own

    def mix(self, states: States, logits: Tensor, normaliser: Tensor | None, over: Tensor) -> Tensor:
        logits.masked_fill_(~self.own[:, None], -torch.inf)
        return logits.logsumexp(dim=-1)

    def keep(self, rows: Tensor) -> None:
        self.own = self.own[rows]


def made(hf: Any, precision: Precision = "float32") -> tuple[Transformer, SpecialTokens, Shortlists]:
    model = convert(hf, FAMILIES[hf.config.model_type])
    special = special_of(hf.config.model_type)
    lexicon = random_lexicon(model.architecture.source_vocabulary)
    head = model.projection
    return model, special, Shortlists(lexicon, special, head.weight, head.bias, precision)


def same(found: list[list[Hypothesis]], expected: list[list[Hypothesis]]) -> None:
    for some, others in zip(found, expected, strict=True):
        assert [each.tokens for each in some] == [each.tokens for each in others]
        assert [each.score for each in some] == pytest.approx([each.score for each in others], abs=1e-4)


@pytest.mark.parametrize("beams", [1, 4])
def test_a_search_over_lists_is_that_over_the_vocabulary_renormalised(hf: Any, ragged: Ragged, beams: int) -> None:
    ids, mask = ragged
    model, special, shortlists = made(hf)
    options: dict[str, Any] = {"beams": beams, "n_best": beams, "early_stopping": beams == 1}
    with torch.inference_mode():
        encoded, limits = model.encode(ids, mask), [30] * len(ids)
        shortlist = shortlists.of(ids, mask)
        assert shortlist is not None
        assert len(shortlist.tokens) < VOCABULARY
        oracle = Renormalised(lists(shortlists.lexicon, ids, mask, special))
        found = search(model, encoded, special, limits, shortlist=shortlist, **options)
        same(found, search(model, encoded, special, limits, lookup=oracle, **options))
        whole = search(model, encoded, special, limits, **options)
    assert [each[0].tokens for each in found] != [each[0].tokens for each in whole]  # or the lists cut nothing


@pytest.mark.parametrize("beams", [1, 4])
def test_a_translation_does_not_depend_on_the_lists_of_others(tiny: Any, ragged: Ragged, beams: int) -> None:
    ids, mask = ragged
    model, special, shortlists = made(tiny("marian"))
    options: dict[str, Any] = {"beams": beams, "early_stopping": beams == 1}
    with torch.inference_mode():
        together = search(
            model, model.encode(ids, mask), special, [30] * len(ids), shortlist=shortlists.of(ids, mask), **options
        )
        for row in range(len(ids)):
            alone = ids[row : row + 1, mask[row]], mask[row : row + 1, mask[row]]
            own = shortlists.of(*alone)
            same(search(model, model.encode(*alone), special, [30], shortlist=own, **options), [together[row]])


def test_a_list_of_everything_is_the_vocabulary(tiny: Any, ragged: Ragged) -> None:
    ids, mask = ragged
    model, special, shortlists = made(tiny("marian"))
    every = replace(shortlists.lexicon, frequent=np.arange(VOCABULARY, dtype=np.int32))
    shortlist = Shortlists(every, special, model.projection.weight, model.projection.bias, "float32").of(ids, mask)
    with torch.inference_mode():
        encoded = model.encode(ids, mask)
        found = search(model, encoded, special, [30] * len(ids), beams=2, shortlist=shortlist)
        same(found, search(model, encoded, special, [30] * len(ids), beams=2))


def test_int8_and_lists_go_together(tiny: Any, ragged: Ragged) -> None:
    ids, mask = ragged
    model, special, shortlists = made(tiny("marian"), "int8")
    model.pack("int8")
    with torch.inference_mode():
        encoded = model.encode(ids, mask)
        oracle = Renormalised(lists(shortlists.lexicon, ids, mask, special))
        found = search(model, encoded, special, [30] * len(ids), beams=2, shortlist=shortlists.of(ids, mask))
        same(found, search(model, encoded, special, [30] * len(ids), beams=2, lookup=oracle))


def test_a_type_that_was_hardly_seen_needs_the_whole_vocabulary(tiny: Any, ragged: Ragged) -> None:
    ids, mask = ragged
    *_, shortlists = made(tiny("marian"))
    shortlists.lexicon.trusted[ids[4, 1]] = 0
    assert shortlists.of(ids, mask) is None
    pieces = [row[there].tolist() for row, there in zip(ids, mask, strict=True)]
    safe, others = shortlists.split(pieces)
    assert 4 in others
    assert sorted(safe + others) == list(range(len(pieces)))
    assert shortlists.of(ids[safe], mask[safe]) is not None
    assert shortlists.split([pieces[number] for number in safe]) == [list(range(len(safe)))]


# ------------------------------------------------------------------------------------------------------ the lexicon


def test_a_lexicon_has_the_most_frequent_links_of_each_type() -> None:
    pairs = [([3, 4], [7, 8])] * 3 + [([3, 4], [9, 8])] * 2 + [([3, 5], [10, 8])]  # 5 is there once
    bitext = Bitext.from_pairs(pairs)
    ends = np.tile(np.array([0, 1], np.int32), 6)
    links = Links(ends, ends, np.arange(7) * 2)
    lexicon = Lexicon.count(bitext, links, "digest", 6, LexiconSettings(per_type=2, frequent=1))
    rows = [lexicon.targets[first:last].tolist() for first, last in pairwise(lexicon.offsets)]
    assert rows == [[], [], [], [7, 9], [8], [8]]
    assert lexicon.frequent.tolist() == [8]
    assert LEAST == 2
    assert lexicon.trusted.tolist() == [0, 0, 0, 1, 1, 0]
    assert lexicon.trusts([3, 4])
    assert not lexicon.trusts([3, 5])
    assert lexicon.coverage([([3, 4], [7, 10, 8, 4]), ([3, 5], [11])]) == 4 / 5  # 10 is not in the list of 3 and 4


def test_counting_in_blocks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    bitext = Bitext.from_pairs([(rng.integers(3, 9, 5).tolist(), rng.integers(3, 9, 6).tolist()) for _ in range(40)])
    aligner = train(bitext, AlignSettings())
    links = symmetrise(bitext, *aligner.best(bitext))
    whole = Lexicon.count(bitext, links, "", 9, LexiconSettings(per_type=3))
    monkeypatch.setattr("knnmt.csr.BLOCK_SIZE", 7)
    parts = Lexicon.count(bitext, links, "", 9, LexiconSettings(per_type=3))
    assert whole.targets.tolist() == parts.targets.tolist()


def test_a_lexicon_is_read_as_it_was_written(tmp_path: Path) -> None:
    lexicon = random_lexicon(20)
    lexicon.save(tmp_path / "lexicon")
    again = Lexicon.load(tmp_path / "lexicon")
    for name in ("offsets", "targets", "frequent", "trusted"):
        np.testing.assert_array_equal(getattr(again, name), getattr(lexicon, name))


def test_files_that_are_no_lexicon_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "lexicon"
    with pytest.raises(UsageError, match="no such shortlist file"):
        Lexicon.load(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(DataError, match="corrupt shortlist file"):
        Lexicon.load(path)
    random_lexicon(20).save(path)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(DataError, match="corrupt shortlist file"):
        Lexicon.load(path)
    broken = random_lexicon(20)
    broken.offsets[3] = 5000
    broken.save(path)
    with pytest.raises(DataError, match="inconsistent arrays"):
        Lexicon.load(path)


def test_a_model_refuses_the_lexicon_of_another_vocabulary(model_folder: Any, tmp_path: Path) -> None:
    folder, path = model_folder("marian"), tmp_path / "lexicon"
    loaded = load(folder, langs="de-en", device="cpu")
    sizes = loaded.transformer.architecture.source_vocabulary, loaded.transformer.architecture.target_vocabulary
    empty = np.zeros(0, np.int32)
    own = Lexicon(
        loaded.tokenizer.fingerprint, np.zeros(sizes[0] + 1, np.int64), empty, empty, np.zeros(sizes[0], np.uint8)
    )
    own.save(path)
    assert load(folder, langs="de-en", device="cpu", shortlist=path).shortlists is not None
    long = np.arange(sizes[1] // 2 + 1, dtype=np.int32)
    Lexicon(own.vocabulary, own.offsets, empty, long, own.trusted).save(path)
    assert load(folder, langs="de-en", device="cpu", shortlist=path).shortlists is None  # not worth it
    Lexicon("other", own.offsets, empty, empty, own.trusted).save(path)
    with pytest.raises(DataError, match="made for another vocabulary"):
        load(folder, langs="de-en", device="cpu", shortlist=path)
    Lexicon(own.vocabulary, own.offsets, empty, np.array([sizes[1]], np.int32), own.trusted).save(path)
    with pytest.raises(DataError, match="made for another vocabulary"):
        load(folder, langs="de-en", device="cpu", shortlist=path)
