"""Evidence: the numbers are those of the search, and the texts those of the store."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import knnmt.translate.lines
from knnmt.datastore import Datastore
from knnmt.evidence import Neighbour, TokenEvidence, explain
from knnmt.model.checkpoint import Model, load
from knnmt.model.represent import padded
from knnmt.retrieval.gate import Purpose
from knnmt.retrieval.tuned import Tuned
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS
from knnmt.translate import TranslateSettings, Translation, Translator

from .retrieval.examples import built, random_gate

TEXTS = ["der Hund läuft .", "die Katze sieht das Haus und der Hund schläft im Garten .", "ein Baum", "groß"]
K = 6


@pytest.fixture(scope="module")
def store(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return built(model, tmp_path_factory.mktemp("evidence"))


def translator(model: Model, store: Datastore, system: str = "fast", **settings: Any) -> Translator:
    gate = random_gate(Purpose(system, store.manifest.key, store.manifest.metric))
    chosen = RetrievalSettings(system=system, k=K, c=8, **({"weight": 0.6} | settings))
    return Translator(model, store, retrieval=Tuned(chosen, gate))


def translated(chosen: Translator, texts: list[str], beam: int = 1) -> list[Translation]:
    return chosen.translate(texts, TranslateSettings(beam=beam, length_penalty=1.0, evidence=True, exact=False))


def explained(chosen: Translator, text: str, tokens: tuple[int, ...], most: int) -> tuple[TokenEvidence, ...]:
    assert chosen.retriever is not None
    (source,) = chosen.model.tokenizer.encode_source([text])
    return explain(chosen.model, chosen.retriever, source, tokens, most)


def ids_of(store: Datastore, number: int) -> list[int]:
    begin, end = store.parts[0]["target_offsets"][number : number + 2].tolist()
    ids: list[int] = store.parts[0]["target_ids"][begin:end].tolist()
    return ids


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("adapt", ["constant", "distance", "learned"])
def test_a_translations_score_is_the_product_of_its_tokens_probabilities(
    model: Model, store: Datastore, system: str, beam: int, adapt: str
) -> None:
    chosen = translator(model, store, system, adapt=adapt)
    for text, found in zip(TEXTS, translated(chosen, TEXTS, beam), strict=True):
        assert len(found.evidence) == len(found.tokens)
        limit = min(3 * len(model.tokenizer.encode_source([text])[0]) + 30, 64)
        chosen_freely = found.evidence[:-1] if len(found.tokens) == limit else found.evidence  # then the end is forced
        total = sum(math.log(token.p) for token in chosen_freely)
        assert total == pytest.approx(found.score * len(found.tokens), abs=1e-4)
        for token in found.evidence:
            assert token.p == pytest.approx(token.weight * token.p_knn + (1 - token.weight) * token.p_mt, abs=1e-6)
            assert token.memory == pytest.approx(token.weight * token.p_knn / token.p, abs=1e-6)
            assert 0 <= token.memory <= 1
        assert "".join(token.token for token in found.evidence).split() == found.text.split()


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("adapt", ["distance", "learned"])
def test_p_mt_and_the_weight_are_those_of_the_model_and_the_search(
    model: Model, store: Datastore, system: str, adapt: str
) -> None:
    chosen = translator(model, store, system, adapt=adapt)
    (found,) = translated(chosen, TEXTS[1:2])
    assert chosen.retriever is not None
    ids, mask = padded(model.tokenizer.encode_source(TEXTS[1:2]), model.special.pad, model.device)
    encoded = model.transformer.encode(ids, mask)
    states = model.transformer.force(torch.tensor([[model.special.start, *found.tokens[:-1]]]), encoded)
    logits = model.transformer.logits(states.output)
    before = logits.log_softmax(-1)
    look = chosen.retriever.look(ids, mask, encoded.states)
    after = look.mix(states, logits, logits.logsumexp(-1))
    mixed = (logits - after[:, :, None]).exp()
    neighbours = look.lookup.neighbours(look.view.query(states.key(store.manifest.key)))
    weight = look.weight(neighbours, before, torch.zeros_like(before[:, :, 0]))
    for place, (number, token) in enumerate(zip(found.tokens, found.evidence, strict=True)):
        assert token.p_mt == pytest.approx(before[0, place, number].exp().item(), abs=1e-5)
        assert token.p == pytest.approx(mixed[0, place, number].item(), abs=1e-5)
        assert token.weight == pytest.approx(weight[0, place].item(), abs=1e-5)


@pytest.mark.parametrize("system", SYSTEMS)
def test_shares_of_all_neighbours_make_1_and_those_of_the_token_make_p_knn(
    model: Model, store: Datastore, system: str
) -> None:
    chosen = translator(model, store, system)
    checked = 0
    for text, found in zip(TEXTS, translated(chosen, TEXTS), strict=True):
        every = explained(chosen, text, found.tokens, most=K if system != "similar" else 10_000)  # which has no k
        few = explained(chosen, text, found.tokens, most=2)
        for number, all_of, two in zip(found.tokens, every, few, strict=True):
            assert sum(n.weight for n in all_of.neighbours) == pytest.approx(1, abs=1e-5)
            assert sum(n.weight for n in two.neighbours) <= 1 + 1e-5
            shares = [n.weight for n in all_of.neighbours]
            assert shares == sorted(shares, reverse=True)
            if system != "proto":  # where the count of a prototype matters as well
                assert [n.distance for n in all_of.neighbours] == sorted(n.distance for n in all_of.neighbours)
            assert [n.weight for n in two.neighbours] == pytest.approx(shares[:2])
            places = [places_of(store, model, neighbour) for neighbour in all_of.neighbours]
            if all(len(found) == 1 for found in places):
                checked += 1
                own = [n.weight for n, (at,) in zip(all_of.neighbours, places, strict=True) if at[1] == number]
                assert sum(own) == pytest.approx(all_of.p_knn, abs=1e-5)
    assert checked > 3


def places_of(store: Datastore, model: Model, neighbour: Neighbour) -> list[tuple[int, int]]:
    """Where in its segment a neighbour's text stands, and the tokens there; pieces without text make it unclear."""
    ids = ids_of(store, neighbour.segment)
    pieces = model.tokenizer.cut(ids)
    return [
        (at, ids[at])
        for at in range(len(ids))
        if pieces[at] == neighbour.token and "".join(pieces[:at]) == neighbour.before
    ]


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_neighbour_is_a_token_of_a_segment_of_the_store(model: Model, store: Datastore, system: str) -> None:
    for found in translated(translator(model, store, system), TEXTS):
        for token in found.evidence:
            assert token.neighbours
            for neighbour in token.neighbours:
                segment = store.segment(neighbour.segment)
                assert (neighbour.source, neighbour.origin, neighbour.id) == (
                    segment.source, segment.origin, segment.id,
                )  # fmt: skip
                assert neighbour.target == neighbour.before + neighbour.token + neighbour.after
                assert " ".join(neighbour.target.split()) == model.tokenizer.decode(ids_of(store, neighbour.segment))
                assert places_of(store, model, neighbour)


def test_a_forced_tag_has_no_evidence(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    model = load(model_folder("m2m_100"), langs="de-en", device="cpu")
    chosen = translator(model, built(model, tmp_path))
    for found in translated(chosen, TEXTS[:2], beam=2):
        assert found.tokens[: len(model.special.prefix)] == model.special.prefix
        assert len(found.evidence) == len(found.tokens) - len(model.special.prefix) > 0
        total = sum(math.log(token.p) for token in found.evidence)
        assert total == pytest.approx(found.score * len(found.tokens), abs=1e-3)


def test_without_a_weight_or_without_neighbours_all_is_the_models(model: Model, store: Datastore) -> None:
    for found in translated(translator(model, store, weight=0.0), TEXTS):
        assert all(token.p == token.p_mt and token.memory == 0 for token in found.evidence)
    left_out = range(store.sizes["segments"])
    for found in translated(Translator(model, store, retrieval=RetrievalSettings(k=K), left_out=left_out), TEXTS):
        assert all(token.neighbours == () and token.p_knn == 0 and token.weight == 0 for token in found.evidence)


def test_who_does_not_ask_for_evidence_gets_none_and_pays_nothing(
    model: Model, store: Datastore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("evidence was looked for")

    monkeypatch.setattr(knnmt.translate.lines, "explain", refuse)
    chosen = translator(model, store)
    assert all(found.evidence == () for found in chosen.translate(TEXTS, TranslateSettings(beam=1)))
    with pytest.raises(AssertionError, match="looked for"):
        translated(chosen, TEXTS)
    # base MT has none to give
    assert Translator(model).translate(TEXTS[:1], TranslateSettings(evidence=True))[0].evidence == ()


def test_a_text_in_pieces_has_the_evidence_of_all_pieces_and_an_empty_one_has_none(
    model: Model, store: Datastore
) -> None:
    long = "der Hund läuft im Garten und die Katze schläft im Haus . " * 6
    assert len(model.tokenizer.encode_source([long])[0]) > model.max_source
    whole, empty, space = translated(translator(model, store), [long, "", "  \n"])
    assert len(whole.evidence) == len(whole.tokens)
    ends = [place for place, token in enumerate(whole.tokens) if token == model.special.end]
    assert len(ends) > 1
    assert all(whole.evidence[place].token == "" for place in ends)
    total = sum(math.log(token.p) for token in whole.evidence)
    assert total == pytest.approx(whole.score * len(whole.tokens), abs=1e-3)
    assert empty.evidence == space.evidence == ()
