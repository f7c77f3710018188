"""Tiny, randomly initialised Hugging Face models of each family: they stand in for those of the hub."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

FAMILY_NAMES = ("marian", "fsmt", "m2m_100", "bart", "mbart")
VOCABULARY, PAD, END, TAG = 997, 1, 2, 7


def tiny_model(family: str, seed: int = 0) -> Any:
    """A model of two layers and width 32 whose outputs are far from ties and end after some tokens."""
    import transformers as t

    shape = {
        "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64,
        "pad_token_id": PAD, "eos_token_id": END, "bos_token_id": 0, "decoder_start_token_id": END,
        "init_std": 0.4, "scale_embedding": family not in ("bart",),
    }  # fmt: skip
    torch.manual_seed(seed)
    match family:
        case "marian":
            model = t.MarianMTModel(t.MarianConfig(vocab_size=VOCABULARY, activation_function="swish", **shape))
        case "fsmt":
            vocabularies = {"src_vocab_size": 333, "tgt_vocab_size": VOCABULARY, "langs": ["de", "en"]}
            model = t.FSMTForConditionalGeneration(t.FSMTConfig(**vocabularies, **shape))
        case "m2m_100":
            model = t.M2M100ForConditionalGeneration(t.M2M100Config(vocab_size=VOCABULARY, **shape))
        case "bart":
            model = t.BartForConditionalGeneration(t.BartConfig(vocab_size=VOCABULARY, **shape))
        case "mbart":
            model = t.MBartForConditionalGeneration(t.MBartConfig(vocab_size=VOCABULARY, **shape))
    decoder = model.model.decoder
    head = decoder.output_projection if family == "fsmt" else model.lm_head
    last = decoder.layer_norm if hasattr(decoder, "layer_norm") else decoder.layers[-1].final_layer_norm
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:  # biases and norms are constant at the start, which would hide mistakes with them
                weight += 0.1 * torch.randn_like(weight)
        end = head.weight[END]
        last.bias += 6.5 * end / end.norm() ** 2  # the end gets likely, so that texts have several lengths
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias += 0.5 * torch.randn(1, VOCABULARY)
    settings = model.generation_config
    settings.bad_words_ids = [[PAD]]
    settings.num_beams, settings.max_length, settings.do_sample = 1, 40, False
    settings.forced_bos_token_id = TAG if family in ("m2m_100", "mbart") else None
    settings.forced_eos_token_id = END if family != "m2m_100" else None
    settings.decoder_start_token_id, settings.pad_token_id, settings.eos_token_id = END, PAD, END
    return model.eval()


@pytest.fixture(params=FAMILY_NAMES)
def hf(request: pytest.FixtureRequest) -> Any:
    """A tiny model of each family in turn."""
    return tiny_model(request.param)


@pytest.fixture
def tiny() -> Callable[..., Any]:
    """Make a tiny model of a given family."""
    return tiny_model


@pytest.fixture
def ragged() -> tuple[torch.Tensor, torch.Tensor]:
    """Source ids (12, 17) of many lengths and their mask."""
    rng = torch.Generator().manual_seed(3)
    lengths = torch.randint(2, 18, (12,), generator=rng)
    lengths[0], lengths[1] = 17, 2
    ids = torch.randint(8, 300, (12, 17), generator=rng)
    mask = torch.arange(17) < lengths[:, None]
    ids[torch.arange(12), lengths - 1] = END
    return ids.masked_fill(~mask, PAD), mask
