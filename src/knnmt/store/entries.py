"""From aligned segments to a store's entries: source tokens by type, with the entries they link to; states as keys."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.align.bitext import Bitext, Links
from knnmt.csr import Int64, offsets_of
from knnmt.errors import DataError

SCALE_SAMPLE = 4000  # pairs of keys whose median distance is the scale of temperatures


def group_by_type(bitext: Bitext, links: Links, vocabulary: int) -> dict[str, NDArray[Any]]:
    """Tokens that have links, by type and then place in the corpus, and the entries that each links to, ascending.

    positions: (N,) int64, the place of each token; type_offsets: (V+1,); link_offsets: (N+1,); link_entries: (L,) int32
    """
    segments = np.repeat(np.arange(len(links)), np.diff(links.offsets))
    place = bitext.source_offsets[segments] + links.source
    entry = bitext.target_offsets[segments] + links.target
    order = np.lexsort((place, bitext.source_ids[place]))  # stable: entries rise already
    place, entry = place[order], entry[order]
    new = np.diff(place, prepend=-1) != 0
    positions = place[new]
    types = np.bincount(bitext.source_ids[positions], minlength=vocabulary)
    counts = np.diff(np.append(np.flatnonzero(new), place.size))
    return {
        "positions": positions,
        "type_offsets": offsets_of(types),
        "link_offsets": offsets_of(counts),
        "link_entries": entry.astype(np.int32),
    }


def stored(states: torch.Tensor, unit: bool) -> NDArray[np.float16]:
    """States as they are stored; of length 1 where only their direction counts."""
    states = states.float()
    if unit:
        states = torch.nn.functional.normalize(states, dim=-1)
    half = states.half().cpu()
    if not bool(half.isfinite().all()):
        raise DataError("the model's states do not fit into 16-bit floats: try the other kind of key")
    return half.numpy()


def scale_pairs(entries: int, seed: int) -> Int64:
    """The entries whose distances give the scale of a store, in pairs: (2, SCALE_SAMPLE)."""
    return np.random.default_rng(seed).integers(entries, size=(2, SCALE_SAMPLE))


def scale_of(keys: NDArray[np.float32]) -> float:
    """The scale: the median squared distance of two random keys. keys: (2, SCALE_SAMPLE, d), of `scale_pairs`."""
    return max(float(np.median(np.square(keys[0] - keys[1]).sum(axis=1))), 1e-6)
