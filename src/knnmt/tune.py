"""Settings of retrieval for a store, found on a dev set: coarse by likelihood, fine by BLEU.

The references are shown to the model once, and what their states find is kept: from that the likelihood of the
references under any k, temperature and weight follows without running the model again. Where the likeliest settings lie
at an end of a grid, the search goes on beyond it. The best few settings, and neighbours of the best, then translate the
dev set; so do base MT and the untuned settings. Last, a gate is trained with what the references' states find under the
best settings with λ by distance, and translates the dev set as well.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from math import sqrt
from statistics import fmean
from typing import NamedTuple

import torch

from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.errors import UsageError
from knnmt.evaluate import bleu, chrf, mean_chrf
from knnmt.held_out import DevSet, Fold, held_out
from knnmt.model.checkpoint import Model
from knnmt.overlap import overlaps
from knnmt.references import Seen, lesson, see
from knnmt.retrieval.combine import MOST
from knnmt.retrieval.gate import Lesson, Purpose, train
from knnmt.retrieval.session import Retriever, automatic, require_system
from knnmt.store.manifest import TUNED
from knnmt.systems.settings import SILENT, Adapt, RetrievalSettings
from knnmt.translate import TranslateSettings, Translator

Progress = Callable[[str, int, int | None], None]
"""Called with a stage's name, the work done since the last call, and the whole of it."""

# coarse grids; temperatures and reaches are fractions of the median distance between random keys
K = (4, 8, 16, 32, 64, 128, 256, 512)
TEMPERATURES = (1 / 160, 1 / 80, 1 / 40, 1 / 20, 1 / 10)
CONSTANT = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
MOST_WEIGHTS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.99)
REACHES = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
# c, of the systems that have one: each is tried while more is better
SIZES: dict[str, tuple[int, ...]] = {"fast": (16, 64, 256, 1024), "proto": (16, 64, 256, 1024)}
LEANS = (0.0, 0.5)  # what is added to the log-odds of a gate's λ: translation likes more than likelihood does
# how far the search goes beyond the ends of the grids
TEMPERATURE_LIMITS, WEIGHT_LIMITS, REACH_LIMITS = (1 / 2560, 1.6), (0.01, 0.99), (1 / 128, 32.0)
EQUAL = 1e-3  # nats a token: likelihoods that differ by less are the same, and the cheaper settings come first
GREEDY = TranslateSettings(beam=1, batch_size=64)
BETTER = 0.3  # of BLEU and chrF, that settings must be better than the untuned ones by to be kept for a store


@dataclass(frozen=True)
class Figures:
    """Scores of one dev set; `mean_chrf` is that of its segments, each counted alike."""

    bleu: float
    chrf: float
    mean_chrf: float


@dataclass(frozen=True)
class Trial:
    """Settings that translated the dev set: their BLEU, and the mean log-likelihood of a reference token.

    With several dev sets both are means over them, and `sets` has the figures of each, by its name. `ends` names the
    values that lie at the end of what is searched: beyond it there may be better ones.
    """

    settings: RetrievalSettings
    likelihood: float
    bleu: float
    sets: dict[str, Figures]
    ends: tuple[str, ...] = ()


class Axis(NamedTuple):
    """Values of a setting that are tried: a grid, and the limits of what is tried beyond its ends.

    A share goes towards 1 by halves of what is left, everything else doubles; all go down by halves.
    """

    grid: tuple[float, ...]
    limits: tuple[float, float]
    share: bool = False

    def beyond(self, value: float) -> float | None:
        """The next value, where this one is at an end of the grid or beyond it; None inside, and at the limits."""
        least, most = self.limits
        if value <= min(self.grid) * 1.001:
            return max(value / 2, least) if value > least * 1.001 else None
        if value >= max(self.grid) * 0.999:
            further = (1 + value) / 2 if self.share else 2 * value
            return min(further, most) if value < most * 0.999 else None
        return None

    def ends_at(self, value: float) -> bool:
        """Whether a value is as far out as the search goes."""
        least, most = self.limits
        return value <= least * 1.001 or value >= most * 0.999


def _axes(settings: RetrievalSettings, scale: float) -> dict[str, Axis]:
    """What is searched of the settings besides k and c."""
    distant = settings.adapt == "distance"
    axes = {"temperature": Axis(TEMPERATURES, TEMPERATURE_LIMITS)} | (
        {"reach": Axis(REACHES, REACH_LIMITS)} if distant else {}
    )
    scaled = {
        name: Axis(tuple(scale * x for x in axis.grid), (scale * axis.limits[0], scale * axis.limits[1]))
        for name, axis in axes.items()
    }
    return scaled | {"weight": Axis(MOST_WEIGHTS if distant else CONSTANT, WEIGHT_LIMITS, share=True)}


def tune(
    model: Model,
    store: Datastore,
    dev: Sequence[Segment],
    system: str,
    *,
    adapt: Sequence[Adapt] = ("constant", "distance", "learned"),
    decoded: int = 6,
    translate: TranslateSettings | None = None,
    left_out: Collection[int] = (),
    given: RetrievalSettings | None = None,
    progress: Progress | None = None,
) -> list[Trial]:
    """Search k, T, λ and τ (and c of fast and proto) for a system: all settings that translated the dev set, the best
    first.

    `decoded` settings are chosen by likelihood and translate the dev set, then as many neighbours of the best; base MT,
    and the untuned settings where λ may fall with the distance, are always among them. Where λ may be `learned`, a gate
    is trained for the best settings by distance, which it falls back on and which are tried too. `left_out` are numbers
    of the store's segments that are not used: give those that also stand in the dev set (`Overlaps.segments`). `given`
    are settings of which all that is not searched for is kept, such as `index`. The default is greedy search.
    """
    sets = [DevSet("dev", (Fold(dev, frozenset(left_out)),))]
    # what is tuned is retrieval: a text that the store has as a whole would come out right with any settings
    options = (translate or GREEDY).model_copy(update={"exact": False})
    search = _Search(model, store, sets, (given or RetrievalSettings()).of(system), options, progress)
    return search.run(adapt, decoded)


@dataclass(frozen=True)
class Tuned:
    """What a store was tuned to, beside base MT and the untuned settings; the same trial where nothing was better."""

    best: Trial
    untuned: Trial
    base: Trial
    segments: dict[str, int]  # of each dev set, by its name
    held_out: bool


def tune_store(
    model: Model,
    store: Datastore,
    dev: Sequence[Segment] | None = None,
    *,
    decoded: int = 4,
    progress: Progress | None = None,
) -> Tuned:
    """Tune what `auto` stands for, and keep the best settings beside the store, where `translate` finds them.

    Without a dev set, segments of the store are held out: some of projects that it knows, and some of projects that it
    does not know (`knnmt.held_out`). What is found there is followed half of the way only, and kept only if it is
    better than the untuned settings by more than chance, and on neither of the two worse. λ is by distance then; with a
    dev set a gate may be learned.
    """
    if dev is None:
        sets = held_out(store)
    else:
        sets = [DevSet("dev", (Fold(dev, overlaps(store, [segment.source for segment in dev]).segments),))]
    search = _Search(model, store, sets, RetrievalSettings(system=automatic(store)), GREEDY, progress)
    if dev is None:
        best = search.halfway(search.run(("distance",), decoded)[0])
    else:
        best = search.run(("distance", "learned"), decoded)[0]
    base, untuned = search.trials[search.silent], search.trials[search.untuned]
    if search.gain(best) < BETTER:
        best = untuned
    tuned = Tuned(best, untuned, base, {some.name: len(some) for some in search.sets}, dev is None)
    notes = {
        name: {some: asdict(figures) for some, figures in trial.sets.items()}
        for name, trial in (("tuned", best), ("untuned", untuned), ("base", base))
    }
    best.settings.save(store.path / TUNED, **notes, segments=tuned.segments, held_out=tuned.held_out)
    return tuned


class _Search:
    """The settings of a system, judged by dev sets."""

    def __init__(
        self,
        model: Model,
        store: Datastore,
        sets: Sequence[DevSet],
        given: RetrievalSettings,
        options: TranslateSettings,
        progress: Progress | None,
    ) -> None:
        require_system(given.system)
        self.model, self.store, self.options = model, store, options
        self.sets = [DevSet(some.name, tuple(_usable(some.folds))) for some in sets]
        if not all(len(some) for some in self.sets):
            raise UsageError("there is nothing to tune on: the dev set has no segments")
        self.watch = progress or (lambda stage, done, total: None)
        self.most = _most_k(store, given.system)
        self.given = given.without_gate().model_copy(update={"k": self.most})
        self.first = {
            fold.left_out: Retriever(store, model.device, self.given, left_out=fold.left_out)
            for some in self.sets
            for fold in some.folds
        }
        self.scale = next(iter(self.first.values())).tensors.scale
        self.silent = self._settings(adapt="constant", weight=SILENT)
        self.untuned = self._untuned()
        self.likelihoods: dict[RetrievalSettings, float] = {}
        self.seen: dict[int | None, list[Seen]] = {}  # of each dev set, by c
        self.trials: dict[RetrievalSettings, Trial] = {}

    def run(self, adapt: Sequence[Adapt], decoded: int) -> list[Trial]:
        """All trials, the best first."""
        rules = set(adapt) | {"distance"} if "learned" in adapt else set(adapt)
        leans = LEANS[:decoded] if "learned" in adapt else ()
        self._look_up(rules)
        self._go_beyond(self._ranked(), rules)
        ranked = self._ranked()
        first = [self.silent, *([self.untuned] if "distance" in rules else []), *_spread(ranked, decoded)]
        first = list(dict.fromkeys(first))
        total = len(first) + decoded + len(leans)
        self.watch("translate", 0, total)
        for settings in first:
            self._measure(settings, total)
        best = self._best(self.trials.values())
        if best.settings != self.silent:
            around = _around(best.settings, self.scale, self.most)
        else:
            near = self._best(trial for trial in self.trials.values() if trial is not best)
            around = _shyer(near.settings, self.scale)
        for settings in [settings for settings in around if settings not in self.trials][:decoded]:
            self._measure(settings, total)
        if leans:
            distant = [trial for trial in self.trials.values() if trial.settings.adapt == "distance"]
            ruled = self._best(distant).settings
            for settings, likelihood in self._learned(ruled, leans):
                self.likelihoods[settings] = likelihood
                self._measure(settings, total)
        return sorted(self.trials.values(), key=lambda trial: -self.gain(trial))

    def halfway(self, found: Trial) -> Trial:
        """Half of the way from the untuned settings to some, both by distance: segments of the store itself tell which
        direction is better, and nothing of how far texts from elsewhere would follow."""
        if found.settings == self.silent:
            return found
        ours, theirs = self.untuned, found.settings
        middle = theirs.model_copy(
            update={
                "weight": (ours.most_weight + theirs.most_weight) / 2,
                "reach": sqrt(ours.reach_of(self.scale) * theirs.reach_of(self.scale)),
                "temperature": sqrt(ours.temperature_of(self.scale) * theirs.temperature_of(self.scale)),
            }
        )
        if middle not in self.trials:
            self._measure(middle, len(self.trials) + 1)
        return self.trials[middle]

    def gain(self, trial: Trial) -> float:
        """How much better a trial is than the untuned settings, or than base MT where those were not tried.

        By BLEU; with several dev sets by the mean of BLEU, chrF and the segments' mean chrF on all sets, if none of
        these is worse, else by the worst of them.
        """
        than = self.trials.get(self.untuned) or self.trials[self.silent]
        if len(trial.sets) == 1:
            return trial.bleu - than.bleu
        pairs = list(zip(trial.sets.values(), than.sets.values(), strict=True))
        gains = [
            one - other for ours, theirs in pairs for one, other in zip(astuple(ours), astuple(theirs), strict=True)
        ]
        return fmean(gains) if min(gains) >= 0 else min(gains)

    # ------------------------------------------------------------------------------------------------ likelihood

    def _look_up(self, rules: Collection[str]) -> None:
        """The likelihoods of all settings of the grids; c grows while more of it is better."""
        sizes: tuple[int | None, ...] = SIZES.get(self.given.system, (None,))
        best = -float("inf")
        for size in sizes:
            self.seen[size] = self._see(size, len(sizes))
            found = dict(self._coarse(size, rules))
            self.likelihoods |= found
            before, best = best, max(best, *found.values())
            if best < before + EQUAL:
                break

    def _see(self, size: int | None, sizes: int = 0) -> list[Seen]:
        """What the states of the references find, in each dev set."""
        total = sizes * sum(map(len, self.sets))
        seen = []
        for some in self.sets:
            sized = self.given.model_copy(update={"c": size})
            shown = [(self._retriever(fold, sized), fold.segments) for fold in some.folds]
            seen.append(see(self.model, shown, lambda done: self.watch("look up", done, total) if total else None))
        if not all(seen):
            raise UsageError("there is nothing to tune on: all segments of the dev set are too long for the model")
        return [one for one in seen if one is not None]

    def _coarse(self, size: int | None, rules: Collection[str]) -> Iterator[tuple[RetrievalSettings, float]]:
        """The likelihood of the references under all settings of the grids."""
        shares: list[dict[str, object]] = []
        if "constant" in rules:
            shares += [{"adapt": "constant", "weight": weight} for weight in CONSTANT]
        if "distance" in rules:
            pairs = itertools.product(MOST_WEIGHTS, REACHES)
            shares += [{"adapt": "distance", "weight": weight, "reach": self.scale * reach} for weight, reach in pairs]
        counts = [None] if self.most is None else [*(k for k in K if k < self.most), self.most]
        for k, fraction in itertools.product(counts, TEMPERATURES):
            found = {"k": k, "c": size, "temperature": self.scale * fraction}
            p_knn = [seen.p_knn(k, self.scale * fraction) for seen in self.seen[size]]
            for share in shares:
                settings = self.given.model_copy(update=found | share)
                each = (seen.likelihood(settings, p) for seen, p in zip(self.seen[size], p_knn, strict=True))
                yield settings, fmean(each)

    def _ranked(self) -> list[RetrievalSettings]:
        """The likeliest settings first; of equals, those that cost less."""
        return sorted(self.likelihoods, key=lambda s: (-round(self.likelihoods[s] / EQUAL), s.k or 0, s.c or 0))

    def _go_beyond(self, ranked: Sequence[RetrievalSettings], rules: Collection[str]) -> None:
        """Look beyond the ends of the grids, from the likeliest settings of each kind on, as far as it gets better."""
        for rule in sorted({"constant", "distance"}.intersection(rules)):
            best = next(settings for settings in ranked if settings.adapt == rule)
            moved = True
            while moved:
                moved = False
                for name, axis in _axes(best, self.scale).items():
                    while (value := axis.beyond(getattr(best, name))) is not None:
                        further = best.model_copy(update={name: value})
                        if self._likelihood(further) < self.likelihoods[best] + EQUAL:
                            break
                        best, moved = further, True

    def _likelihood(self, settings: RetrievalSettings) -> float:
        if settings not in self.likelihoods:
            if settings.c not in self.seen:
                self.seen[settings.c] = self._see(settings.c)
            self.likelihoods[settings] = fmean(seen.likelihood(settings) for seen in self.seen[settings.c])
        return self.likelihoods[settings]

    # ----------------------------------------------------------------------------------------------- translation

    def _measure(self, settings: RetrievalSettings, total: int) -> None:
        """Translate the dev sets."""
        translator = Translator(self.model, self.store, system="base")
        figures = {}
        for some in self.sets:
            texts: list[str] = []
            for fold in some.folds:
                if settings != self.silent:
                    translator.retriever, translator.left_out = self._retriever(fold, settings), fold.left_out
                texts += [found.text for found in translator.translate([s.source for s in fold.segments], self.options)]
            references = [segment.target for fold in some.folds for segment in fold.segments]
            scores = bleu(texts, references).value, chrf(texts, references).value, mean_chrf(texts, references)
            figures[some.name] = Figures(*scores)
        mean = fmean(each.bleu for each in figures.values())
        self.trials[settings] = Trial(settings, self._likelihood(settings), mean, figures, tuple(self._ends(settings)))
        self.watch("translate", 1, total)

    def _best(self, trials: Iterable[Trial]) -> Trial:
        return max(trials, key=self.gain)

    def _learned(self, ruled: RetrievalSettings, leans: Sequence[float]) -> Iterator[tuple[RetrievalSettings, float]]:
        """Settings with a gate that learnt from the references, as it is and leaning to the store; and their
        likelihood. None where the store has nothing for these."""
        total = sum(map(len, self.sets))
        shown = [[(self._retriever(fold, ruled), fold.segments) for fold in some.folds] for some in self.sets]
        lessons = [lesson(self.model, some, lambda done: self.watch("learn", done, total)) for some in shown]
        made = self.store.manifest
        gate = train(_together(lessons), Purpose(ruled.system, made.key, made.metric))
        for lean in leans if gate is not None else ():
            assert gate is not None
            leaning = gate.leaning(lean)
            each = (float(one.log_p(leaning(one.seen).clamp(max=MOST)).mean()) for one in lessons)
            yield ruled.model_copy(update={"adapt": "learned", "gate": leaning}), fmean(each)

    # -------------------------------------------------------------------------------------------------- settings

    def _retriever(self, fold: Fold, settings: RetrievalSettings) -> Retriever:
        return Retriever(self.store, self.model.device, settings, tensors=self.first[fold.left_out].tensors)

    def _settings(self, **changes: object) -> RetrievalSettings:
        """Settings with numbers for all that has a default by the store."""
        size = self.given.seen if self.given.system in SIZES else None
        numbers = {"c": size, "temperature": self.given.temperature_of(self.scale)}
        return self.given.model_copy(update=numbers | changes)

    def _untuned(self) -> RetrievalSettings:
        """What a system does where nothing was tuned."""
        fresh = RetrievalSettings(system=self.given.system)
        k = None if self.most is None else min(fresh.k or self.most, self.most)
        return self._settings(
            k=k, adapt="distance", weight=fresh.most_weight, reach=fresh.reach_of(self.scale),
            temperature=fresh.temperature_of(self.scale),
        )  # fmt: skip

    def _ends(self, settings: RetrievalSettings) -> Iterator[str]:
        """The values that lie at an end of what is searched."""
        if settings == self.silent:
            return
        if self.most is not None and settings.k == self.most:
            yield f"k = {settings.k}"
        if settings.c is not None and settings.c == max(SIZES.get(settings.system, (0,))):
            yield f"c = {settings.c}"
        letters = {"temperature": "T", "reach": "τ", "weight": "λ"}
        for name, axis in _axes(settings, self.scale).items() if settings.adapt != "learned" else ():
            if axis.ends_at(value := getattr(settings, name)):
                yield f"{letters[name]} = {value:.3g}"


def _usable(folds: Iterable[Fold]) -> Iterator[Fold]:
    """Folds without what has no text on one side."""
    for fold in folds:
        if segments := [segment for segment in fold.segments if segment.source.strip() and segment.target.strip()]:
            yield Fold(segments, fold.left_out)


def _together(lessons: Sequence[Lesson]) -> Lesson:
    """One lesson of several, whose segments are others."""
    columns = []
    before = 0
    for one in lessons:
        columns.append((one.seen, one.p_knn, one.p_mt, one.asked, one.fixed, one.segments + before))
        before += int(one.segments.max()) + 1
    return Lesson(*(torch.cat(column) for column in zip(*columns, strict=True)))


def _most_k(store: Datastore, system: str) -> int | None:
    """The largest k to be tried; None where a system takes all that a sentence sees."""
    if system == "similar":
        return None
    k_max = store.manifest.settings["k_max"] if system == "faster" else None
    return min(max(K), k_max or max(K), store.sizes["entries"])


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
