"""Stage `cluster`: clusters of each source type's tokens, their means on both sides, and their entries, ranked."""

import numpy as np

from knnmt.build import kmeans
from knnmt.build.context import Context
from knnmt.csr import offsets_of, ranges, runs


def cluster_tokens(context: Context) -> None:
    """Write the clusters. Tokens stay where they are; the members of each cluster are listed by their rows."""
    settings, keys = context.settings, context.states("source_keys")
    link_offsets, link_entries = context["link_offsets"], context["link_entries"]
    advance = context.watch("cluster", 3 * len(keys))
    made = kmeans.cluster(
        keys, context["type_offsets"], settings.cluster_size,
        cap=None if settings.split_clusters else max(len(keys), settings.cluster_size),
        seed=settings.seed, memory=settings.memory, workers=context.workers, progress=advance,
    )  # fmt: skip
    source, target, coarse = (
        context.create(name, "float16", (count, context.width))
        for name, count in {
            "cluster_source": made.starts.size - 1,
            "cluster_target": made.starts.size - 1,
            "coarse_source": len(made.coarse_ranges),
        }.items()
    )
    kmeans.centroids(keys, made.order, made.starts, context.unit, context.workers, source)
    begin, end = made.starts[made.coarse_ranges].T
    members = made.order[ranges(begin, end - begin)]
    kmeans.centroids(keys, members, offsets_of(end - begin), context.unit, context.workers, coarse)
    advance(len(keys))
    ranking = kmeans.rank(
        context.states("target_keys"), np.asarray(context["target_ids"]), made.starts,
        offsets_of(np.diff(link_offsets)[made.order]), link_entries[runs(link_offsets, made.order)],
        settings.k_max, context.unit, context.workers, target,
    )  # fmt: skip
    context.write(
        cluster_offsets=made.offsets,
        cluster_starts=made.starts,
        cluster_members=made.order.astype(np.int32),
        ranking_offsets=ranking.offsets,
        ranking_entries=ranking.entries,
        ranking_tokens=ranking.tokens,
        ranking_distances=ranking.distances,
        coarse_offsets=made.coarse_offsets,
        coarse_ranges=made.coarse_ranges,
    )
    advance(len(keys))
