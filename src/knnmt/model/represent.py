"""Teacher-forced states of a corpus: the model's representation of each source and target token."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from knnmt.errors import DataError
from knnmt.model.tokenizer import SpecialTokens, Tokenizer
from knnmt.model.transformer import Encoded, KeyKind, States

ALIGNED = (32, 8), (64, 16), (128, 32)  # lengths on a GPU: up to so many tokens, multiples of so many
BEYOND = 64


class Sizes(Protocol):
    """The sizes of a network."""

    @property
    def width(self) -> int:
        """Width of a state."""
        ...

    @property
    def source_vocabulary(self) -> int:
        """Rows of the source embedding table."""
        ...

    @property
    def target_vocabulary(self) -> int:
        """Number of target tokens."""
        ...

    @property
    def max_positions(self) -> int:
        """Maximum tokens of either side."""
        ...


class Network(Protocol):
    """An encoder-decoder that gives access to its states."""

    @property
    def architecture(self) -> Sizes:
        """Its sizes."""
        ...

    @property
    def precision(self) -> str:
        """The precision that it computes in."""
        ...

    def encode(self, ids: Tensor, mask: Tensor) -> Encoded:
        """Encode padded sentences. ids: (B, S) int64; mask: (B, S) bool."""
        ...

    def force(self, ids: Tensor, source: Encoded) -> States:
        """States of all positions of known targets. ids: (B, T), the token before each position."""
        ...


class StateModel(Protocol):
    """A model that a store can be built with: our own `Model`, or a Hugging Face model wrapped by `knnmt.hf`."""

    @property
    def name(self) -> str:
        """Its folder or hub id."""
        ...

    @property
    def transformer(self) -> Network:
        """The network."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer, for one direction."""
        ...

    @property
    def special(self) -> SpecialTokens:
        """Its special tokens."""
        ...

    @property
    def max_source(self) -> int:
        """Maximum source tokens."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        ...

    @property
    def fingerprint(self) -> str:
        """A hash of the weights."""
        ...


@dataclass(frozen=True)
class Represented:
    """States of some segments, concatenated in the order of `rows`, without padding."""

    rows: list[int]  # indices into the given pairs
    source: Tensor  # (sum of source lengths, d)
    target: Tensor  # (sum of (target length + 1), d): a state for each token and for the end


@torch.inference_mode()
def represent(
    model: StateModel,
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    key: KeyKind = "ffn_input",
    batch_tokens: int = 8192,
) -> Iterator[Represented]:
    """Teacher-forced states of pairs of ids (`encode_source`, `encode_target`), in batches of similar length.

    State j of a target is the one that predicts token j; the output projection is not computed.
    """
    special, network = model.special, model.transformer
    room = network.architecture.max_positions
    for row, (source_ids, target_ids) in enumerate(pairs):
        if max(len(source_ids), len(special.prefix) + len(target_ids) + 1) > room:
            sizes = f"{len(source_ids)} source and {len(target_ids)} target tokens"
            raise DataError(f"pair {row + 1} has {sizes}, but the model has {room} positions: shorten or drop it")
    for rows in batches([max(len(s), len(t) + 1) for s, t in pairs], batch_tokens):
        source, mask = padded([pairs[row][0] for row in rows], special.pad, model.device, room)
        head = [special.start, *special.prefix]
        target, _ = padded([[*head, *pairs[row][1]] for row in rows], special.pad, model.device, room)
        encoded = network.encode(source, mask)
        states = network.force(target, encoded).key(key)[:, len(special.prefix) :]
        wanted = torch.arange(states.size(1), device=model.device) <= _lengths(
            [pairs[row][1] for row in rows], model.device
        )
        yield Represented(rows, encoded.states[mask], states[wanted])


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Indices in batches of at most `tokens` tokens with padding, longest first; a longer one gets its own batch."""
    batch: list[int] = []
    for index in np.argsort(-np.asarray(lengths, dtype=np.int64), kind="stable").tolist():
        if batch and (len(batch) + 1) * lengths[batch[0]] > tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def padded(rows: Sequence[Sequence[int]], pad: int, device: torch.device, room: int = 0) -> tuple[Tensor, Tensor]:
    """Pad rows of ids to the longest. Returns ids and mask (True at real tokens), both (B, longest).

    On a GPU the longest is rounded up within `room`, the model's positions: its attention copies masks of other sizes,
    and products of few sizes need few kernels.
    """
    longest = max(map(len, rows))
    if device.type == "cuda":
        longest = max(longest, min(aligned(longest), room))
    ids = np.full((len(rows), longest), pad, dtype=np.int64)
    for row, given in zip(ids, rows, strict=True):
        row[: len(given)] = given
    mask = torch.arange(ids.shape[1], device=device) < _lengths(rows, device)
    return torch.from_numpy(ids).to(device), mask


def aligned(length: int) -> int:
    """The next length that occurs on a GPU."""
    step = next((step for most, step in ALIGNED if length <= most), BEYOND)
    return length + -length % step


def _lengths(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """(B, 1)."""
    return torch.tensor([len(row) for row in rows], device=device)[:, None]
