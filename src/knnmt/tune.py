"""Settings of retrieval for a store, found on a dev set: coarse by likelihood, fine by BLEU.

The references are shown to the model once, and what their states find is kept: from that the likelihood of the
references under any k, temperature and weight follows without running the model again. The best few settings, and
neighbours of the best, then translate the dev set.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.corpus.segment import Segment
from knnmt.datastore.store import Datastore
from knnmt.errors import UsageError
from knnmt.evaluate import bleu
from knnmt.model.checkpoint import Model
from knnmt.model.represent import batches, padded
from knnmt.retrieval.combine import MOST
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.retrieval.systems import Retriever
from knnmt.translate import TranslateSettings, Translator

# coarse grids; temperatures and reaches are fractions of the median distance between random keys
K = (4, 8, 16, 32, 64)
TEMPERATURES = (1 / 160, 1 / 80, 1 / 40, 1 / 20, 1 / 10)
CONSTANT = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MOST_WEIGHTS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
REACHES = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
SIZES = {"fast": ("c", (16, 64, 256))}  # what else a system is searched over
BATCH_TOKENS = 4096


@dataclass(frozen=True)
class Trial:
    """Settings that were tried: the mean log-likelihood of a reference token, and BLEU where it was measured."""

    settings: RetrievalSettings
    likelihood: float
    bleu: float | None = None


@dataclass(frozen=True)
class _Seen:
    """What the states of all reference tokens found: distances and matches (P, k), nearest and log p_MT (P,)."""

    distances: Tensor
    matches: Tensor
    nearest: Tensor
    p_mt: Tensor


def tune(
    model: Model,
    store: Datastore,
    dev: Sequence[Segment],
    system: str,
    *,
    adapt: Sequence[str] = ("constant", "distance"),
    decoded: int = 6,
    translate: TranslateSettings | None = None,
    removed: NDArray[np.bool_] | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[Trial]:
    """Search k, T, λ (and c of fast) for a system; all trials whose BLEU was measured, the best first.

    `decoded` settings are chosen by likelihood and translate the dev set, then as many neighbours of the best.
    `removed` entries are not used: give those of segments that also stand in the dev set.
    """
    dev = [segment for segment in dev if segment.source.strip() and segment.target.strip()]
    if not dev:
        raise UsageError("there is nothing to tune on: the dev set has no segments")
    coarse: list[Trial] = []
    name, sizes = SIZES.get(system, ("c", (RetrievalSettings().c,)))
    for size in sizes:
        base = RetrievalSettings(system=system, k=_most_k(store, system)).model_copy(update={name: size})
        retriever = Retriever(store, model.device, base, removed=removed)
        seen = _see(model, retriever, dev)
        coarse += _coarse(seen, retriever, base, adapt)
    coarse.sort(key=lambda trial: -trial.likelihood)
    retriever = Retriever(store, model.device, coarse[0].settings, removed=removed)
    translator = Translator(model, store, retrieval=coarse[0].settings)
    sources, references = [s.source for s in dev], [s.target for s in dev]
    options = translate or TranslateSettings(beam=1, batch_size=64)

    def measured(trial: Trial) -> Trial:
        translator.retriever = Retriever(store, model.device, trial.settings, tensors=retriever.tensors)
        texts = [found.text for found in translator.translate(sources, options)]
        if progress is not None:
            progress(1)
        return replace(trial, bleu=bleu(texts, references).value)

    tried = [measured(trial) for trial in _spread(coarse, decoded)]
    best = max(tried, key=_bleu)
    known = {trial.settings for trial in tried}
    finer = [s for s in _around(best.settings, retriever.tensors.scale) if s not in known]
    likelihoods = {trial.settings: trial.likelihood for trial in coarse}
    tried += [measured(Trial(s, likelihoods.get(s, float("nan")))) for s in finer[:decoded]]
    return sorted(tried, key=lambda trial: -_bleu(trial))


def _bleu(trial: Trial) -> float:
    return trial.bleu if trial.bleu is not None else -1.0


def _most_k(store: Datastore, system: str) -> int:
    k_max = store.manifest.settings["k_max"] if system == "faster" else None
    return min(max(K), k_max or max(K))


@torch.inference_mode()
def _see(model: Model, retriever: Retriever, dev: Sequence[Segment]) -> _Seen:
    """Show the references to the model, and look up all their states."""
    special, network = model.special, model.transformer
    sources = model.tokenizer.encode_source([segment.source for segment in dev])
    targets = [[*special.prefix, *ids] for ids in model.tokenizer.encode_target([segment.target for segment in dev])]
    room = network.architecture.max_positions - 1
    fitting = [
        n for n, (s, t) in enumerate(zip(sources, targets, strict=True)) if len(s) <= model.max_source and len(t) < room
    ]
    seen: list[tuple[Tensor, ...]] = []
    for rows in batches([max(len(sources[n]), len(targets[n]) + 1) for n in fitting], BATCH_TOKENS):
        some = [fitting[row] for row in rows]
        ids, mask = padded([sources[n] for n in some], special.pad, model.device)
        given, _ = padded([[special.start, *targets[n]] for n in some], special.pad, model.device)
        wanted, there = padded([[*targets[n], special.end] for n in some], special.pad, model.device)
        there[:, : len(special.prefix)] = False
        encoded = network.encode(ids, mask)
        states = network.force(given, encoded)
        look = retriever.look(ids, mask, encoded.states)
        found = look.lookup.find(look.tensors.query(states.key(look.key)))
        p_mt = network.logits(states.output).log_softmax(dim=-1).gather(2, wanted[:, :, None])[:, :, 0].exp()
        distances = found.distances.new_full((*there.shape, retriever.settings.k or 1), torch.inf)
        distances[:, :, : found.distances.size(2)] = found.distances
        matches = torch.zeros_like(distances, dtype=torch.bool)
        matches[:, :, : found.tokens.size(2)] = found.tokens == wanted[:, :, None]
        seen.append(tuple(each[there].cpu() for each in (distances, matches, found.nearest, p_mt)))
    return _Seen(*(torch.cat(column) for column in zip(*seen, strict=True)))


def _coarse(seen: _Seen, retriever: Retriever, base: RetrievalSettings, adapt: Sequence[str]) -> Iterator[Trial]:
    """The likelihood of the references under all settings of the grids."""
    scale = retriever.tensors.scale
    there = seen.nearest < torch.inf
    for k, fraction in itertools.product([k for k in K if k <= (base.k or 0)], TEMPERATURES):
        scores = (-seen.distances[:, :k] / (scale * fraction)).softmax(dim=-1).nan_to_num()
        p_knn = (scores * seen.matches[:, :k]).sum(dim=-1)
        found = base.model_copy(update={"k": k, "temperature": scale * fraction})
        if "constant" in adapt:
            for weight in CONSTANT:
                likelihood = _likelihood(seen.p_mt, p_knn, torch.where(there, weight, 0.0))
                yield Trial(found.model_copy(update={"weight": weight, "adapt": "constant"}), likelihood)
        if "distance" in adapt:
            for weight, reach in itertools.product(MOST_WEIGHTS, REACHES):
                near = torch.where(there, (1 - seen.nearest / (scale * reach)).clamp(0.0, 1.0), 0.0)
                update = {"weight": weight, "adapt": "distance", "reach": scale * reach}
                yield Trial(found.model_copy(update=update), _likelihood(seen.p_mt, p_knn, weight * near))


def _likelihood(p_mt: Tensor, p_knn: Tensor, weight: Tensor) -> float:
    weight = weight.clamp(max=MOST)
    return float((weight * p_knn + (1 - weight) * p_mt).clamp_min(1e-9).log().mean())


def _spread(ranked: Sequence[Trial], count: int) -> list[Trial]:
    """The best trials that differ from one another: one for each kind of weight, size and temperature."""
    chosen: dict[tuple[object, ...], Trial] = {}
    for trial in ranked:
        s = trial.settings
        chosen.setdefault((s.adapt, s.c, s.temperature), trial)
        if len(chosen) == count:
            break
    return list(chosen.values())


def _around(best: RetrievalSettings, scale: float) -> Iterator[RetrievalSettings]:
    """Settings near the best: translation likes more weight and other temperatures than likelihood does."""
    heavier = min(0.95, best.weight + 0.15)
    reach, temperature = best.reach_of(scale), best.temperature_of(scale)
    for update in (
        {"weight": heavier},
        {"reach": 2 * reach} if best.adapt == "distance" else {"weight": max(0.05, best.weight - 0.15)},
        {"temperature": temperature * 2},
        {"temperature": temperature / 2},
        {"weight": heavier, "reach": 2 * reach}
        if best.adapt == "distance"
        else {"weight": min(0.95, best.weight + 0.3)},
        {"k": (best.k or 16) * 2} if best.k is not None and 2 * best.k <= max(K) else {"weight": heavier},
    ):
        yield best.model_copy(update=update)
