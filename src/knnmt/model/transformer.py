"""One encoder-decoder for the families that share an architecture: Marian, FSMT, M2M100/NLLB, BART, mBART.

They differ in where a layer normalises, in their positions and in a norm or two; `Architecture` says which. The
decoder works on sentences with beams: states are `(B, K, d)`, B sentences of K beams. Cross-attention keys are stored
once per sentence and shared by its beams, which are just more query rows. Inference only: no dropout, no gradients.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from knnmt.model.linear import Linear, Precision
from knnmt.model.steps import CompiledLayers, Kept

# not cuDNN's, which is compiled for every new shape: text that was not seen before has one at each step
KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
FEW = 16  # rows of a query up to which plain matmuls are faster
KeyKind = Literal["ffn_input", "output"]


@dataclass(frozen=True)
class Architecture:
    """The hyperparameters of a model."""

    width: int
    encoder_layers: int
    decoder_layers: int
    encoder_heads: int
    decoder_heads: int
    encoder_ffn: int
    decoder_ffn: int
    source_vocabulary: int
    target_vocabulary: int
    activation: Literal["relu", "gelu", "silu"]
    norm_first: bool  # M2M100 and mBART normalise a branch's input, the others its sum with the residual
    norm_embedding: bool  # BART and mBART
    norm_final: bool  # after the last layer: those that normalise first
    scale_embedding: float
    max_positions: int


class States(NamedTuple):
    """Decoder states of a position; either can be the key of a datastore."""

    ffn_input: Tensor
    output: Tensor

    def key(self, kind: KeyKind) -> Tensor:
        """The states of one kind. (..., d)."""
        return self.ffn_input if kind == "ffn_input" else self.output


class Encoded(NamedTuple):
    """A batch of encoded sentences: source states, and the cross-attention keys and values of each decoder layer."""

    states: Tensor  # (B, S, d)
    mask: Tensor  # (B, S), True at real tokens
    added: Tensor | None  # (B, 1, 1, S), the additive mask; None without padding
    keys: tuple[tuple[Tensor, Tensor], ...]  # keys and values (B, H, S, e) of each decoder layer

    def keep(self, rows: Tensor) -> "Encoded":
        """Select sentences. rows: (N,) int64."""
        added = None if self.added is None else self.added[rows]
        return Encoded(self.states[rows], self.mask[rows], added, tuple((k[rows], v[rows]) for k, v in self.keys))


class Past(Protocol):
    """The past of self-attention: takes the new keys and values of a layer, and gives all so far and a mask."""

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """New keys and values (B, H, Q, e); returns keys, values (B, H, L, e) and a mask (B or 1, 1, Q, L)."""
        ...


class Causal:
    """The past of a known target: a causal mask, and nothing cached."""

    def __init__(self, length: int, like: Tensor) -> None:
        seen = torch.ones(length, length, dtype=torch.bool, device=like.device).tril()
        self.mask = additive(seen, like.dtype)[None, None]

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return keys and values unchanged."""
        return keys, values, self.mask


class Attention(nn.Module):
    """Multi-head attention; projections of the same input are one matrix."""

    def __init__(self, width: int, heads: int, *, cross: bool) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (width // heads) ** -0.5
        self.query = Linear(width, width) if cross else None
        self.inputs = Linear(width, (2 if cross else 3) * width)  # key and value, or query, key and value
        self.output = Linear(width, width)

    def split(self, states: Tensor, parts: int) -> tuple[Tensor, ...]:
        """(B, L, parts·d) to `parts` tensors (B, heads, L, d/heads)."""
        batch, length, width = states.shape
        parted = states.view(batch, length, parts, self.heads, width // (parts * self.heads))
        return parted.permute(2, 0, 3, 1, 4).unbind(0)

    def mix(self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Query (B, H, Q, e) over keys and values (B, H, L, e); mask (B, 1, 1 or Q, L), added. Returns (B, Q, d)."""
        return attend(query, keys, values, mask, self.scale).transpose(1, 2).flatten(2)


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    """Softmax attention: the fused kernel for sequences, plain matmuls for the few rows of a decoding step."""
    if query.size(2) > FEW:
        with sdpa_kernel(KERNELS):
            return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)
    weights = torch.matmul(query * scale, keys.transpose(2, 3))
    if mask is not None:
        weights += mask
    return torch.matmul(weights.softmax(dim=-1), values)


def norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    """Layer norm without the overhead of a module call."""
    return F.layer_norm(x, layer.normalized_shape, layer.weight, layer.bias, layer.eps)


class FeedForward(nn.Module):
    """The feed-forward block: two linear layers with an activation in between."""

    def __init__(self, width: int, inner: int, activation: str) -> None:
        super().__init__()
        self.first = Linear(width, inner, activation)
        self.second = Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) to (..., d)."""
        return self.second(self.first(x))


class Rows:
    """The rows of a padded batch that are tokens: on a CPU, all but attention computes with these alone."""

    def __init__(self, mask: Tensor) -> None:
        self.shape, self.numbers = mask.shape, mask.flatten().nonzero().flatten()

    def of(self, padded: Tensor) -> Tensor:
        """(B, S, d) to (N, d)."""
        return padded.flatten(0, 1).index_select(0, self.numbers)

    def pad(self, states: Tensor) -> Tensor:
        """(N, d) to (B, S, d)."""
        padded = states.new_zeros(self.shape.numel(), states.size(1)).index_copy_(0, self.numbers, states)
        return padded.view(*self.shape, -1)


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward block."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.norm_first = a.norm_first
        self.attention = Attention(a.width, a.encoder_heads, cross=False)
        self.attention_norm = nn.LayerNorm(a.width)
        self.ffn = FeedForward(a.width, a.encoder_ffn, a.activation)
        self.ffn_norm = nn.LayerNorm(a.width)

    def forward(self, x: Tensor, mask: Tensor | None, rows: "Rows | None" = None) -> Tensor:
        """(B, S, d) to (B, S, d), or (N, d) to (N, d) of the rows that are not padding."""
        attention = self.attention
        projected = attention.inputs(norm(self.attention_norm, x) if self.norm_first else x)
        projected = projected if rows is None else rows.pad(projected)
        query, keys, values = attention.split(projected, 3)
        mixed = attention.mix(query, keys, values, mask)
        branch = attention.output(mixed if rows is None else rows.of(mixed))
        if not self.norm_first:
            x = norm(self.attention_norm, x + branch)
            return norm(self.ffn_norm, x + self.ffn(x))
        x = x + branch
        x = x + self.ffn(norm(self.ffn_norm, x))
        # pre-norm residuals are unbounded, and float16 overflows at 65504
        return x.clamp(-64500, 64500) if x.dtype == torch.float16 else x


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and a feed-forward block."""

    def __init__(self, a: Architecture) -> None:
        super().__init__()
        self.norm_first = a.norm_first
        self.self_attention = Attention(a.width, a.decoder_heads, cross=False)
        self.self_norm = nn.LayerNorm(a.width)
        self.cross_attention = Attention(a.width, a.decoder_heads, cross=True)
        self.cross_norm = nn.LayerNorm(a.width)
        self.ffn = FeedForward(a.width, a.decoder_ffn, a.activation)
        self.ffn_norm = nn.LayerNorm(a.width)

    def source_keys(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Cross-attention keys and values, computed once per sentence. states: (B, S, d); each (B, H, S, e)."""
        keys, values = self.cross_attention.split(self.cross_attention.inputs(states), 2)
        return keys.contiguous(), values.contiguous()

    def forward(self, x: Tensor, index: int, source: Encoded, past: Past) -> tuple[Tensor, Tensor]:
        """x: (B, Q, d), Q new rows. Returns the layer's output and the input of its feed-forward block."""
        x, query = self.query(x, index, past)
        return self.answer(x, query, index, source)

    def query(self, x: Tensor, index: int, past: Past) -> tuple[Tensor, Tensor]:
        """Self-attention of x: (B, Q, d). Returns its output and the query of cross-attention, (B, H, Q, e)."""
        own, cross = self.self_attention, self.cross_attention
        assert cross.query is not None
        query, keys, values = own.split(own.inputs(norm(self.self_norm, x) if self.norm_first else x), 3)
        branch = own.output(own.mix(query, *past.append(index, keys, values)))
        x, inner = self._added(x, branch, self.self_norm, self.cross_norm)
        (query,) = cross.split(cross.query(inner), 1)
        return x, query

    def answer(self, x: Tensor, query: Tensor, index: int, source: Encoded) -> tuple[Tensor, Tensor]:
        """The rest of the layer, from the query of cross-attention on; what `forward` returns."""
        cross = self.cross_attention
        branch = cross.output(cross.mix(query, *source.keys[index], source.added))
        x, inner = self._added(x, branch, self.cross_norm, self.ffn_norm)
        x = x + self.ffn(inner)
        return (x if self.norm_first else norm(self.ffn_norm, x)), inner

    def _added(self, x: Tensor, branch: Tensor, own: nn.LayerNorm, following: nn.LayerNorm) -> tuple[Tensor, Tensor]:
        """The sum of residual and branch, normalised by its own norm, and the input of the branch that follows."""
        x = x + branch
        if self.norm_first:
            return x, norm(following, x)
        x = norm(own, x)
        return x, x


class Stack(nn.Module):
    """Embeddings, positions, layers and norms of an encoder or a decoder."""

    def __init__(self, a: Architecture, vocabulary: int, layers: nn.ModuleList) -> None:
        super().__init__()
        self.scale = a.scale_embedding
        self.embedding = nn.Embedding(vocabulary, a.width)
        self.positions: Tensor
        self.register_buffer("positions", torch.empty(a.max_positions, a.width))
        self.embedding_norm = nn.LayerNorm(a.width) if a.norm_embedding else None
        self.layers = layers
        self.final_norm = nn.LayerNorm(a.width) if a.norm_final else None

    def embed(self, ids: Tensor, positions: Tensor) -> Tensor:
        """ids: (B, Q); positions: (Q or 1, d). Returns (B, Q, d)."""
        x = F.embedding(ids, self.embedding.weight) * self.scale + positions
        return x if self.embedding_norm is None else norm(self.embedding_norm, x)

    def finish(self, x: Tensor) -> Tensor:
        """Apply the final norm, if there is one."""
        return x if self.final_norm is None else norm(self.final_norm, x)


class Transformer(nn.Module):
    """The model: `encode` once, then `step` by step, or `force` all positions of a known target."""

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        a = self.architecture = architecture
        encoder = nn.ModuleList(EncoderLayer(a) for _ in range(a.encoder_layers))
        decoder = nn.ModuleList(DecoderLayer(a) for _ in range(a.decoder_layers))
        self.encoder = Stack(a, a.source_vocabulary, encoder)
        self.decoder = Stack(a, a.target_vocabulary, decoder)
        self.projection = Linear(a.width, a.target_vocabulary)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.decoder.embedding.weight.device

    @property
    def precision(self) -> Precision:
        """The precision of the linear layers."""
        return self.projection.precision

    def pack(self, precision: Precision) -> "Transformer":
        """Convert all linear layers to the CPU's layout, after loading."""
        for module in self.modules():
            if isinstance(module, Linear):
                module.pack(precision)
        return self

    def encode(self, ids: Tensor, mask: Tensor) -> Encoded:
        """Encode padded sentences. ids: (B, S) int64; mask: (B, S) bool, True at real tokens."""
        x = self.encoder.embed(ids, self.encoder.positions[: ids.size(1)])
        added = None if bool(mask.all()) else additive(mask, x.dtype)[:, None, None, :]
        rows = Rows(mask) if added is not None and x.device.type == "cpu" else None
        x = x if rows is None else rows.of(x)
        for layer in self.encoder.layers:
            x = layer(x, added, rows)
        states = self.encoder.finish(x if rows is None else rows.pad(x))
        keys = tuple(layer.source_keys(states) for layer in self.decoder.layers)  # type: ignore[operator]
        return Encoded(states, mask, added, keys)

    @cached_property
    def compiled_layers(self) -> CompiledLayers:
        """The decoder's layers as compiled steps have them."""
        return CompiledLayers(self.decoder.layers)

    def step(self, ids: Tensor, position: Tensor, source: Encoded | Kept, past: Past | Kept) -> States:
        """States of one position (1,) for K beams of each sentence. ids: (B, K), the tokens before it.

        On a CPU that keeps keys for compiled loops, source and past are both `Kept`.
        """
        positions = self.decoder.positions[position]
        if isinstance(source, Encoded):
            return self._decode(ids, positions, source, cast(Past, past))
        inner, output = self.compiled_layers(self.decoder.embed(ids, positions), source, cast(Kept, past))
        return States(inner, self.decoder.finish(output))

    def force(self, ids: Tensor, source: Encoded) -> States:
        """States of all positions of known targets. ids: (B, T), the token before each position."""
        return self._decode(ids, self.decoder.positions[: ids.size(1)], source, Causal(ids.size(1), source.states))

    def attention(self, ids: Tensor, source: Encoded) -> Tensor:
        """The cross-attention of known targets, as the mean of each layer's heads: (layers, B, T, S) float32.

        ids: (B, T), the token before each position, as in `force`.
        """
        past = Causal(ids.size(1), source.states)
        x = self.decoder.embed(ids, self.decoder.positions[: ids.size(1)])
        found = []
        for index, layer in enumerate(self.decoder.layers):
            layer = cast(DecoderLayer, layer)
            x, query = layer.query(x, index, past)
            weights = torch.matmul(query * layer.cross_attention.scale, source.keys[index][0].transpose(2, 3)).float()
            weights = weights if source.added is None else weights + source.added
            found.append(weights.softmax(dim=-1).mean(dim=1))
            x, _ = layer.answer(x, query, index, source)
        return torch.stack(found)

    def _decode(self, ids: Tensor, positions: Tensor, source: Encoded, past: Past) -> States:
        x = inner = self.decoder.embed(ids, positions)
        for index, layer in enumerate(self.decoder.layers):
            x, inner = layer(x, index, source, past)
        return States(inner, self.decoder.finish(x))

    def logits(self, output: Tensor) -> Tensor:
        """Logits, in float32 whatever the dtype of the weights. (..., d) to (..., V)."""
        return self.projection(output).float()


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """An additive mask: 0 where True, else the lowest finite number (-inf would turn a row of padding into NaN)."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)
