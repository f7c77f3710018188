"""Compiled loops give what torch gives, which has the same operations one by one."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from knnmt.decode.kernels import normalise
from knnmt.model.kernels import add_norm, attend_past, attend_source, reorder

SIZE, BEAMS = 12, 3


@pytest.fixture(autouse=True)
def generator() -> None:
    torch.manual_seed(5)


@pytest.mark.parametrize("heads", [2, 8, 12])
@pytest.mark.parametrize("steps", [0, 5, 6])
def test_a_beam_attends_to_its_own_path(heads: int, steps: int) -> None:
    slots, scale, width = torch.tensor([3, 0]), 0.3, heads * SIZE
    keys, values = torch.randn(2, 4, 8, BEAMS, heads, SIZE)
    paths = torch.randint(BEAMS, (2, BEAMS, 8))
    projected = torch.randn(2, BEAMS, 3 * width)
    stored = keys.numpy(), values.numpy()
    found = attend_past(projected, *stored, slots.numpy(), paths.numpy(), steps, scale)
    query, key, value = projected.unflatten(2, (3, heads, SIZE)).unbind(2)
    for sentence in range(2):
        for beam in range(BEAMS):
            place = slots[sentence], torch.arange(steps), paths[sentence, beam, :steps]
            past = keys[place], values[place]
            own = (torch.cat((each, new[sentence, beam, None])) for each, new in zip(past, (key, value), strict=True))
            seen_keys, seen_values = (each.transpose(0, 1) for each in own)
            weights = (query[sentence, beam, :, None] @ seen_keys.transpose(1, 2) * scale).softmax(dim=-1)
            expected = (weights @ seen_values).flatten()
            torch.testing.assert_close(found[sentence, beam], expected, atol=1e-5, rtol=1e-5)
    for each, new in zip(stored, (key, value), strict=True):  # appended where the sentence is
        np.testing.assert_array_equal(each[slots, steps], new)


@pytest.mark.parametrize("heads", [2, 8, 12])
def test_attention_to_the_source_ignores_padding(heads: int) -> None:
    slots, lengths = torch.tensor([2, 1]), torch.tensor([5, 1, 4])
    keys, values = torch.randn(2, 3, heads, 5, SIZE)
    query = torch.randn(2, BEAMS, heads * SIZE)
    of_keys, of_values = (each.transpose(1, 2).unsqueeze(2).contiguous().numpy() for each in (keys, values))
    found = attend_source(query, of_keys, of_values, slots.numpy(), lengths.numpy(), 0.3)
    seen = (torch.arange(5) < lengths[slots][:, None])[:, None, None]
    split = query.unflatten(2, (heads, SIZE)).transpose(1, 2)
    mixed = F.scaled_dot_product_attention(split, keys[slots], values[slots], attn_mask=seen, scale=0.3)
    torch.testing.assert_close(found, mixed.transpose(1, 2).flatten(2), atol=1e-5, rtol=1e-5)


def test_paths_follow_parents() -> None:
    paths, parents = torch.randint(BEAMS, (4, BEAMS, 9)), torch.randint(BEAMS, (4, BEAMS))
    expected = torch.cat((paths[:, :, :6].gather(1, parents[:, :, None].expand(-1, -1, 6)), paths[:, :, 6:]), dim=2)
    reorder(paths.numpy(), parents.numpy(), 6)
    assert torch.equal(paths, expected)


def test_the_norm_of_a_sum() -> None:
    x, branch, weight, bias = (
        torch.randn(2, 3, 24) * 5,
        torch.randn(2, 3, 24),
        torch.randn(24),
        torch.randn(24),
    )
    expected = F.layer_norm(x + branch, (24,), weight, bias, 1e-5)
    torch.testing.assert_close(add_norm(x, branch, weight, bias, 1e-5), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("vocabulary", [1, 63, 1024, 2500])
def test_normalisers_are_those_of_torch(vocabulary: int) -> None:
    logits = torch.randn(2, 3, vocabulary) * 20
    logits[0, 0, 1:] = -torch.inf
    logits[1, 1] += 1000.0
    torch.testing.assert_close(normalise(logits), logits.logsumexp(dim=-1), atol=1e-4, rtol=1e-6)
