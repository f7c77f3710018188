"""A search with terms finds what a slow and plain one finds, however its steps are computed and whatever the batch."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from knnmt.decode import beam
from knnmt.decode.beam import Hypothesis, search
from knnmt.decode.constraint_kernels import MUST_NOT
from knnmt.decode.constraints import LOOSE, Constraints, Edges, Forms, Trie, Wishes
from knnmt.model.checkpoint import FAMILIES, convert

from ..oracle import constraints as oracle
from .test_beam import Ragged, special

RANDOM = np.random.default_rng(0)
EDGES = Edges(RANDOM.random(997) < 0.7, RANDOM.random(997) < 0.3)
GO_ON = next(token for token in range(20, 997) if not EDGES.starts[token])


@pytest.fixture(params=["compiled", "growing", "static"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beam, "compiled", lambda states: request.param == "compiled")
    monkeypatch.setattr(beam, "static", lambda device: request.param == "static")


def forms(*spaced: tuple[int, ...], joined: tuple[tuple[int, ...], ...] = ()) -> Forms:
    return Forms(frozenset(spaced), frozenset(joined))


WISHES = [
    Wishes(((forms((30,)), 1),)),
    Wishes(((forms((31, 32), (31, 32, GO_ON)), 2), (forms((33,), joined=((34, 35),)), 1))),
    Wishes(((forms((40,)), 1), (forms((40, 41)), 1), (forms((500, 501, 502)), 1))),
    Wishes(((forms((60,), (61,)), 1),), forbidden=forms((70,), (71, 72))),
    Wishes(((forms((80, 81)), 1),), prefix=(80, 81, 82), earliest=4, deadline=5),
    Wishes((), forbidden=forms((90,)), prefix=(90, 91)),
]


def constrained(hf: Any, ragged: Ragged, wishes: list[Wishes], limit: int, beams: int) -> list[list[Hypothesis]]:
    model = convert(hf, FAMILIES[hf.config.model_type])
    with torch.inference_mode():
        terms = Constraints(wishes, EDGES, beams, torch.device("cpu"))
        encoded = model.encode(*ragged)
        return search(model, encoded, special(hf), [limit] * len(wishes), beams=beams, constraints=terms)


def plain(hf: Any, ragged: Ragged, row: int, wishes: Wishes, limit: int, beams: int) -> tuple[list[int], float] | None:
    model = convert(hf, FAMILIES[hf.config.model_type])
    ids, mask = ragged[0][row : row + 1], ragged[1][row : row + 1]
    with torch.inference_mode():
        encoded = model.encode(ids, mask)

        def log_p(tokens: list[int]) -> NDArray[np.float64]:
            states = model.force(torch.tensor([[2, *tokens]]), encoded)
            found = model.logits(states.output)[0, -1].double().log_softmax(dim=-1)
            found[1] = -torch.inf  # banned
            return np.asarray(found.numpy())

        return oracle.search(log_p, wishes, EDGES, 2, limit, beams)


def test_it_finds_what_the_plain_search_finds(way: None, tiny: Any, ragged: Ragged) -> None:
    beams = 7
    hf = tiny("marian")
    rows = ragged[0][: len(WISHES)], ragged[1][: len(WISHES)]
    found = constrained(hf, rows, WISHES, 12, beams)
    for row, (sentence, wishes) in enumerate(zip(found, WISHES, strict=True)):
        expected = plain(hf, rows, row, wishes, 12, beams)
        assert expected is not None
        assert list(sentence[0].tokens) == expected[0]
        assert sentence[0].score == pytest.approx(expected[1], abs=1e-4)
        assert expected[0][: len(wishes.prefix)] == list(wishes.prefix)
        reading = oracle.read(expected[0][:-1], wishes, EDGES)
        assert reading is not None
        assert all(have >= need for have, (_, need) in zip(reading.have, wishes.wanted, strict=True))


def test_a_sentence_does_not_depend_on_its_batch(way: None, tiny: Any, ragged: Ragged) -> None:
    hf = tiny("marian")
    rows = ragged[0][: len(WISHES)], ragged[1][: len(WISHES)]
    together = constrained(hf, rows, WISHES, 14, 5)
    for row, wishes in enumerate(WISHES):
        (alone,) = constrained(hf, (rows[0][row : row + 1], rows[1][row : row + 1]), [wishes], 14, 5)
        assert [each.tokens for each in alone] == [each.tokens for each in together[row]]
    assert sum(map(len, together)) >= len(WISHES) - 1


def test_a_term_that_does_not_fit_gives_no_translation(tiny: Any, ragged: Ragged) -> None:
    long = Wishes(((forms(tuple(range(100, 120))), 1),))
    (found,) = constrained(tiny("marian"), (ragged[0][:1], ragged[1][:1]), [long], 10, 4)
    assert found == []


short = st.lists(st.integers(20, 28), min_size=1, max_size=3).map(tuple)
some = st.frozensets(short, max_size=3)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.builds(Forms, some, some), st.integers(1, 2)), min_size=1, max_size=3),
    st.builds(Forms, some, st.just(frozenset())),
    st.lists(st.integers(18, 30), max_size=8),
)
def test_the_trie_reads_tokens_as_the_plain_reading_does(
    wanted: list[tuple[Forms, int]], forbidden: Forms, tokens: list[int]
) -> None:
    wishes = Wishes(tuple(wanted), forbidden).merged()
    trie = Trie(wishes, EDGES)
    ways = trie.ways()
    node, have = LOOSE, [0] * len(wishes.wanted)
    for place, token in enumerate(tokens, start=1):
        if token in trie.tokens:
            node = int(ways[node, trie.tokens.index(token)])
        else:
            node = MUST_NOT if trie.nodes[node].group >= 0 and not EDGES.starts[token] else int(EDGES.loose[token])
        expected = oracle.read(tokens[:place], wishes, EDGES)
        assert (node < 0) == (expected is None)
        if expected is None:
            return
        for group in trie.nodes[node].gains:
            have[group] += 1
        for group in trie.nodes[node].loses:
            have[group] -= 1
        assert have == expected.have


def test_forms_that_are_shared_are_one() -> None:
    wishes = Wishes(((forms((1,)), 1), (forms((2,)), 1), (forms((1,), (2,)), 1), (forms((3,)), 2)))
    assert sorted(count for _, count in wishes.merged().wanted) == [2, 3]
