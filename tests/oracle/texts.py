"""kNN-MT, Fast and Faster from the texts alone: plain Hugging Face passes, a segment at a time, and plain Python.

Nothing of a store is read: each entry is known by the text that it is of and its place there. A type is one cluster, as
in a store whose clusters are larger than any type; k-means then has nothing to choose. What was taught is searched by
itself; what was removed, or is a lesson that was folded in, is not found in the part, though it shares in the means.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .datastore import States, centroid, half, squared

Name = tuple[str, str]  # source and target text


@dataclass(frozen=True, eq=False)
class Seen:
    """A pair of texts as the model sees it: ids, states rounded as stores keep them, and links (source, target)."""

    name: Name
    source_ids: list[int]
    target_ids: list[int]
    source_states: States
    target_states: States
    links: Sequence[tuple[int, int]]


class Near(NamedTuple):
    """An entry that was found: its pair, its place there, its token, its distance."""

    name: Name
    place: int
    token: int
    distance: float


def states_of(hf: Any, source: list[int], target: list[int]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What the encoder gives (S, d), and what the last feed-forward block of the decoder is given (T, d), at the place
    that predicts each of the target's tokens; by one forward pass of one pair without padding."""
    given: list[torch.Tensor] = []
    hook = hf.model.decoder.layers[-1].fc1.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
    before = [hf.config.decoder_start_token_id, *target[:-1]]
    with torch.inference_mode():
        out = hf(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([before]))
    hook.remove()
    keys = given[0].reshape(len(target), -1)
    return out.encoder_last_hidden_state[0].numpy(), keys.numpy()


def see(hf: Any, tokenizer: Any, name: Name, links: Sequence[tuple[int, int]]) -> Seen:
    """A pair as the model sees it; `</s>` stands at the end of both sides."""
    source, target = tokenizer(name[0])["input_ids"], tokenizer(text_target=name[1])["input_ids"]
    states, keys = states_of(hf, source, target)
    return Seen(name, source, target, half(states), half(keys), links)


def knn(part: Sequence[Seen], hidden: set[Name], state: States, k: int) -> list[Near]:
    """The k nearest of all entries."""
    return _nearest(
        part, {(n, j) for n, seen in enumerate(part) for j in range(len(seen.target_ids))}, hidden, state, k
    )


def fast(
    part: Sequence[Seen], hidden: set[Name], ids: Sequence[int], states: States, state: States, k: int, c: int
) -> list[Near]:
    """The k nearest of the entries that are linked to the c nearest tokens of each source token's type."""
    seen: set[tuple[int, int]] = set()
    for kind, own in zip(ids, states, strict=True):
        ranked = sorted(
            (squared(own, part[n].source_states[i]), n, i) for n, i in _tokens(part, kind) if part[n].name not in hidden
        )
        for _, n, i in ranked[:c]:
            seen |= {(n, j) for other, j in part[n].links if other == i}
    return _nearest(part, seen, hidden, state, k)


def faster(part: Sequence[Seen], hidden: set[Name], ids: Iterable[int], state: States, k: int) -> list[Near]:
    """The k entries of the nearest type's cluster that are nearest to its mean; d = d(mean, h) + d(mean, entry)."""
    ranked = []
    for kind in set(ids):
        entries = sorted({(n, j) for n, i in _tokens(part, kind) for other, j in part[n].links if other == i})
        if any(part[n].name not in hidden for n, _ in entries):
            mean = centroid([part[n].target_states[j] for n, j in entries], state.size, lambda some: some)
            ranked.append((squared(mean, state), kind, mean, entries))
    if not ranked:
        return []
    far, _, mean, entries = min(ranked, key=lambda cluster: cluster[:2])
    return _nearest(part, set(entries), hidden, mean, k, far)


def _tokens(part: Sequence[Seen], kind: int) -> list[tuple[int, int]]:
    """Pair and place of the source tokens of a type that have links."""
    return [
        (n, i)
        for n, seen in enumerate(part)
        for i, other in enumerate(seen.source_ids)
        if other == kind and any(linked == i for linked, _ in seen.links)
    ]


def _nearest(
    part: Sequence[Seen], entries: set[tuple[int, int]], hidden: set[Name], about: States, k: int, more: float = 0.0
) -> list[Near]:
    """The k entries nearest to something, less those of hidden pairs."""
    ranked = sorted((squared(about, part[n].target_states[j]), n, j) for n, j in entries if part[n].name not in hidden)
    return [Near(part[n].name, j, part[n].target_ids[j], more + far) for far, n, j in ranked[:k]]
