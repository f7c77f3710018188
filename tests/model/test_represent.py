"""States of a corpus: batched by length, equal to one pair at a time, in the right places."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from knnmt.errors import DataError
from knnmt.model.checkpoint import Model, load
from knnmt.model.represent import batches, represent

PAIRS = [
    ("der Hund läuft.", "the dog runs."),
    ("das Haus", "the house in the big garden and the small tree."),
    ("ein Baum im Garten und die Katze schläft im Haus und sieht der Hund.", "a tree"),
    ("die Katze", ""),
]


@pytest.fixture(params=["marian", "m2m_100", "fsmt"])
def model(request: pytest.FixtureRequest, model_folder: Callable[[str], Path]) -> Model:
    return load(model_folder(request.param), langs="de-en")


def encoded(model: Model) -> list[tuple[list[int], list[int]]]:
    sources = model.tokenizer.encode_source([source for source, _ in PAIRS])
    targets = model.tokenizer.encode_target([target for _, target in PAIRS])
    return list(zip(sources, targets, strict=True))


@pytest.mark.parametrize("key", ["ffn_input", "output"])
@pytest.mark.parametrize("batch_tokens", [1, 40, 4096])
def test_batches_equal_one_pair_at_a_time(model: Model, key: Any, batch_tokens: int) -> None:
    pairs, special = encoded(model), model.special
    seen: list[int] = []
    for batch in represent(model, pairs, key=key, batch_tokens=batch_tokens):
        sources = batch.source.split([len(pairs[row][0]) for row in batch.rows])
        targets = batch.target.split([len(pairs[row][1]) + 1 for row in batch.rows])
        for row, source, target in zip(batch.rows, sources, targets, strict=True):
            ids = torch.tensor([pairs[row][0]])
            alone = model.transformer.encode(ids, torch.ones_like(ids, dtype=torch.bool))
            given = torch.tensor([[special.start, *special.prefix, *pairs[row][1]]])
            states = model.transformer.force(given, alone).key(key)[0, len(special.prefix) :]
            torch.testing.assert_close(source, alone.states[0], atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(target, states, atol=1e-5, rtol=1e-5)
        seen += batch.rows
    assert sorted(seen) == list(range(len(PAIRS)))


def test_the_state_of_a_position_predicts_its_token(model: Model) -> None:
    """Projected, state j gives the model's own probabilities of token j: nothing is shifted."""
    pairs = encoded(model)
    (batch,) = represent(model, pairs[:1], key="output")
    source, target = (torch.tensor([ids]) for ids in pairs[0])
    special = model.special
    given = torch.cat((torch.tensor([[special.start, *special.prefix]]), target), dim=1)
    whole = model.transformer.force(given, model.transformer.encode(source, torch.ones_like(source, dtype=torch.bool)))
    expected = model.transformer.logits(whole.output)[0, -1 - target.size(1) :]
    torch.testing.assert_close(model.transformer.logits(batch.target), expected, atol=1e-5, rtol=1e-5)
    assert len(batch.target) == target.size(1) + 1  # the end is predicted too


def test_the_vocabulary_is_never_projected(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def projected(*_: object) -> None:
        raise AssertionError("the projection was computed")

    monkeypatch.setattr(type(model.transformer), "logits", projected)
    assert sum(len(batch.rows) for batch in represent(model, encoded(model))) == len(PAIRS)


def test_a_pair_that_is_too_long_is_refused(model: Model) -> None:
    with pytest.raises(DataError, match="pair 2 has 100 source and 1 target tokens, but the model has 6"):
        next(represent(model, [([5, 2], [6]), ([5] * 100, [6])]))


def test_batches_hold_similar_lengths_and_no_more_than_asked() -> None:
    lengths = [3, 50, 4, 3, 20, 19, 1, 200, 5]
    made = list(batches(lengths, 60))
    assert sorted(index for batch in made for index in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= 60 for batch in made)
    assert made[0] == [7]  # longer than allowed, so it stands alone
    assert [4, 5] in [batch[:2] for batch in made]
