"""Fast kNN-MT (Meng et al. 2022): a sentence sees the entries linked to the c nearest training tokens of each source
token's type.

A token of a type that was never stored selects nothing. In a type with very many tokens, only those of the clusters
nearest to the source token are compared.
"""

import torch
from torch import Tensor

from knnmt.search.entries import as_rows
from knnmt.search.rows import Keys, Rows
from knnmt.systems.chosen import Nearest, linked
from knnmt.systems.faster import CLUSTERS, MEMBERS, nearest_in_cells
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Candidates, Source, System
from knnmt.systems.view import View, none_visible

LARGE_TYPE = 30_000  # tokens of a type from which only those of its nearest clusters are compared


def near_entries(view: View, source: Source, c: int, nprobe: int = 32) -> Tensor:
    """The entries that each sentence sees, -1 for none. (B, N)."""
    sentence, types, states = source.tokens(view)
    tokens = near_tokens(view, types, states, c, nprobe)
    query, place = (tokens >= 0).nonzero(as_tuple=True)
    owner, entries = linked(view, sentence[query], tokens[query, place])
    return as_rows(owner, entries, len(source.ids), view.count("entries"))


def near_tokens(view: View, types: Tensor, states: Tensor, c: int, nprobe: int) -> Tensor:
    """The c nearest stored tokens of the same type, -1 where there are fewer. (Q,), (Q, d) to (Q, c)."""
    starts, stops = view.ranges("type_offsets", types)
    keys = view.derived("visible source keys", lambda: _visible(view))
    if "cluster_offsets" not in view:  # lessons have no clusters
        return view.search.choose(keys, (starts, stops), states, c)
    large = (stops - starts).sum(dim=1) >= LARGE_TYPE
    tokens = torch.full((len(types), c), -1, device=types.device)
    tokens[~large] = view.search.choose(keys, (starts[~large], stops[~large]), states[~large], c)
    if bool(large.any()):
        tokens[large] = _near_tokens_of_large_types(view, keys, types[large], states[large], c, nprobe)
    return tokens


def _visible(view: View) -> Keys[Rows]:
    """The source states; a token whose entries are all hidden is not found."""
    keys = view.keys("source")
    if view.hidden is None:
        return keys
    bounds = view.runs("link_offsets", torch.arange(len(keys), device=view.device))
    return keys.without(none_visible(view.hidden[view["link_entries"].whole()], *bounds))


def _near_tokens_of_large_types(
    view: View, keys: Keys[Rows], types: Tensor, states: Tensor, c: int, nprobe: int
) -> Tensor:
    """The c nearest tokens among those of the type's `nprobe` nearest clusters. (Q,), (Q, d) to (Q, c)."""
    ranges = view.ranges("cluster_offsets", types)
    most = int((ranges[1] - ranges[0]).sum(dim=1).max())
    clusters = view.search.choose(view.means("cluster_source"), ranges, states, min(nprobe, most))
    begin, size = view.runs("cluster_starts", clusters.clamp_min(0))
    members = view.blocks("cluster_members") if "cluster_members" in view else None
    cells = begin, torch.where(clusters < 0, 0, size)
    return nearest_in_cells(view, keys, cells, states, c, members)


def select(view: View, source: Source, settings: RetrievalSettings) -> Candidates:
    """The entries linked to the c nearest tokens of each source token's type."""
    assert settings.c is not None
    return Nearest(view, near_entries(view, source, settings.c, settings.nprobe), settings)


SYSTEM = System(
    name="fast",
    summary="compares with entries linked to the nearest tokens of the source",
    arrays=(
        "type_offsets", "source_keys", "source_norms", *CLUSTERS, *MEMBERS,
        "target_ids", "target_keys", "target_norms",
    ),
    select=select,
    takes_c=True,
    c_grid=(16, 64, 256, 1024),
)  # fmt: skip
