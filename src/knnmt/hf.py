"""Retrieval inside `model.generate()`: for any Hugging Face encoder-decoder, T5 included, just as it is.

`wrap` shows a model's states, so that a store can be built with it; `Retrieval` is a logits processor that mixes what
the store knows into each step. Both look into the model by hooks, which are there only while they are needed.
"""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers.modeling_outputs import BaseModelOutput

from knnmt.datastore import Datastore
from knnmt.errors import ModelError, UsageError
from knnmt.languages import Languages
from knnmt.model.checkpoint import direction, special_tokens
from knnmt.model.tokenizer import PROBES, SpecialTokens, Tokenizer
from knnmt.model.transformer import Encoded, States
from knnmt.retrieval.session import Retriever, SentenceLookup
from knnmt.retrieval.tuned import Tuned, chosen_for
from knnmt.systems.settings import RetrievalSettings

ROOM = 1024  # tokens of a side, where neither model nor tokenizer says how many
SAMPLE = 1024  # numbers of each weight that go into a model's fingerprint


@dataclass(frozen=True)
class Sizes:
    """The sizes of a network."""

    width: int
    source_vocabulary: int
    target_vocabulary: int
    max_positions: int


class Tap(NamedTuple):
    """A module whose input is a state; `time_first` where it gets that as (T, B, d) and not as (B, T, d)."""

    module: nn.Module
    time_first: bool

    def watch(self, seen: "_Seen", name: str) -> RemovableHandle:
        """Note each input under a name, for the thread that wants it."""

        def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if seen.wanted:
                setattr(seen, name, (inputs[0].transpose(0, 1) if self.time_first else inputs[0]).detach())

        return self.module.register_forward_pre_hook(note)


class _Seen(threading.local):
    """What the hooks of a model noted in this thread, if it wants them to."""

    wanted = False
    ffn_input: Tensor | None = None  # (B, T, d)
    output: Tensor | None = None

    def take(self) -> States:
        """The states (B, T, d), once."""
        assert self.ffn_input is not None
        assert self.output is not None
        states = States(self.ffn_input, self.output)
        self.ffn_input = self.output = None
        return states


class Network:
    """A Hugging Face encoder-decoder that shows its states, as our own network does."""

    def __init__(self, hf: Any, max_positions: int, source: Tensor, target: Tensor) -> None:
        self.hf = hf
        self.first, self.projection, self.architecture = _find(hf, max_positions, source, target)
        self._seen, self._lock, self._users = _Seen(), threading.Lock(), 0
        self._hooks = ExitStack()

    @property
    def encoder(self) -> nn.Module:
        """The encoder as a module."""
        encoder: nn.Module = self.hf.get_encoder()
        return encoder

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the weights."""
        dtype: torch.dtype = self.hf.dtype
        return dtype

    def watch(self, seen: _Seen) -> ExitStack:
        """Have the decoder's states noted until the stack is closed."""
        hooks = ExitStack()
        hooks.callback(self.first.watch(seen, "ffn_input").remove)
        hooks.callback(self.projection.watch(seen, "output").remove)
        return hooks

    def encode(self, ids: Tensor, mask: Tensor) -> Encoded:
        """Encode padded sentences. ids: (B, S) int64; mask: (B, S) bool."""
        encoded = self.encoder(input_ids=ids, attention_mask=mask.long(), return_dict=True)
        return Encoded(encoded.last_hidden_state, mask, None, ())

    def force(self, ids: Tensor, source: Encoded) -> States:
        """States of all positions of targets that are known. ids: (B, T), each the token before its position."""
        with self._forcing():
            self.hf(
                input_ids=ids,  # not read, since the source is encoded; but FSMT masks the future only if it is there
                attention_mask=source.mask.long(),
                encoder_outputs=BaseModelOutput(last_hidden_state=source.states),
                decoder_input_ids=ids,
                use_cache=False,
            )
            return self._seen.take()

    @contextmanager
    def _forcing(self) -> Iterator[None]:
        """Hooks for as long as any thread is inside; a model is shared by the threads of a build."""

        def nothing(module: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
            return (inputs[0][:, :0], *inputs[1:]) if self._seen.wanted else None  # nobody reads these logits

        with self._lock:
            if self._users == 0:
                self._hooks = self.watch(self._seen)
                self._hooks.callback(self.projection.module.register_forward_pre_hook(nothing).remove)
            self._users += 1
        self._seen.wanted = True
        try:
            yield
        finally:
            self._seen.wanted = False
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._hooks.close()


@dataclass(frozen=True)
class Wrapped:
    """A Hugging Face model with its tokenizer, as `Datastore.build` and `Retrieval` take it."""

    name: str
    transformer: Network
    tokenizer: Tokenizer
    special: SpecialTokens
    max_source: int  # the most source tokens it takes

    @property
    def device(self) -> torch.device:
        """Where it runs."""
        device: torch.device = self.transformer.hf.device
        return device

    @cached_property
    def fingerprint(self) -> str:
        """Tells these weights from any others, by samples of each; there may be no files."""
        running = blake2b(repr(self.transformer.architecture).encode(), digest_size=16)
        for name, weight in sorted(self.transformer.hf.state_dict().items()):
            running.update(f"{name} {tuple(weight.shape)} ".encode())
            flat = weight.detach().flatten()
            running.update(flat[:: max(1, flat.numel() // SAMPLE)].float().cpu().numpy().tobytes())
        return running.hexdigest()


class _Tokenizer(Tokenizer):
    """A tokenizer that puts a task's name before each source."""

    def __init__(self, hf: Any, source: str | None, target: str | None, prefix: str) -> None:
        super().__init__(hf, source, target)
        self._tag = prefix + self._tag


@torch.inference_mode()
def wrap(hf_model: Any, hf_tokenizer: Any, langs: str, *, prefix: str = "") -> Wrapped:
    """Make a store's model of a Hugging Face encoder-decoder and its tokenizer.

    `prefix` goes before each source, such as T5's "translate German to English: ". The model itself is not changed.
    """
    config, pair = hf_model.config, Languages.parse(langs)
    if not config.is_encoder_decoder:
        raise ModelError(f"a {config.model_type!r} model has no encoder: knnmt needs one that encodes a source text")
    if hf_model.training:
        raise ModelError("the model is being trained, so that its states are random: call model.eval() first")
    tokenizer = _Tokenizer(hf_tokenizer, *direction(pair, config, hf_tokenizer), prefix)
    named = (("decoder_start_token_id",) if tokenizer.tag_id is None else ()) + ("eos_token_id", "pad_token_id")
    for name in named:
        if all(getattr(where, name, None) is None for where in (hf_model.generation_config, config)):
            raise ModelError(f"the model's settings lack {name}: set model.generation_config.{name}")
    special = special_tokens(hf_model, tokenizer, hf_tokenizer)
    room = getattr(config, "max_position_embeddings", None) or min(tokenizer.max_length, ROOM)
    source, target = _probe(tokenizer, special, hf_model.device)
    try:
        network = Network(hf_model, int(room), source, target)
        _check(network, source, target)
    except (AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:  # of transformers' own code
        raise ModelError(f"{type(hf_model).__name__} cannot be run on a known target: {error}") from error
    return Wrapped(
        name=hf_model.name_or_path or type(hf_model).__name__,
        transformer=network,
        tokenizer=tokenizer,
        special=special,
        max_source=min(int(room), tokenizer.max_length),
    )


# -------------------------------------------------------------------------------------------------------- generate


class _Step(_Seen):
    """Where a `generate()` stands in this thread."""

    lookup: SentenceLookup | None = None
    source: Tensor | None = None  # the states (B, S, d) that the lookup was made for
    decoded: Tensor | None = None  # the same, once for each beam, as the decoder was seen to read them
    logits: Tensor | None = None  # (R, 1, V) of the last step, R rows: the beams of each sentence side by side


class Retrieval:
    """A logits processor that mixes what a store knows into `generate()`, greedy, beam search or sampling.

    >>> with Retrieval(wrap(model, tokenizer, "de-en"), store) as retrieval:
    ...     model.generate(**inputs, num_beams=5, logits_processor=[retrieval])

    Without `settings`, those that the store was tuned to are used, as `Translator` does. It looks into the model until
    the `with` block ends, over any number of calls.
    """

    def __init__(
        self, model: Wrapped, store: str | Path | Datastore, settings: RetrievalSettings | Tuned | None = None
    ) -> None:
        store = store if isinstance(store, Datastore) else Datastore.open(store)
        store.check(model)
        self.model = model
        chosen = chosen_for(store, None, settings)
        self.retriever = Retriever(store, model.device, chosen.settings, gate=chosen.gate)
        self._step, self._depth = _Step(), 0
        self._hooks = ExitStack()

    def __enter__(self) -> Self:
        if self._depth == 0:
            network = self.model.transformer
            self._step = _Step()
            self._hooks = network.watch(self._step)
            for handle in (
                network.encoder.register_forward_hook(self._encoded, with_kwargs=True),
                network.hf.register_forward_pre_hook(self._decodes, with_kwargs=True),
                network.hf.register_forward_hook(self._decoded),
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
    def _encoded(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], found: Any) -> None:
        """The encoder ran: choose what of the store its sentences may see."""
        given = dict(zip(("input_ids", "attention_mask"), args, strict=False)) | kwargs
        ids, mask = given.get("input_ids"), given.get("attention_mask")
        step, states = self._step, found[0].detach()
        step.lookup = step.decoded = None
        if ids is not None:
            mask = torch.ones_like(ids) if mask is None else mask
            step.lookup = self.retriever.look(ids, mask.bool(), states)
            step.source, step.wanted = states, True

    def _decodes(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The model decodes: forget the lookup if it was made for another source."""
        step, given = self._step, kwargs.get("encoder_outputs")
        if given is None or given[0] is step.decoded or step.source is None:
            return
        beams = max(1, len(given[0]) // len(step.source))
        if not torch.equal(given[0][::beams], step.source):
            step.lookup = None
        step.decoded = given[0]

    def _decoded(self, module: nn.Module, args: tuple[Any, ...], found: Any) -> None:
        self._step.logits = found.logits[:, -1:].detach()

    @torch.no_grad()
    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (R, V) with p_MT replaced by λ·p_kNN + (1 − λ)·p_MT.

        Scores are logits or log-probabilities that other processors may have changed: log p − log p_MT is added, so
        that either keeps its kind. What they have banned stays banned, and a token that is forced stays as it is.
        """
        lookup, states, logits = self._taken()
        base = logits.log_softmax(dim=-1)  # before any ban
        mixed = base.clone()
        normaliser = lookup.mix(states, mixed, torch.zeros_like(base[:, :, 0]))
        change = (mixed - normaliser[:, :, None] - base).flatten(0, 1)
        banned = scores == -torch.inf
        forced = (~banned).sum(dim=1, keepdim=True) == 1
        return torch.where(banned | forced | ~change.isfinite(), scores, scores + change)

    def _taken(self) -> tuple[SentenceLookup, States, Tensor]:
        """What the step was looked up with: states (B, K, d) and logits (B, K, V) in float32, each used once."""
        step = self._step
        if self._depth == 0:
            raise UsageError("retrieval works inside its `with` block: call generate() there")
        if step.lookup is None or step.source is None:
            raise UsageError(
                "the source of this generate() was not seen: give it input_ids, and no encoder_outputs but those that "
                "were made last inside the `with` block"
            )
        if step.logits is None:
            raise UsageError("generate() scores several tokens of one step: assisted decoding cannot be mixed with")
        logits, step.logits = step.logits, None
        batch = len(step.source)
        ffn_input, output = (each[:, -1].unflatten(0, (batch, -1)) for each in step.take())
        return step.lookup, States(ffn_input, output), logits[:, -1].float().unflatten(0, (batch, -1))


# --------------------------------------------------------------------------------------------------- the model's parts


class _Call(NamedTuple):
    """A layer that was called, and with what."""

    module: nn.Module
    given: Tensor
    made: Tensor


def _probe(tokenizer: Tokenizer, special: SpecialTokens, device: torch.device) -> tuple[Tensor, Tensor]:
    """A source (2, S), twice the same, and two targets (2, T), T > 2, that differ in their last token only."""
    source = tokenizer.encode_source(PROBES[:1])[0]
    one, other, last = [i for i in range(6) if i not in (special.start, special.end, special.pad)][:3]
    head = [special.start, *special.prefix, one]
    return torch.tensor([source] * 2, device=device), torch.tensor([[*head, other], [*head, last]], device=device)


def _find(hf: Any, max_positions: int, source: Tensor, target: Tensor) -> tuple[Tap, Tap, Sizes]:
    """The first layer of the last feed-forward block and the output projection, by watching the model at work."""
    calls, logits = _calls(hf, source, target)
    linear = [call for call in calls if isinstance(call.module, nn.Linear)]
    at = max((i for i, call in enumerate(linear) if call.made.shape == logits.shape), default=0)
    if at < 2 or linear[at].made.shape != logits.shape:
        raise ModelError(f"no linear layer of {type(hf).__name__} makes its logits: knnmt does not know this kind")
    owner = {child: parent for parent in hf.modules() for child in parent.children()}
    second = linear[at - 1].module
    before = at - 1  # a block of its own, or the two layers of a decoder layer; gated ones have two first layers
    while before > 0 and owner[linear[before - 1].module] is owner[second]:
        before -= 1
    first, projection = linear[before], linear[at]
    if first.module is second:
        raise ModelError(f"the last layer of {type(hf).__name__} has no feed-forward block that knnmt can find")
    width = projection.given.size(-1)
    shape = *target.shape, width
    if first.given.shape not in (shape, (shape[1], shape[0], width)):
        raise ModelError(f"the states of {type(hf).__name__} have an unknown shape: {tuple(first.given.shape)}")
    taps = Tap(first.module, first.given.shape != shape), Tap(projection.module, time_first=False)
    embedding = next(call.module for call in calls if isinstance(call.module, nn.Embedding))
    return *taps, Sizes(width, embedding.num_embeddings, logits.size(-1), max_positions)


def _calls(hf: Any, source: Tensor, target: Tensor) -> tuple[list[_Call], Tensor]:
    """The linear layers and embeddings in the order in which the model uses them, and its logits."""
    calls: list[_Call] = []
    with ExitStack() as hooks:
        for module in hf.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                note = module.register_forward_hook(lambda *call: calls.append(_Call(call[0], call[1][0], call[2])))
                hooks.callback(note.remove)
        logits = hf(input_ids=source, decoder_input_ids=target, use_cache=False).logits
    return calls, logits


def _check(network: Network, source: Tensor, target: Tensor) -> None:
    """Refuse a model whose states are not what they should be."""
    kind = type(network.hf).__name__
    calls, logits = _calls(network.hf, source, target)
    encoded = network.encode(source, torch.ones_like(source, dtype=torch.bool))
    states = network.force(target, encoded)
    if encoded.states.size(-1) != network.architecture.width:
        raise ModelError(f"{kind} has states of {encoded.states.size(-1)} and of {network.architecture.width} numbers")
    bias = logits - network.projection.module(states.output)  # Marian and BART add one after the projection
    if not _alike(bias, bias[:1, :1].expand_as(bias), logits):
        raise ModelError(f"what {kind} projects does not give its logits: they are changed after the projection")
    received = [call.made for call in calls if call.module is network.first.module][-1]
    given = network.first.module(states.ffn_input)
    if not _alike(given, received.transpose(0, 1) if network.first.time_first else received, given):
        raise ModelError(f"what the last feed-forward block of {kind} receives depends on how it is asked")
    for some in states:
        if not _alike(some[0, :-1], some[1, :-1], some):
            raise ModelError(f"the states of {kind} see the tokens that come after them")


def _alike(one: Tensor, other: Tensor, scale: Tensor) -> bool:
    """Whether two tensors are the same but for rounding, given the size of the numbers they come from."""
    return bool((one - other).abs().max() <= torch.finfo(scale.dtype).eps ** 0.5 * scale.abs().max())
