"""Stage `prototypes`: entries of one source type and one target token, gathered by their keys, for `proto`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt import host
from knnmt.build import kmeans, pq
from knnmt.build.context import Context
from knnmt.csr import Int64, blocks, offsets_of

MEMBERS_SHOWN = 3  # of a prototype, as evidence


def make_prototypes(context: Context) -> None:
    """Write the prototypes, each with the means of both sides; lessons, which are searched exactly, are in none."""
    settings, type_offsets = context.settings, context["type_offsets"]
    target_ids = np.asarray(context["target_ids"])
    keys = {side: context.states(f"{side}_keys") for side in ("target", "source")}
    entries, rows, groups = _distinct_links(context, type_offsets, target_ids)
    advance = context.watch("prototypes", len(entries))
    made = kmeans.cluster(
        keys["target"], groups, settings.prototype_size, order=entries.astype(np.int64),
        seed=settings.seed, memory=settings.memory, workers=context.workers, progress=advance,
    )  # fmt: skip
    starts, members = made.starts, made.order
    rows = _follow(rows, groups, members)
    means = {side: context.create(f"proto_{side}_means", "float16", (starts.size - 1, context.width)) for side in keys}
    ranking = kmeans.rank(
        keys["target"], target_ids, starts, np.arange(members.size + 1), members, MEMBERS_SHOWN, context.unit,
        context.workers, means["target"],
    )  # fmt: skip
    kmeans.centroids(keys["source"], rows, starts, context.unit, context.workers, means["source"])
    kinds = np.searchsorted(type_offsets, rows[starts[:-1]], side="right") - 1
    shown = np.minimum(ranking.offsets[:-1, None] + np.arange(MEMBERS_SHOWN), ranking.offsets[1:, None] - 1)
    context.write(
        proto_offsets=offsets_of(np.bincount(kinds, minlength=type_offsets.size - 1)),
        proto_tokens=target_ids[members[starts[:-1]]],
        proto_counts=np.diff(starts).astype(np.int32),
        proto_entries=ranking.entries[shown],
        proto_members=members.astype(np.int32),
    )
    for side, states in means.items():
        norms, steps = pq.in_bytes(states, context.create(f"proto_{side}", "int8", states.shape), context.workers)
        context.write(**{f"proto_{side}_norms": norms, f"proto_{side}_steps": steps})
        host.discard(context.path(f"proto_{side}_means"))


def _distinct_links(
    context: Context, type_offsets: Int64, target_ids: NDArray[np.int32]
) -> tuple[NDArray[np.int32], Int64, Int64]:
    """Entries and source rows of all links, and where each group of one type and one target token begins.

    Sorted by type, target token and entry; an entry counts once in a type, with the first row that links to it.
    Links of lessons are left out, unless there are no others: arrays without rows would serve nobody.
    """
    link_offsets, link_entries, offsets = (context[name] for name in ("link_offsets", "link_entries", "target_offsets"))
    taught = np.zeros(target_ids.size, np.bool_)
    for number in context.lessons:
        taught[offsets[number] : offsets[number + 1]] = True
    if taught[link_entries].all():
        taught[:] = False
    links = link_offsets[type_offsets]
    sorted_links, begun = [], []
    # A link takes some 32 times the memory of a cell while it is sorted.
    for first, last in blocks(32 * links):
        begin, end = type_offsets[first], type_offsets[last]
        rows = np.repeat(np.arange(begin, end), np.diff(link_offsets[begin : end + 1]))
        entries = np.asarray(link_entries[links[first] : links[last]])
        rows, entries = rows[~taught[entries]], entries[~taught[entries]]
        types = np.searchsorted(type_offsets, rows, side="right")
        order = np.lexsort((entries, target_ids[entries], types))  # stable: rows rise already
        types, entries, rows = types[order], entries[order], rows[order]
        once = _changes(types) | _changes(entries)
        types, entries, rows = types[once], entries[once], rows[once]
        sorted_links.append((entries, rows))
        begun.append(_changes(types) | _changes(target_ids[entries]))
    entries, rows = (np.concatenate(column) for column in zip(*sorted_links, strict=True))
    return entries, rows, np.append(np.flatnonzero(np.concatenate(begun)), entries.size)


def _changes(values: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Where a value is not that before it; the first is not."""
    changed: NDArray[np.bool_] = np.diff(values, prepend=-1) != 0
    return changed


def _follow(values: Int64, groups: Int64, moved: Int64) -> Int64:
    """Bring the values of numbers that rise in each group to the order that these were moved to inside the groups."""
    group = np.repeat(np.arange(groups.size - 1, dtype=np.int32), np.diff(groups))
    brought = np.empty_like(values)
    brought[np.lexsort((moved, group))] = values
    return brought
