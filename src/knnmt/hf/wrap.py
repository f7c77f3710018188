"""A Hugging Face model with its tokenizer, as `Datastore.build` and `Retrieval` take it."""

from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import torch

from knnmt.errors import ModelError
from knnmt.hf.network import Network, check_network
from knnmt.hf.taps import probe_batch
from knnmt.languages import Languages
from knnmt.model.checkpoint import direction, special_tokens
from knnmt.model.tokenizer import SpecialTokens, Tokenizer

MAX_POSITIONS = 1024  # where neither model nor tokenizer has a limit
SAMPLE = 1024  # numbers of each weight that go into a model's fingerprint


@dataclass(frozen=True)
class Wrapped:
    """A Hugging Face model with its tokenizer."""

    name: str
    transformer: Network
    tokenizer: Tokenizer
    special: SpecialTokens
    max_source: int  # maximum source tokens

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        device: torch.device = self.transformer.hf.device
        return device

    @cached_property
    def fingerprint(self) -> str:
        """A hash of samples of each weight: the model may not have files."""
        running = blake2b(repr(self.transformer.architecture).encode(), digest_size=16)
        for name, weight in sorted(self.transformer.hf.state_dict().items()):
            running.update(f"{name} {tuple(weight.shape)} ".encode())
            flat = weight.detach().flatten()
            running.update(flat[:: max(1, flat.numel() // SAMPLE)].float().cpu().numpy().tobytes())
        return running.hexdigest()


class _PrefixTokenizer(Tokenizer):
    """A tokenizer that puts a task prefix before each source."""

    def __init__(self, hf: Any, source: str | None, target: str | None, prefix: str) -> None:
        super().__init__(hf, source, target)
        self._tag = prefix + self._tag


@torch.inference_mode()
def wrap(hf_model: Any, hf_tokenizer: Any, langs: str, *, prefix: str = "") -> Wrapped:
    """Wrap a Hugging Face encoder-decoder and its tokenizer for use with a store. The model itself is not changed.

    `prefix` goes before each source, such as T5's "translate German to English: ".
    """
    config, pair = hf_model.config, Languages.parse(langs)
    if not config.is_encoder_decoder:
        raise ModelError(f"{config.model_type!r} models have no encoder: knnmt needs an encoder-decoder")
    if hf_model.training:
        raise ModelError("the model is in training mode, so its states are random: call model.eval() first")
    tokenizer = _PrefixTokenizer(hf_tokenizer, *direction(pair, config, hf_tokenizer), prefix)
    named = (("decoder_start_token_id",) if tokenizer.tag_id is None else ()) + ("eos_token_id", "pad_token_id")
    for name in named:
        if all(getattr(where, name, None) is None for where in (hf_model.generation_config, config)):
            raise ModelError(f"the model has no {name}: set model.generation_config.{name}")
    special = special_tokens(hf_model, tokenizer, hf_tokenizer)
    positions = int(getattr(config, "max_position_embeddings", None) or min(tokenizer.max_length, MAX_POSITIONS))
    source, target = probe_batch(tokenizer, special, hf_model.device)
    try:
        network = Network(hf_model, positions, source, target)
        check_network(network, source, target)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:  # raised inside transformers
        raise ModelError(f"{type(hf_model).__name__}: teacher forcing failed: {error}") from error
    return Wrapped(
        name=hf_model.name_or_path or type(hf_model).__name__,
        transformer=network,
        tokenizer=tokenizer,
        special=special,
        max_source=min(positions, tokenizer.max_length),
    )
