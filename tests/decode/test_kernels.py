"""Compiled loops give what torch gives, which has the same operations one by one."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from knnmt.loops import powers_of_two
from knnmt.model.kernels import append, attend, norm, reorder
from knnmt.model.normalise import normalise

BEAMS = 3


@pytest.fixture(autouse=True)
def generator() -> None:
    torch.manual_seed(5)


@pytest.mark.parametrize(("heads", "size"), [(2, 12), (8, 32), (12, 6)])
@pytest.mark.parametrize("steps", [0, 5, 6])
def test_a_beam_attends_to_its_own_path(heads: int, size: int, steps: int) -> None:
    slots, scale = torch.tensor([3, 0]), 0.3
    keys, values = torch.randn(2, 4, 8, BEAMS, heads, size)
    paths = torch.randint(BEAMS, (2, BEAMS, 8))
    projected, found = torch.randn(2 * BEAMS, 3, heads, size), torch.empty(2 * BEAMS, heads, size)
    kept = keys.numpy(), values.numpy(), slots.numpy(), paths.numpy(), np.full(4, steps + 1)
    append(0, 2, projected.numpy(), *kept)
    attend(0, 2, projected.numpy(), *kept, np.float32(scale), found.numpy())
    query, key, value = projected.unflatten(0, (2, BEAMS)).unbind(2)
    for stored, new in ((keys, key), (values, value)):  # appended where the sentence is
        assert torch.equal(stored[slots, steps], new)
    assert torch.equal(paths[:, :, steps], torch.arange(BEAMS).expand(2, -1))
    for sentence in range(2):
        for beam in range(BEAMS):
            place = slots[sentence], torch.arange(steps + 1), paths[sentence, beam, : steps + 1]
            seen_keys, seen_values = keys[place].transpose(0, 1), values[place].transpose(0, 1)
            weights = (query[sentence, beam, :, None] @ seen_keys.transpose(1, 2) * scale).softmax(dim=-1)
            expected = (weights @ seen_values)[:, 0]
            torch.testing.assert_close(found[sentence * BEAMS + beam], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("heads", "size"), [(2, 12), (8, 32), (12, 6)])
def test_attention_to_the_source_ignores_padding(heads: int, size: int) -> None:
    slots, lengths = torch.tensor([2, 1]), torch.tensor([5, 1, 4])
    keys, values = torch.randn(2, 3, 5, 1, heads, size)
    query, found = torch.randn(2 * BEAMS, 1, heads, size), torch.empty(2 * BEAMS, heads, size)
    kept = keys.numpy(), values.numpy(), slots.numpy(), np.empty((0, 0, 0), np.int64), lengths.numpy()
    attend(0, 2, query.numpy(), *kept, np.float32(0.3), found.numpy())
    seen = (torch.arange(5) < lengths[slots][:, None])[:, None, None]
    split = query[:, 0].unflatten(0, (2, BEAMS)).transpose(1, 2)
    of_keys, of_values = (each[slots, :, 0].transpose(1, 2) for each in (keys, values))
    mixed = F.scaled_dot_product_attention(split, of_keys, of_values, attn_mask=seen, scale=0.3)
    torch.testing.assert_close(found.unflatten(0, (2, BEAMS)), mixed.transpose(1, 2), atol=1e-5, rtol=1e-5)


def test_paths_follow_parents() -> None:
    paths, parents = torch.randint(BEAMS, (4, BEAMS, 9)), torch.randint(BEAMS, (4, BEAMS))
    expected = torch.cat((paths[:, :, :6].gather(1, parents[:, :, None].expand(-1, -1, 6)), paths[:, :, 6:]), dim=2)
    reorder(paths.numpy(), parents.numpy(), 6)
    assert torch.equal(paths, expected)


def test_a_norm() -> None:
    rows, weight, bias = torch.randn(6, 24) * 5, torch.randn(24), torch.randn(24)
    expected, found = F.layer_norm(rows, (24,), weight, bias, 1e-5), torch.empty(6, 24)
    norm(rows.numpy(), torch.stack((weight, bias)).numpy(), np.float32(1e-5), found.numpy())
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_powers_of_two() -> None:
    exponents = torch.linspace(-130.0, 130.0, 4001)
    found = exponents.clone()
    powers_of_two(found.numpy(), np.empty(len(found), np.int32))
    torch.testing.assert_close(found, exponents.clamp(-126, 126).exp2(), atol=0, rtol=3e-7)
    assert powers_of_two(torch.ones(3).numpy(), np.empty(3, np.int32)) == 6.0


@pytest.mark.parametrize("vocabulary", [1, 63, 1024, 2500])
def test_normalisers_are_those_of_torch(vocabulary: int) -> None:
    logits = torch.randn(2, 3, vocabulary) * 20
    logits[0, 0, 1:] = -torch.inf
    logits[1, 1] += 1000.0
    torch.testing.assert_close(normalise(logits), logits.logsumexp(dim=-1), atol=1e-4, rtol=1e-6)
