"""Shortlists and retrieval: what a sentence may find is in its list, whatever the lexicon says; the rest is as ever."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.decode.beam import search
from knnmt.model.checkpoint import Model, load
from knnmt.model.lexicon import Lexicon
from knnmt.model.represent import padded
from knnmt.model.transformer import States
from knnmt.retrieval.gate import Purpose
from knnmt.retrieval.session import Retriever, SentenceLookup
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS
from knnmt.translate import TranslateSettings, Translator

from .examples import CPU, built, random_gate

SENTENCES = ["der Hund läuft .", "die Katze sieht das Haus und der Hund schläft im Garten .", "ein Baum", "das Haus"]
SELECTING = [name for name in SYSTEMS if name != "knn"]


@pytest.fixture(scope="module")
def short(model_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model whose lexicon knows no translation of any type but `das`, which it translates by ten tokens."""
    folder, path = model_folder("marian"), tmp_path_factory.mktemp("lexicon") / "lexicon"
    plain = load(folder, device="cpu")
    types = plain.transformer.architecture.source_vocabulary
    known = plain.tokenizer.encode_source(["das"])[0][0]
    targets, counts = np.arange(20, 30, dtype=np.int32), np.arange(types + 1) > known
    trusted = np.ones(types, np.uint8)
    Lexicon(plain.tokenizer.fingerprint, 10 * counts, targets, np.array([5, 6], np.int32), trusted).save(path)
    return load(folder, device="cpu", shortlist=path)


@pytest.fixture(scope="module")
def sealed(short: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(short, tmp_path_factory.mktemp("short")).path


def trusting(system: str) -> RetrievalSettings:
    """Settings that trust a small store."""
    return RetrievalSettings(system=system, k=4, adapt="constant", weight=0.8)


class Truth:
    """The whole vocabulary: what is outside a sentence's list (B, V) has no p_MT, and retrieval is mixed in as ever."""

    static = False
    normalises = False

    def __init__(self, look: SentenceLookup, own: Tensor) -> None:
        self.look, self.own = look, own
        self.cut = 0

    def mix(self, states: States, logits: Tensor, normaliser: Tensor | None, over: Tensor) -> Tensor:
        found = self.look.lookup.neighbours(self.look.query(states))
        listed = self.own[:, None].expand(logits.shape).gather(2, found.tokens)
        assert bool(listed[found.log_p > -torch.inf].all())  # nothing that is found is outside
        self.cut += int((~self.own).sum())
        logits.masked_fill_(~self.own[:, None], -torch.inf)
        return self.look.mix(states, logits, logits.logsumexp(dim=2))

    def keep(self, rows: Tensor) -> None:
        self.own = self.own[rows]
        self.look.keep(rows)


@pytest.mark.parametrize("adapt", ["constant", "learned"])
@pytest.mark.parametrize("system", SELECTING)
def test_retrieval_is_mixed_into_a_list_as_into_the_vocabulary(
    short: Model, store: Datastore, system: str, adapt: Any
) -> None:
    store.add([Segment("ein Baum und ein Garten", "runs sleeps and sees")], short)
    gate = random_gate(Purpose(system, store.manifest.key, store.manifest.metric)) if adapt == "learned" else None
    settings = RetrievalSettings(system=system, k=4, adapt=adapt, weight=None if gate else 0.8)
    retriever, network = Retriever(store, CPU, settings, gate=gate), short.transformer
    ids, mask = padded(short.tokenizer.encode_source(SENTENCES), short.special.pad, CPU)
    assert short.shortlists is not None
    with torch.inference_mode():
        encoded = network.encode(ids, mask)
        looks = [retriever.look(ids, mask, encoded.states) for _ in range(2)]
        shortlist = short.shortlists.of(ids, mask, looks[0])
        assert shortlist is not None
        own = torch.zeros(len(ids), network.architecture.target_vocabulary, dtype=torch.bool)
        shared = shortlist.tokens[: len(short.shortlists.shared)]
        own[:, shared] = True
        row, place = (shortlist.mask[:, 0] == 0).nonzero(as_tuple=True)
        own[row, shortlist.tokens[len(shared) + place]] = True
        truth, limits = Truth(looks[1], own), [20] * len(ids)
        found = search(network, encoded, short.special, limits, beams=3, lookup=looks[0], shortlist=shortlist)
        expected = search(network, encoded, short.special, limits, beams=3, lookup=truth)
    assert [each[0].tokens for each in found] == [each[0].tokens for each in expected]
    scores = [[each[0].score for each in some] for some in (found, expected)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)
    assert truth.cut > 0


@pytest.mark.parametrize("system", SELECTING)
def test_what_a_sentence_is_offered_does_not_depend_on_the_batch(short: Model, store: Datastore, system: str) -> None:
    retriever = Retriever(store, CPU, trusting(system).model_copy(update={"c": 1, "segments": 1}))

    def offered(texts: list[str]) -> list[set[int]]:
        ids, mask = padded(short.tokenizer.encode_source(texts), short.special.pad, CPU)
        tokens = retriever.look(ids, mask, short.transformer.encode(ids, mask).states).offered()
        assert tokens is not None
        return [set(row) - {-1} for row in tokens.tolist()]

    together = offered(SENTENCES)
    assert together == [offered([text])[0] for text in SENTENCES]
    assert len(min(together, key=len)) < len(max(together, key=len))


def test_any_token_may_be_found_by_knn_so_that_it_has_no_list(short: Model, store: Datastore) -> None:
    retriever = Retriever(store, CPU, RetrievalSettings(system="knn"))
    ids, mask = padded(short.tokenizer.encode_source(SENTENCES), short.special.pad, CPU)
    assert short.shortlists is not None
    assert short.shortlists.of(ids, mask) is not None
    assert short.shortlists.of(ids, mask, retriever.look(ids, mask, short.transformer.encode(ids, mask).states)) is None


@pytest.mark.parametrize("system", SELECTING)
def test_what_was_taught_is_said_though_no_lexicon_knows_it(short: Model, store: Datastore, system: str) -> None:
    source, target = "ein Baum schläft", "Hund Hund Garten groß"  # words of no target of the store
    translator, settings = Translator(short, store, retrieval=trusting(system)), TranslateSettings(exact=False)
    assert translator.translate([source], settings)[0].text != target
    translator.add([Segment(source, target)])
    assert translator.translate([*SENTENCES, source], settings)[-1].text == target


@pytest.mark.parametrize("system", SELECTING)
def test_a_translation_with_a_list_does_not_depend_on_the_batch(short: Model, store: Datastore, system: str) -> None:
    translator, settings = Translator(short, store, retrieval=trusting(system)), TranslateSettings(beam=3, exact=False)
    together = translator.translate(SENTENCES, settings)
    assert [each.tokens for each in together] == [
        translator.translate([text], settings)[0].tokens for text in SENTENCES
    ]
    assert len({each.tokens for each in together}) == len(SENTENCES)
