"""Our encoder-decoder computes what Hugging Face's computes, for every family."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from knnmt.decode.cache import Cache
from knnmt.decode.paths import PathCache, SourceKeys
from knnmt.model.checkpoint import FAMILIES, convert
from knnmt.model.linear import Linear

Ragged = tuple[Tensor, Tensor]


def targets() -> Tensor:
    ids = torch.randint(8, 900, (12, 9), generator=torch.Generator().manual_seed(5))
    ids[:, 0] = 2
    return ids


@torch.inference_mode()
def test_logits_equal_hugging_face(hf: Any, ragged: Ragged) -> None:
    ids, mask = ragged
    ours = convert(hf, FAMILIES[hf.config.model_type])
    expected = hf(input_ids=ids, attention_mask=mask.long(), decoder_input_ids=targets(), use_cache=False)
    encoded = ours.encode(ids, mask)
    torch.testing.assert_close(encoded.states[mask], expected.encoder_last_hidden_state[mask], atol=1e-5, rtol=1e-5)
    logits = ours.logits(ours.force(targets(), encoded).output)
    torch.testing.assert_close(logits, expected.logits, atol=1e-4, rtol=1e-5)


@torch.inference_mode()
def test_attention_equals_hugging_face(hf: Any, ragged: Ragged) -> None:
    ids, mask = ragged
    if hf.config.model_type != "fsmt":  # which has no other
        hf.set_attn_implementation("eager")
    given = {"input_ids": ids, "attention_mask": mask.long(), "decoder_input_ids": targets()}
    told = hf(**given, use_cache=False, output_attentions=True)
    expected = torch.stack([layer.mean(dim=1) for layer in told.cross_attentions])
    ours = convert(hf, FAMILIES[hf.config.model_type])
    found = ours.attention(targets(), ours.encode(ids, mask))
    assert found.shape == (2, *targets().shape, ids.size(1))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@torch.inference_mode()
def test_steps_equal_teacher_forcing(hf: Any, ragged: Ragged) -> None:
    ours = convert(hf, FAMILIES[hf.config.model_type])
    encoded = ours.encode(*ragged)
    whole = ours.force(targets(), encoded)
    cache = Cache(ours, encoded, beams=1)
    for position in range(targets().size(1)):
        states = ours.step(targets()[:, position : position + 1], torch.tensor([position]), encoded, cache)
        torch.testing.assert_close(states.output[:, 0], whole.output[:, position], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(states.ffn_input[:, 0], whole.ffn_input[:, position], atol=1e-5, rtol=1e-5)
        cache.advance(torch.zeros(12, 1, dtype=torch.int64))


@torch.inference_mode()
@pytest.mark.parametrize("kind", [Cache, PathCache])
def test_a_beam_sees_its_own_past_and_no_other(hf: Any, ragged: Ragged, kind: type[Cache | PathCache]) -> None:
    """Three beams that swap and share parents must equal three targets that were spelled out."""
    ours = convert(hf, FAMILIES[hf.config.model_type])
    ids, mask = ragged
    encoded = ours.encode(ids, mask)
    tokens = torch.randint(8, 900, (40, 12, 3), generator=torch.Generator().manual_seed(1))
    parents = torch.randint(0, 3, (40, 12, 3), generator=torch.Generator().manual_seed(2))
    cache, source = kind(ours, encoded, 3), SourceKeys(encoded) if kind is PathCache else encoded
    spelled = torch.zeros(12, 3, 0, dtype=torch.int64)
    for position in range(40):  # long enough for the cache to grow
        spelled = torch.cat((spelled, tokens[position][:, :, None]), dim=2)
        cache.reserve(position)
        states = ours.step(tokens[position], torch.tensor([position]), source, cache)
        cache.advance(parents[position])
        if position in (0, 1, 5, 39):
            for beam in range(3):
                expected = ours.force(spelled[:, beam], encoded).output[:, -1]
                torch.testing.assert_close(states.output[:, beam], expected, atol=2e-5, rtol=1e-5)
        spelled = spelled.gather(1, parents[position][:, :, None].expand_as(spelled))


@torch.inference_mode()
def test_ffn_input_is_what_the_last_block_receives(hf: Any, ragged: Ragged) -> None:
    received: list[Tensor] = []
    hf.model.decoder.layers[-1].fc1.register_forward_pre_hook(lambda _, inputs: received.append(inputs[0]))
    ids, mask = ragged
    hf(input_ids=ids, attention_mask=mask.long(), decoder_input_ids=targets(), use_cache=False)
    (theirs,) = received
    if hf.config.model_type == "fsmt":
        theirs = theirs.transpose(0, 1)  # it computes with time first
    ours = convert(hf, FAMILIES[hf.config.model_type])
    states = ours.force(targets(), ours.encode(ids, mask))
    torch.testing.assert_close(states.key("ffn_input"), theirs, atol=1e-5, rtol=1e-5)
    assert states.key("output") is states.output


@torch.inference_mode()
def test_half_precision_stays_close(hf: Any, ragged: Ragged) -> None:
    family = FAMILIES[hf.config.model_type]
    exact = convert(hf, family)
    encoded = exact.encode(*ragged)
    logits = exact.logits(exact.force(targets(), encoded).output)
    half = convert(hf.bfloat16(), family)
    rough = half.logits(half.force(targets(), half.encode(*ragged)).output)
    assert rough.dtype == torch.float32
    assert torch.corrcoef(torch.stack((logits.flatten(), rough.flatten())))[0, 1] > 0.99


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "silu"])
def test_a_packed_matrix_gives_the_same(activation: str) -> None:
    layer = Linear(24, 40, activation)
    torch.nn.init.normal_(layer.weight)
    torch.nn.init.normal_(layer.bias)  # type: ignore[arg-type]
    rows = torch.randn(3, 7, 24)
    with torch.inference_mode():
        expected = layer(rows)
        layer.pack("float32")
        torch.testing.assert_close(layer(rows), expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(layer(rows[0, :1]), expected[0, :1], atol=1e-5, rtol=1e-5)


def test_a_processor_that_cannot_pack_bfloat16_computes_with_it_all_the_same() -> None:
    program = """
import torch
from knnmt.model.linear import Linear
layer = Linear(24, 40, "relu")
torch.nn.init.normal_(layer.weight), torch.nn.init.normal_(layer.bias)
rows = torch.randn(7, 24)
with torch.inference_mode():
    expected = layer(rows)
    layer.to(torch.bfloat16).pack("bfloat16")
    torch.testing.assert_close(layer(rows.bfloat16()).float(), expected, atol=0.2, rtol=0.02)
"""
    old = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}  # what torch takes this processor for
    subprocess.run([sys.executable, "-c", program], env={**os.environ, **old}, check=True, timeout=120)


@torch.inference_mode()
def test_the_encoder_computes_no_padding_on_a_cpu(hf: Any, ragged: Ragged) -> None:
    ours, (ids, mask) = convert(hf, FAMILIES[hf.config.model_type]), ragged
    rows: list[int] = []
    for layer in ours.encoder.layers:
        layer.ffn.register_forward_hook(lambda module, given, out: rows.append(given[0][..., 0].numel()))  # type: ignore
    found = ours.encode(ids, mask)
    assert set(rows) == {int(mask.sum())}
    assert int(mask.sum()) < mask.numel()
    for row in range(3):  # as if alone
        alone = ours.encode(ids[row : row + 1, mask[row]], mask[row : row + 1, mask[row]]).states[0]
        torch.testing.assert_close(found.states[row, mask[row]], alone, atol=1e-5, rtol=1e-5)
