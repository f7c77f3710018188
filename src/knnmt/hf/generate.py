"""Retrieval as a logits processor of `generate()`."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor, nn

from knnmt.errors import UsageError
from knnmt.hf.taps import Recorded
from knnmt.hf.wrap import Wrapped
from knnmt.model.transformer import States
from knnmt.retrieval.session import Retriever, SentenceLookup
from knnmt.retrieval.tuned import Tuned, chosen_for
from knnmt.store.store import Store
from knnmt.systems.settings import RetrievalSettings


class _Step(Recorded):
    """The state of a `generate()` call in this thread."""

    lookup: SentenceLookup | None = None
    source: Tensor | None = None  # the encoder states (B, S, d) that the lookup was made for
    decoded: Tensor | None = None  # the same, repeated for each beam, as the decoder last read them
    logits: Tensor | None = None  # (R, 1, V) of the last step, R = B·K rows


class Retrieval:
    """A logits processor that mixes p_kNN into `generate()`: greedy, beam search or sampling.

    >>> with Retrieval(wrap(model, tokenizer, "de-en"), store) as retrieval:
    ...     search = {"num_beams": 5, "length_penalty": retrieval.length_penalty}
    ...     model.generate(**inputs, **search, logits_processor=[retrieval])

    Without `settings` it uses those that the store was tuned to, as `Translator` does. The hooks stay until the `with`
    block ends, over any number of calls.
    """

    def __init__(
        self, model: Wrapped, store: str | Path | Store, settings: RetrievalSettings | Tuned | None = None
    ) -> None:
        store = store if isinstance(store, Store) else Store.open(store)
        store.check(model)
        self.model = model
        chosen = chosen_for(store, None, settings)
        self.retriever = Retriever(store, model.device, chosen.settings, gate=chosen.gate)
        self._step, self._depth = _Step(), 0
        self._hooks = ExitStack()

    @property
    def length_penalty(self) -> float:
        """What beam search needs with this store, as `Translator` has it: `generate()` does not ask a processor."""
        return self.retriever.length_penalty(self.model.transformer.hf.generation_config.length_penalty or 1.0)

    def __enter__(self) -> Self:
        if self._depth == 0:
            network = self.model.transformer
            self._step = _Step()
            self._hooks = network.record(self._step)
            for handle in (
                network.encoder.register_forward_hook(self._after_encoder, with_kwargs=True),
                network.hf.register_forward_pre_hook(self._before_model, with_kwargs=True),
                network.hf.register_forward_hook(self._after_model),
            ):
                self._hooks.callback(handle.remove)
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._hooks.close()
            self._step = _Step()

    @torch.no_grad()
    def _after_encoder(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], found: Any) -> None:
        """Select the candidates of each sentence from the store."""
        given = dict(zip(("input_ids", "attention_mask"), args, strict=False)) | kwargs
        ids, mask = given.get("input_ids"), given.get("attention_mask")
        step, states = self._step, found[0].detach()
        step.lookup = step.decoded = None
        if ids is not None:
            mask = torch.ones_like(ids) if mask is None else mask
            step.lookup = self.retriever.look(ids, mask.bool(), states)
            step.source, step.wanted = states, True

    def _before_model(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Drop the lookup if it was made for another source."""
        step, given = self._step, kwargs.get("encoder_outputs")
        if given is None or given[0] is step.decoded or step.source is None:
            return
        beams = max(1, len(given[0]) // len(step.source))
        if not torch.equal(given[0][::beams], step.source):
            step.lookup = None
        step.decoded = given[0]

    def _after_model(self, module: nn.Module, args: tuple[Any, ...], found: Any) -> None:
        self._step.logits = found.logits[:, -1:].detach()

    @torch.no_grad()
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (R, V) with p_MT replaced by λ·p_kNN + (1 − λ)·p_MT.

        Scores may be logits or log-probabilities, changed by other processors: log p − log p_MT is added to either.
        Banned tokens stay banned, and a forced token stays forced.
        """
        lookup, states, logits = self._take()
        base = logits.log_softmax(dim=-1)  # before other processors ban tokens
        mixed = base.clone()
        normaliser = lookup.mix(states, mixed, torch.zeros_like(base[:, :, 0]))
        change = (mixed - normaliser[:, :, None] - base).flatten(0, 1)
        banned = scores == -torch.inf
        forced = (~banned).sum(dim=1, keepdim=True) == 1
        return torch.where(banned | forced | ~change.isfinite(), scores, scores + change)

    def _take(self) -> tuple[SentenceLookup, States, Tensor]:
        """The lookup, states (B, K, d) and logits (B, K, V) in float32 of this step, once."""
        step = self._step
        if self._depth == 0:
            raise UsageError("retrieval is not active: call generate() inside the `with` block")
        if step.lookup is None or step.source is None:
            raise UsageError(
                "no encoder pass for the source of this generate(): pass input_ids, or the encoder_outputs made last "
                "inside the `with` block"
            )
        if step.logits is None:
            raise UsageError("assisted decoding is not supported: generate() scores several tokens in one step")
        logits, step.logits = step.logits, None
        batch = len(step.source)
        ffn_input, output = (each[:, -1].unflatten(0, (batch, -1)) for each in step.take())
        return step.lookup, States(ffn_input, output), logits[:, -1].float().unflatten(0, (batch, -1))
