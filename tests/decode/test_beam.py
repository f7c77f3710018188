"""Search finds the same tokens as Hugging Face's `generate()`, and the same whatever the batch."""

from typing import Any

import pytest
import torch
from torch import Tensor

from knnmt.decode import batches, beam
from knnmt.decode.beam import Hypothesis, search
from knnmt.decode.ranking import top
from knnmt.model.checkpoint import FAMILIES, convert
from knnmt.model.tokenizer import SpecialTokens
from knnmt.model.transformer import States, Transformer

Ragged = tuple[Tensor, Tensor]
GENERATED: dict[tuple[Any, ...], tuple[list[list[int]], list[float]]] = {}


@pytest.fixture(params=["compiled", "growing", "static"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps as on a CPU, compiled or, in half precision, not, and as on a GPU, where they keep their shapes."""
    monkeypatch.setattr(beam, "compiled", lambda states: request.param == "compiled")
    monkeypatch.setattr(beam, "static", lambda device: request.param == "static")
    monkeypatch.setattr(batches, "FEW", 2)  # sentences leave the small batches of tests, too


def special(hf: Any) -> SpecialTokens:
    settings = hf.generation_config
    prefix = settings.forced_bos_token_id
    return SpecialTokens(
        start=2,
        end=2,
        pad=1,
        prefix=() if prefix is None else (prefix,),
        forced_end=settings.forced_eos_token_id is not None,
        banned=(1,),
    )


def translate(hf: Any, ragged: Ragged, *, limit: int = 39, **options: Any) -> list[list[Hypothesis]]:
    model = convert(hf, FAMILIES[hf.config.model_type])
    with torch.inference_mode():
        return search(model, model.encode(*ragged), special(hf), [limit] * len(ragged[0]), **options)


def generated(hf: Any, ragged: Ragged, **options: Any) -> tuple[list[list[int]], list[float]]:
    """What `generate()` gives, without its start token and padding: the same for each way, so that it is asked once."""
    asked = (hf.config.model_type, *sorted(options.items()))
    if asked not in GENERATED:
        GENERATED[asked] = _generated(hf, ragged, **options)
    return GENERATED[asked]


def _generated(hf: Any, ragged: Ragged, **options: Any) -> tuple[list[list[int]], list[float]]:
    ids, mask = ragged
    found = hf.generate(
        input_ids=ids, attention_mask=mask.long(), return_dict_in_generate=True, output_scores=True, **options
    )
    rows = [[token for token in row[1:] if token != 1] for row in found.sequences.tolist()]
    scores = getattr(found, "sequences_scores", None)
    return rows, [] if scores is None else scores.tolist()


def test_greedy_equals_generate(hf: Any, ragged: Ragged) -> None:
    expected, _ = generated(hf, ragged)
    found = translate(hf, ragged, beams=1, early_stopping=True)
    assert [list(best.tokens) for (best,) in found] == expected
    assert len({len(row) for row in expected}) > 3  # texts of several lengths, or nothing is shown


@pytest.mark.parametrize("length_penalty", [0.6, 1.0])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_beam_search_equals_generate(hf: Any, ragged: Ragged, length_penalty: float, early_stopping: bool) -> None:
    options: dict[str, Any] = {"length_penalty": length_penalty, "early_stopping": early_stopping}
    expected, scores = generated(hf, ragged, num_beams=5, num_return_sequences=5, **options)
    found = [best for sentence in translate(hf, ragged, beams=5, n_best=5, **options) for best in sentence]
    assert [list(best.tokens) for best in found] == expected
    assert [best.score for best in found] == pytest.approx(scores, abs=1e-4)
    lengths = [len(best.tokens) ** length_penalty for best in found]
    assert [best.log_p for best in found] == pytest.approx(
        [best.score * n for best, n in zip(found, lengths, strict=True)]
    )


@pytest.mark.parametrize("beams", [1, 5])
def test_the_length_limit_is_that_of_generate(hf: Any, ragged: Ragged, beams: int) -> None:
    expected, _ = generated(hf, ragged, num_beams=beams, max_length=6)
    found = translate(hf, ragged, beams=beams, early_stopping=beams == 1, limit=5)
    assert [list(sentence[0].tokens) for sentence in found] == expected


@pytest.mark.parametrize("beams", [1, 5])
def test_a_sentence_is_translated_as_if_alone(hf: Any, ragged: Ragged, beams: int) -> None:
    ids, mask = ragged
    together = translate(hf, ragged, beams=beams, early_stopping=beams == 1)
    for row in range(len(ids)):
        alone = ids[row : row + 1, mask[row]], mask[row : row + 1, mask[row]]
        ((best, *_),) = translate(hf, alone, beams=beams, early_stopping=beams == 1)
        assert best.tokens == together[row][0].tokens
        assert best.score == pytest.approx(together[row][0].score, abs=1e-4)


def test_each_sentence_has_its_own_limit(hf: Any, ragged: Ragged) -> None:
    limits = list(range(3, 15))
    model = convert(hf, FAMILIES[hf.config.model_type])
    encoded = model.encode(*ragged)
    found = search(model, encoded, special(hf), limits, beams=4)
    for row, limit in enumerate(limits):
        expected = search(model, encoded.keep(torch.tensor([row])), special(hf), [limit], beams=4)
        assert [h.tokens for h in found[row]] == [h.tokens for h in expected[0]]
        assert len(found[row][0].tokens) <= limit


def test_a_limit_leaves_room_for_the_prefix(tiny: Any, ragged: Ragged) -> None:
    found = translate(tiny("mbart"), ragged, limit=1, beams=3, n_best=3, length_penalty=2.0)
    assert all(sentence[0].tokens == (7, 2) for sentence in found)
    assert all(len(sentence) == 1 for sentence in found)  # beams that never ran are no hypotheses


class Recorder:
    """A lookup that changes nothing and remembers the states of the one beam of each sentence."""

    static = False
    normalises = False

    def __init__(self, batch: int) -> None:
        self.rows = list(range(batch))
        self.states: list[list[Tensor]] = [[] for _ in range(batch)]

    def mix(self, states: States, logits: Tensor, normaliser: Tensor | None, over: Tensor) -> Tensor:
        assert normaliser is not None
        own = {row: place for place, row in reversed(list(enumerate(self.rows)))}  # others only fill the batch up
        for row, place in own.items():
            self.states[row].append(states.ffn_input[place, 0].clone())
        return normaliser

    def keep(self, rows: Tensor) -> None:
        self.rows = [self.rows[row] for row in rows.tolist()]


def test_a_lookup_sees_the_state_of_each_step(hf: Any, ragged: Ragged) -> None:
    model = convert(hf, FAMILIES[hf.config.model_type])
    encoded, tokens = model.encode(*ragged), special(hf)
    recorder = Recorder(len(ragged[0]))
    plain = search(model, encoded, tokens, [39] * 12, beams=1, early_stopping=True)
    found = search(model, encoded, tokens, [39] * 12, beams=1, early_stopping=True, lookup=recorder)
    assert found == plain
    for row, (best,) in enumerate(found):
        given = torch.tensor([[tokens.start, *best.tokens[:-1]]])
        forced = model.force(given, encoded.keep(torch.tensor([row]))).ffn_input[0, len(tokens.prefix) :]
        seen = torch.stack(recorder.states[row])[: len(forced)]
        torch.testing.assert_close(seen, forced, atol=2e-5, rtol=1e-5)


class Insist:
    """A lookup that gives all probability to one token until a step, and then to the end."""

    static = False
    normalises = False

    def __init__(self, token: int, steps: int) -> None:
        self.token, self.steps = token, steps

    def mix(self, states: States, logits: Tensor, normaliser: Tensor | None, over: Tensor) -> Tensor:
        assert normaliser is not None
        wanted = self.token if self.steps else 2
        self.steps = max(0, self.steps - 1)
        logits[:, :, wanted] = normaliser + 20.0
        return normaliser + 20.0

    def keep(self, rows: Tensor) -> None:
        pass


def test_a_lookup_decides_but_cannot_revive_what_is_banned(tiny: Any, ragged: Ragged) -> None:
    hf = tiny("marian")
    found = translate(hf, ragged, beams=3, lookup=Insist(token=500, steps=4))
    assert all(sentence[0].tokens == (500, 500, 500, 500, 2) for sentence in found)
    found = translate(hf, ragged, beams=3, lookup=Insist(token=1, steps=4))
    assert not any(1 in hypothesis.tokens for sentence in found for hypothesis in sentence)


@pytest.mark.parametrize("vocabulary", [70, 640, 997, 1280])
def test_top_finds_what_a_full_sort_finds(vocabulary: int) -> None:
    rng = torch.Generator().manual_seed(vocabulary)
    logits = torch.randn(6, 3, vocabulary, generator=rng)
    shift = 3 * torch.randn(6, 3, generator=rng)
    logits[2, :, : vocabulary // 2] = -torch.inf
    scores, at = top(logits, shift, 6)
    expected = (logits + shift[:, :, None]).flatten(1)
    torch.testing.assert_close(scores, expected.sort(dim=1, descending=True).values[:, :6])
    torch.testing.assert_close(expected.gather(1, at), scores)


def test_model_on_one_sentence_of_one_token(hf: Any) -> None:
    """The smallest input there is: a lone end token."""
    model: Transformer = convert(hf, FAMILIES[hf.config.model_type])
    ids = torch.tensor([[2]])
    ((best,),) = search(model, model.encode(ids, torch.ones_like(ids, dtype=torch.bool)), special(hf), [20], beams=4)
    assert 0 < len(best.tokens) <= 20
