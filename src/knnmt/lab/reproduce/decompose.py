"""Where Faster kNN-MT loses what kNN-MT gains: its choices, one by one, judged by the tokens of references.

The references are segments of dev that nothing was tuned on. For each token, the decoder's state looks up what it would
while translating. Two questions are asked. Does the cluster that is chosen hold the right token, does any cluster of
the sentence, and does the cluster richest in it come first? And how likely do p_kNN and p_MT together make the token,
with the weight λ fitted on every other segment, for each system and for each other way to choose among the same
clusters? All k and T are those that tuning found; the temperature of a choice among clusters is fitted as λ is.
"""

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from knnmt.corpus import Segment
from knnmt.datastore import Datastore
from knnmt.lab.reproduce.job import Job, digest_of, keep, recall, texts_of
from knnmt.lab.reproduce.results import Built, Choices, Decomposition, Kept
from knnmt.overlap import overlaps
from knnmt.retrieval.session import Retriever
from knnmt.retrieval.tuned import Tuned
from knnmt.systems.faster import Ranked, members, near_clusters
from knnmt.systems.system import Source
from knnmt.tune.references import Reference, p_of, show

CERTAINTY = (0.001, 0.01, 0.1, 0.5)  # bounds of the bins of p_MT of the right token
WEIGHTS = tuple(step / 20 for step in range(1, 20))
SOFTNESS = (0.5, 1.0, 2.0, 4.0)  # of T, for the choice of a cluster
FLOOR = 1e-9
CHAIN = ("knn", "fast", "fast-clustered", "faster-exact", "faster", "proto", "similar")  # the systems that are asked


Choice = tuple[str, float]
"""What p_kNN is made of: the name of it, and the temperature of a choice among clusters, times T."""


def decompose(
    job: Job, built: Built, store: Datastore, tuned: dict[str, Tuned], dev: Sequence[Segment]
) -> Decomposition:
    """All of it for a domain. dev: segments that nothing was tuned on."""
    settings = {name: found.settings.model_dump(mode="json") for name, found in tuned.items() if name in CHAIN}
    path, digest = job.folder / "decomposition.json", digest_of(built.digest, settings, texts_of(dev))
    found = recall(path, Decomposition, digest)
    if found is not None:
        return found
    left_out = overlaps(store, [segment.source for segment in dev]).segments
    watch = job.watch("decompose")
    retrievers = {
        name: Retriever(store, job.model.device, tuned[name].settings.without_gate(), left_out=left_out)
        for name in settings
    }
    p_knn: dict[Choice, list[Tensor]] = defaultdict(list)
    p_mt, halves, choices = [], [], []
    for name, retriever in retrievers.items():
        for some in show(job.model, retriever, dev):
            near = some.look.lookup.neighbours(some.query)
            p_knn[name, 1.0].append(p_of(near.tokens, near.log_p, some.wanted)[some.there].cpu())
            if name == "faster":
                found_here, others = _choices(retriever, some)
                choices.append(found_here)
                for other, values in others.items():
                    p_knn[other].append(values[some.there].cpu())
                p_mt.append(some.of_wanted(some.logits.log_softmax(dim=-1))[some.there].cpu())
                number = torch.tensor(some.segments)[:, None].expand(some.there.shape)
                halves.append(number[some.there.cpu()] % 2)
            watch(name, len(some.segments), len(dev))
    base, half = torch.cat(p_mt), torch.cat(halves)
    joined = {name: torch.cat(values) for name, values in p_knn.items()}
    made = Decomposition(
        digest=digest, segments=len(dev), tokens=len(base), choices=_counted(choices), bounds=CERTAINTY,
        kept=_likelihoods(base, half, joined),
    )  # fmt: skip
    return keep(path, made)


# --------------------------------------------------------------------------------------------- what a cluster holds


def _choices(retriever: Retriever, some: Reference) -> tuple[Tensor, dict[Choice, Tensor]]:
    """For each token whether the right one is in the chosen cluster, in any, and whether the richest comes first, and
    the rank of the richest, (P, 4); and p_kNN under other choices, (B, T) each."""
    view, lookup = retriever.live.view, some.look.lookup
    assert isinstance(lookup, Ranked)
    source = Source(*some.source)
    clusters = near_clusters(view, source, "ranking")
    batch, width = clusters.shape
    place, entries = members(view, clusters.flatten())
    tokens, vocabulary = view["target_ids"][entries].long(), some.logits.size(2)
    kinds, counts = (place * vocabulary + tokens).unique(return_counts=True)
    sizes = place.bincount(minlength=batch * width).view(batch, 1, width)
    slots = torch.arange(batch * width, device=view.device).view(batch, 1, width)
    asked = slots * vocabulary + some.wanted[:, :, None]
    at = torch.searchsorted(kinds, asked).clamp_max(len(kinds) - 1)
    held = torch.where(kinds[at] == asked, counts[at], 0)  # entries of the right token in each cluster, (B, T, C)
    share = held / sizes.clamp_min(1)

    squared, order = lookup.table.nearest(some.query, width)  # clusters, the nearest first
    any_ = (held > 0).any(dim=2)
    richest = (share == share.amax(dim=2, keepdim=True)).gather(2, order)
    rank = torch.where(richest, torch.arange(order.size(2), device=order.device), width).amin(dim=2)
    chosen = held.gather(2, order[:, :, :1])[:, :, 0] > 0
    columns = torch.stack((chosen, any_, any_ & (rank == 0), rank.where(any_, -1)), dim=-1)[some.there].cpu()

    # p of the right token in the row of each cluster, the nearest first: (B, T, C)
    row_tokens, row_log_p = (each[lookup.rows][:, None] for each in lookup.merged)  # (B, 1, C, k)
    of_cluster = p_of(row_tokens, row_log_p, some.wanted[:, :, None].expand(-1, -1, width))
    of_cluster = of_cluster.gather(2, order)
    distances = view.distance(squared)
    agreement = _agreement(some.logits, row_tokens, row_log_p).gather(2, order)
    others = {
        ("best cluster", 1.0): of_cluster.amax(dim=2),
        ("by p_MT", 1.0): of_cluster.gather(2, agreement.argmax(dim=2, keepdim=True))[:, :, 0],
    }
    for softness in SOFTNESS:
        scores = -distances / (softness * lookup.temperature)
        soft = scores.softmax(dim=2)
        others["all clusters", softness] = (soft.nan_to_num() * of_cluster).sum(dim=2)
        both = (scores + agreement.clamp_min(FLOOR).log()).softmax(dim=2).nan_to_num()
        others["all clusters and p_MT", softness] = (both * of_cluster).sum(dim=2)
    return columns, others


def _agreement(logits: Tensor, tokens: Tensor, log_p: Tensor) -> Tensor:
    """How much the row of each cluster and p_MT agree: Σ p_MT·p_kNN over tokens. (B, T, C)."""
    p_mt = logits.softmax(dim=-1)
    batch, steps, _ = p_mt.shape
    width, k = tokens.shape[2:]
    # a token that is there several times has the same p each time: it counts once
    repeated = torch.zeros_like(tokens, dtype=torch.bool)
    repeated[..., 1:] = tokens[..., 1:] == tokens[..., :-1]
    p_knn = log_p.exp().masked_fill(repeated, 0.0)
    seen = p_mt.gather(2, tokens.expand(batch, steps, width, k).flatten(2)).view(batch, steps, width, k)
    return (seen * p_knn).sum(dim=3)


def _counted(choices: list[Tensor]) -> Choices:
    """The shares of all tokens."""
    every = torch.cat(choices)
    chosen, any_, first = (every[:, column].double().mean().item() for column in range(3))
    ranks = every[:, 3][every[:, 3] >= 0]
    return Choices(
        chosen=chosen, any=any_, richest_first=first,
        richest_among={str(n): (ranks < n).double().sum().item() / len(every) for n in (1, 2, 4, 8, 16)},
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------ likelihood


def _likelihoods(base: Tensor, half: Tensor, p_knn: dict[Choice, Tensor]) -> dict[str, Kept]:
    """The gain in log-likelihood over base MT of every choice, on the segments that λ (and the temperature of a choice
    among clusters) was not fitted on."""
    fitted, judged = half == 0, half == 1
    bins = torch.bucketize(base[judged], torch.tensor(CERTAINTY))
    found: dict[str, Kept] = {}
    log_base = base.clamp_min(FLOOR).log()
    for name in dict.fromkeys(name for name, _ in p_knn):
        tried = {
            (softness, weight): _mixed(values[fitted], base[fitted], weight).mean().item()
            for (kind, softness), values in p_knn.items()
            if kind == name
            for weight in WEIGHTS
        }
        softness, weight = max(tried, key=lambda one: tried[one])
        values = p_knn[name, softness]
        gains = _mixed(values[judged], base[judged], weight) - log_base[judged]
        by_bin = torch.zeros(len(CERTAINTY) + 1, dtype=torch.float64).index_add_(0, bins, gains.double())
        found[name] = Kept(
            weight=weight, softness=softness, gain=gains.mean().item(),
            by_certainty=[total / len(gains) for total in by_bin.tolist()],
            right=values[judged].mean().item(),
        )  # fmt: skip
    return found


def _mixed(p_knn: Tensor, p_mt: Tensor, weight: float) -> Tensor:
    return (weight * p_knn + (1 - weight) * p_mt).clamp_min(FLOOR).log()
