"""Settings of retrieval for a store, found on a dev set: coarse by likelihood, fine by BLEU.

The references are shown to the model once, and what their states find is kept: from that the likelihood of the
references under any k, temperature and weight follows without running the model again. The best few settings, and
neighbours of the best, then translate the dev set; so does base MT. Last, a gate is trained with what the references'
states find under the best settings with λ by distance, and translates the dev set as well.
"""

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.corpus.segment import Segment
from knnmt.datastore.format import TUNED
from knnmt.datastore.store import Datastore
from knnmt.errors import UsageError
from knnmt.evaluate import bleu
from knnmt.model.checkpoint import Model
from knnmt.model.represent import batches, padded
from knnmt.model.transformer import States
from knnmt.overlap import overlaps
from knnmt.retrieval.combine import MOST, weights
from knnmt.retrieval.gate import Lesson, Purpose, features, train
from knnmt.retrieval.settings import Adapt, RetrievalSettings
from knnmt.retrieval.systems import Retriever, SentenceLookup, automatic, require_system
from knnmt.translate import TranslateSettings, Translator

Progress = Callable[[str, int, int | None], None]
"""Called with a stage's name, the work done since the last call, and the whole of it."""

# coarse grids; temperatures and reaches are fractions of the median distance between random keys
K = (4, 8, 16, 32, 64)
TEMPERATURES = (1 / 160, 1 / 80, 1 / 40, 1 / 20, 1 / 10)
CONSTANT = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MOST_WEIGHTS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
REACHES = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
SIZES: dict[str, tuple[int, ...]] = {"fast": (16, 64, 256), "proto": (16, 64)}  # c, of the system that has one
LEANS = (0.0, 0.5)  # what is added to the log-odds of a gate's λ: translation likes more than likelihood does
BATCH_TOKENS = 4096
HELD_OUT = 200  # segments of a store that it is tuned on where there is no dev set


@dataclass(frozen=True)
class Trial:
    """Settings that translated the dev set: their BLEU, and the mean log-likelihood of a reference token."""

    settings: RetrievalSettings
    likelihood: float
    bleu: float


@dataclass(frozen=True)
class _Seen:
    """What the states of all reference tokens found: distances and matches (P, k), nearest and p_MT (P,)."""

    distances: Tensor
    matches: Tensor
    nearest: Tensor
    p_mt: Tensor
    log_counts: Tensor
    scale: float

    def p_knn(self, k: int | None, temperature: float) -> Tensor:
        """p_kNN of each reference token. (P,)."""
        scores = (self.log_counts[:, :k] - self.distances[:, :k] / temperature).softmax(dim=-1).nan_to_num()
        return (scores * self.matches[:, :k]).sum(dim=-1)

    def likelihood(self, settings: RetrievalSettings, p_knn: Tensor | None = None) -> float:
        """The mean log-likelihood of a reference token; `p_knn` is that of the settings, if it is known."""
        if p_knn is None:
            p_knn = self.p_knn(settings.k, settings.temperature_of(self.scale))
        weight = weights(self.nearest, settings, self.scale)
        return float((weight * p_knn + (1 - weight) * self.p_mt).clamp_min(1e-9).log().mean())


def tune(
    model: Model,
    store: Datastore,
    dev: Sequence[Segment],
    system: str,
    *,
    adapt: Sequence[Adapt] = ("constant", "distance", "learned"),
    decoded: int = 6,
    translate: TranslateSettings | None = None,
    removed: NDArray[np.bool_] | None = None,
    progress: Progress | None = None,
) -> list[Trial]:
    """Search k, T, λ and τ (and c of fast) for a system: all settings that translated the dev set, the best first.

    `decoded` settings are chosen by likelihood and translate the dev set, then as many neighbours of the best; λ = 0,
    which is base MT, is always among them. Where λ may be `learned`, a gate is trained for the best settings by
    distance, which it falls back on and which are tried too. `removed` entries are not used: give those of segments
    that also stand in the dev set (`Overlaps.entries`). The default is greedy search.
    """
    require_system(system)
    dev = [segment for segment in dev if segment.source.strip() and segment.target.strip()]
    if not dev:
        raise UsageError("there is nothing to tune on: the dev set has no segments")
    watch = progress or (lambda stage, done, total: None)
    rules = set(adapt) | {"distance"} if "learned" in adapt else set(adapt)
    leans = LEANS[:decoded] if "learned" in adapt else ()
    total = 1 + 2 * decoded + len(leans)
    likelihoods: dict[RetrievalSettings, float] = {}
    seen: dict[int | None, _Seen] = {}  # by c
    sizes: tuple[int | None, ...] = SIZES.get(system, (None,))
    most = _most_k(store, system)
    retriever = Retriever(store, model.device, RetrievalSettings(system=system, k=most), removed=removed)
    for size in sizes:
        base = retriever.settings.model_copy(update={"c": size})
        some = Retriever(store, model.device, base, tensors=retriever.tensors)
        seen[size] = _see(model, some, dev, lambda done: watch("look up", done, len(sizes) * len(dev)))
        likelihoods |= dict(_coarse(seen[size], base, rules))
    translator = Translator(model)
    sources, references = [s.source for s in dev], [s.target for s in dev]
    # what is tuned is retrieval: a text that the store has word for word would come out right with any settings
    options = (translate or TranslateSettings(beam=1, batch_size=64)).model_copy(update={"exact": False})
    trials: dict[RetrievalSettings, Trial] = {}

    def measure(settings: RetrievalSettings) -> None:
        translator.retriever = Retriever(store, model.device, settings, tensors=retriever.tensors)
        texts = [found.text for found in translator.translate(sources, options)]
        likelihood = likelihoods.get(settings) or seen[settings.c].likelihood(settings)
        trials[settings] = Trial(settings, likelihood, bleu(texts, references).value)
        watch("translate", 1, total)

    ranked = sorted(likelihoods, key=lambda settings: -likelihoods[settings])
    watch("translate", 0, total)
    none = ranked[0].model_copy(update={"weight": 0.0, "adapt": "constant", "reach": None})
    for settings in (none, *_spread(ranked, decoded)):
        measure(settings)
    best = max(trials.values(), key=lambda trial: trial.bleu)
    if best.settings is not none:
        around = _around(best.settings, retriever.tensors.scale, most)
    else:
        near = max((trial for trial in trials.values() if trial is not best), key=lambda trial: trial.bleu)
        around = _shyer(near.settings, retriever.tensors.scale)
    finer = [settings for settings in around if settings not in trials]
    for settings in finer[:decoded]:
        measure(settings)
    if leans:
        likely = next(settings for settings in ranked if settings.adapt == "distance")
        distant = [trial for trial in trials.values() if trial.settings.adapt == "distance"]
        ruled = max(distant, key=lambda trial: trial.bleu).settings if distant else likely
        some = Retriever(store, model.device, ruled, tensors=retriever.tensors)
        for settings, likelihood in _learned(model, some, dev, leans, lambda done: watch("learn", done, len(dev))):
            likelihoods[settings] = likelihood
            measure(settings)
    return sorted(trials.values(), key=lambda trial: -trial.bleu)


def tune_store(
    model: Model,
    store: Datastore,
    dev: Sequence[Segment] | None = None,
    *,
    decoded: int = 4,
    progress: Progress | None = None,
) -> Trial:
    """Tune what `auto` stands for, and keep the best settings beside the store, where `translate` finds them.

    Without a dev set, some of the store's own segments are translated without what the store has of them.
    """
    held_out = dev is None
    chosen = list(dev) if dev is not None else _held_out(store)
    found = overlaps(store, [segment.source for segment in chosen])
    system = automatic(store)
    trials = tune(
        model, store, chosen, system, adapt=("distance", "learned"), decoded=decoded,
        removed=found.entries(store) if found.count else None, progress=progress,
    )  # fmt: skip
    base = next(trial for trial in trials if not trial.settings.weight)
    notes = {"bleu": trials[0].bleu, "base_bleu": base.bleu, "segments": len(chosen), "held_out": held_out}
    trials[0].settings.save(store.path / TUNED, **notes)
    return trials[0]


def _held_out(store: Datastore) -> list[Segment]:
    """Some of the store's segments, from all over it."""
    count = store.part.sizes["segments"]
    return [store.part.segment(number) for number in range(0, count, max(1, count // HELD_OUT))][:HELD_OUT]


def _most_k(store: Datastore, system: str) -> int | None:
    """The largest k to be tried; None where a system takes all that a sentence sees."""
    if system == "similar":
        return None
    k_max = store.manifest.settings["k_max"] if system == "faster" else None
    return min(max(K), k_max or max(K))


class _Shown(NamedTuple):
    """Some references as the model sees them, beside what their sentences may see of the store.

    states of their tokens, (B, T, d) each; logits (B, T, V); wanted: (B, T), the tokens; there: (B, T), whether one is
    """

    look: SentenceLookup
    states: States
    logits: Tensor
    wanted: Tensor
    there: Tensor
    segments: list[int]

    @property
    def query(self) -> Tensor:
        """What is looked up. (B, T, d)."""
        return self.look.tensors.query(self.states.key(self.look.key))

    def of_wanted(self, log_p: Tensor) -> Tensor:
        """The probability of each token. (B, T, V) to (B, T)."""
        return log_p.gather(2, self.wanted[:, :, None])[:, :, 0].exp()


def _show(model: Model, retriever: Retriever, dev: Sequence[Segment]) -> Iterator[_Shown]:
    """Show the references to the model, a batch at a time; those that are too long for it are left out."""
    special, network = model.special, model.transformer
    sources = model.tokenizer.encode_source([segment.source for segment in dev])
    targets = [[*special.prefix, *ids] for ids in model.tokenizer.encode_target([segment.target for segment in dev])]
    room = network.architecture.max_positions - 1
    fitting = [
        n for n, (s, t) in enumerate(zip(sources, targets, strict=True)) if len(s) <= model.max_source and len(t) < room
    ]
    if not fitting:
        raise UsageError("there is nothing to tune on: all segments of the dev set are too long for the model")
    for rows in batches([max(len(sources[n]), len(targets[n]) + 1) for n in fitting], BATCH_TOKENS):
        some = [fitting[row] for row in rows]
        ids, mask = padded([sources[n] for n in some], special.pad, model.device)
        given, _ = padded([[special.start, *targets[n]] for n in some], special.pad, model.device)
        wanted, there = padded([[*targets[n], special.end] for n in some], special.pad, model.device)
        there[:, : len(special.prefix)] = False
        encoded = network.encode(ids, mask)
        states = network.force(given, encoded)
        look = retriever.look(ids, mask, encoded.states)
        yield _Shown(look, states, network.logits(states.output), wanted, there, some)


@torch.inference_mode()
def _see(model: Model, retriever: Retriever, dev: Sequence[Segment], advance: Callable[[int], None]) -> _Seen:
    """Look up all states of the references."""
    seen: list[tuple[Tensor, ...]] = []
    for shown in _show(model, retriever, dev):
        found = shown.look.lookup.find(shown.query)
        matches = found.tokens == shown.wanted[:, :, None]
        counts = found.log_counts.expand_as(found.distances)
        p_mt = shown.of_wanted(shown.logits.log_softmax(dim=-1))
        kept = found.distances, matches, counts, found.nearest, p_mt
        seen.append(tuple(each[shown.there].cpu() for each in kept))
        advance(len(shown.segments))
    columns = list(zip(*seen, strict=True))
    return _Seen(
        distances=_joined(columns[0], torch.inf),
        matches=_joined(columns[1], False),
        log_counts=_joined(columns[2], 0.0),
        nearest=torch.cat(columns[3]),
        p_mt=torch.cat(columns[4]),
        scale=retriever.tensors.scale,
    )


def _learned(
    model: Model, retriever: Retriever, dev: Sequence[Segment], leans: Sequence[float], advance: Callable[[int], None]
) -> Iterator[tuple[RetrievalSettings, float]]:
    """The retriever's settings with a gate that learnt from the references, as it is and leaning to the store; and
    their likelihood. None where the store has nothing for these."""
    lesson, made = _lesson(model, retriever, dev, advance), retriever.store.manifest
    gate = train(lesson, Purpose(retriever.settings.system, made.key, made.metric))
    for lean in leans if gate is not None else ():
        assert gate is not None
        leaning = gate.leaning(lean)
        settings = retriever.settings.model_copy(update={"adapt": "learned", "gate": leaning})
        yield settings, float(lesson.log_p(leaning(lesson.seen).clamp(max=MOST)).mean())


@torch.inference_mode()
def _lesson(model: Model, retriever: Retriever, dev: Sequence[Segment], advance: Callable[[int], None]) -> Lesson:
    """What a gate sees of each reference token in a step that wants it, by the functions of a step."""
    seen: list[tuple[Tensor, ...]] = []
    for shown in _show(model, retriever, dev):
        found = shown.look.neighbours(shown.states)
        fixed = shown.look.weight(found, shown.logits, shown.logits[:, :, 0])  # by distance
        open_ = found.nearest < torch.inf
        p_knn = _p_of(found.tokens, found.log_p, shown.wanted)
        heard = shown.look.heard(shown.states, found.nearest)
        if heard is not None:  # a lesson has a weight of its own, whatever the gate says
            open_ &= heard.weight == 0
        log_p = shown.logits.log_softmax(dim=-1)
        given = features(found, log_p, torch.zeros_like(log_p[:, :, 0]), shown.look.tensors.scale)
        numbers = torch.tensor(shown.segments, device=given.device)[:, None].expand(open_.shape)
        columns = given, p_knn, shown.of_wanted(log_p), open_, fixed, numbers
        seen.append(tuple(each[shown.there].cpu() for each in columns))
        advance(len(shown.segments))
    return Lesson(*(torch.cat(column) for column in zip(*seen, strict=True)))


def _p_of(tokens: Tensor, log_p: Tensor, wanted: Tensor) -> Tensor:
    """p of the wanted token (B, K), given the tokens that have any (B, K, k), which may be there several times."""
    return log_p.masked_fill(tokens != wanted[:, :, None], -torch.inf).amax(dim=2).exp()


def _joined(parts: Sequence[Tensor], filler: float) -> Tensor:
    """Rows of several lengths as one table, filled up."""
    longest = max(part.size(1) for part in parts)
    return torch.cat([torch.nn.functional.pad(part, (0, longest - part.size(1)), value=filler) for part in parts])


def _coarse(seen: _Seen, base: RetrievalSettings, rules: Collection[str]) -> Iterator[tuple[RetrievalSettings, float]]:
    """The likelihood of the references under all settings of the grids."""
    shares: list[dict[str, object]] = []
    if "constant" in rules:
        shares += [{"adapt": "constant", "weight": weight} for weight in CONSTANT]
    if "distance" in rules:
        pairs = itertools.product(MOST_WEIGHTS, REACHES)
        shares += [{"adapt": "distance", "weight": weight, "reach": seen.scale * reach} for weight, reach in pairs]
    most = base.k
    sizes = [None] if most is None else [k for k in K if k <= most] or [most]
    for k, fraction in itertools.product(sizes, TEMPERATURES):
        found = {"k": k, "temperature": seen.scale * fraction}
        p_knn = seen.p_knn(k, seen.scale * fraction)
        for share in shares:
            settings = base.model_copy(update=found | share)
            yield settings, seen.likelihood(settings, p_knn)


def _spread(ranked: Sequence[RetrievalSettings], count: int) -> list[RetrievalSettings]:
    """The best settings that differ from one another: one for each kind of weight, size and temperature."""
    chosen: dict[tuple[object, ...], RetrievalSettings] = {}
    for settings in ranked:
        chosen.setdefault((settings.adapt, settings.c, settings.temperature), settings)
        if len(chosen) == count:
            break
    return list(chosen.values())


def _around(best: RetrievalSettings, scale: float, most: int | None) -> Iterator[RetrievalSettings]:
    """Settings near the best: translation likes more weight and other temperatures than likelihood does."""
    weight, reach, temperature = best.most_weight, best.reach_of(scale), best.temperature_of(scale)
    heavier = min(0.95, weight + 0.15)
    distant = best.adapt == "distance"
    updates: list[dict[str, object]] = [
        {"weight": heavier},
        {"reach": 2 * reach} if distant else {"weight": max(0.05, weight - 0.15)},
        {"temperature": temperature * 2},
        {"temperature": temperature / 2},
        {"weight": heavier, "reach": 2 * reach} if distant else {"weight": min(0.95, weight + 0.3)},
    ]
    if best.k is not None and most is not None and 2 * best.k <= most:
        updates.append({"k": best.k * 2})
    yield from dict.fromkeys(best.model_copy(update=update) for update in updates)


def _shyer(good: RetrievalSettings, scale: float) -> Iterator[RetrievalSettings]:
    """Settings that leave more to the model, for a store that has little for these texts: with more they were worse
    than base MT, which likelihood does not tell."""
    weight, reach = good.most_weight, good.reach_of(scale)
    updates: list[dict[str, object]] = (
        [{"reach": reach / 2}, {"reach": reach / 4}, {"weight": weight / 2, "reach": reach / 2}]
        if good.adapt == "distance"
        else [{"weight": weight / 2}, {"weight": weight / 4}]
    )
    yield from (good.model_copy(update=update) for update in updates)
