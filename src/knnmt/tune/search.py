"""The search for the settings of a system: coarse by likelihood, then by translating the dev sets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from math import sqrt
from statistics import fmean
from typing import Any

import torch

from knnmt.evaluate import bleu, chrf, mean_chrf
from knnmt.retrieval.gate import Gate, Purpose
from knnmt.retrieval.mix import MOST
from knnmt.retrieval.tuned import Tuned
from knnmt.systems.settings import SILENT, Adapt, RetrievalSettings
from knnmt.translate import TranslateSettings, Translator
from knnmt.tune.dev import Dev
from knnmt.tune.gate import Lesson, train
from knnmt.tune.grid import Numbers, around, axes, lengths, more_cautious, spread
from knnmt.tune.held_out import Fold
from knnmt.tune.likelihood import Likelihoods
from knnmt.tune.references import lesson

LENGTHS = 3  # trials of other length penalties, at most
LEANS = (0.0, 0.5)  # what is added to the log-odds of a gate's λ: translation likes more than likelihood does


@dataclass(frozen=True)
class Figures:
    """Scores of one dev set; `mean_chrf` is the mean over its segments."""

    bleu: float
    chrf: float
    mean_chrf: float


@dataclass(frozen=True)
class Trial:
    """Settings that translated the dev sets: their BLEU, and the mean log-likelihood of a reference token.

    With several dev sets both are means over them, and `sets` has the figures of each by name. `ends` names the values
    at the end of what is searched: beyond it there may be better ones.
    """

    settings: RetrievalSettings
    gate: Gate | None
    likelihood: float
    bleu: float
    sets: dict[str, Figures]
    ends: tuple[str, ...] = ()

    @property
    def tuned(self) -> Tuned:
        """The settings with their gate."""
        return Tuned(self.settings, self.gate)

    def as_json(self) -> dict[str, Any]:
        """All of it but the gate, which has a file of its own."""
        figures = {name: asdict(some) for name, some in self.sets.items()}
        return {
            "settings": self.settings.model_dump(mode="json", by_alias=True), "likelihood": self.likelihood,
            "bleu": self.bleu, "sets": figures, "ends": self.ends,
        }  # fmt: skip


class Search:
    """Tries the settings of a system on dev sets; `trials` has those that translated them."""

    def __init__(self, dev: Dev, options: TranslateSettings) -> None:
        self.dev, self.options = dev, options
        self.likelihoods = Likelihoods(dev)
        self.trials: dict[Tuned, Trial] = {}
        # base MT: a λ that changes nothing, but lets lessons be heard
        self.silent = dev.given.model_copy(update={"adapt": "constant", "weight": SILENT})
        self.untuned = self._untuned()

    def run(self, adapt: Sequence[Adapt], decoded: int) -> list[Trial]:
        """All trials, the best first: base MT, the untuned settings, `decoded` by likelihood, as many around the best
        at the time, those with a gate, and with other length penalties, which decide nothing in greedy search."""
        kinds = set(adapt) | ({"distance"} if "learned" in adapt else set())
        leans = LEANS[:decoded] if "learned" in adapt else ()
        likeliest = spread(self.likelihoods.search(kinds), decoded)
        first = dict.fromkeys([self.silent, *([self.untuned] if "distance" in kinds else []), *likeliest])
        tried = LENGTHS if self.dev.lengths and self.options.beam > 1 else 0
        total = len(first) + decoded + len(leans) + tried
        self.dev.watch("translate", 0, total)
        for settings in first:
            self._measure(Tuned(settings), total)
        for _ in range(decoded):  # what is better is gone on from
            new = next((near for near in self._around_the_best() if Tuned(near) not in self.trials), None)
            if new is None:
                break
            self._measure(Tuned(new), total)
        if leans:
            by_distance = self._best(trial for trial in self.trials.values() if trial.settings.adapt == "distance")
            for tuned, likelihood in self._learned(by_distance.settings, leans):
                self._measure(tuned, total, likelihood)
        for _ in range(tried):
            best = self._best(self.trials.values())
            near = (Tuned(other, best.gate) for other in lengths(best.settings))
            other = next((each for each in near if each not in self.trials), None)
            if best.settings == self.silent or other is None:
                break
            self._measure(other, total, best.likelihood)
        return sorted(self.trials.values(), key=lambda trial: -self.gain(trial))

    def halfway(self, found: Trial) -> Trial:
        """Half of the way from the untuned settings to those of a trial, both by distance: segments of the store itself
        tell which direction is better, and nothing of how far texts from elsewhere would follow."""
        if found.settings == self.silent:
            return found
        ours, theirs = (Numbers.of(one) for one in (self.untuned, found.settings))
        middle = Tuned(
            found.settings.model_copy(
                update={
                    "weight": (ours.weight + theirs.weight) / 2,
                    "reach": sqrt(ours.reach * theirs.reach),
                    "temperature": sqrt(ours.temperature * theirs.temperature),
                    "length_penalty": ((self.untuned.length_penalty or 0) + (found.settings.length_penalty or 0)) / 2,
                }
            )
        )
        if middle not in self.trials:
            self._measure(middle, len(self.trials) + 1)
        return self.trials[middle]

    def gain(self, trial: Trial) -> float:
        """How much better a trial is than the untuned settings, or than base MT where those were not tried.

        By BLEU; with several dev sets by the mean of BLEU, chrF and the segments' mean chrF on all sets, if none of
        these is worse, else by the worst of them.
        """
        than = self.trials.get(Tuned(self.untuned)) or self.trial(self.silent)
        if len(trial.sets) == 1:
            return trial.bleu - than.bleu
        pairs = list(zip(trial.sets.values(), than.sets.values(), strict=True))
        gains = [
            one - other for ours, theirs in pairs for one, other in zip(astuple(ours), astuple(theirs), strict=True)
        ]
        return fmean(gains) if min(gains) >= 0 else min(gains)

    def trial(self, settings: RetrievalSettings) -> Trial:
        """The trial of settings without a gate."""
        return self.trials[Tuned(settings)]

    def _best(self, trials: Iterable[Trial]) -> Trial:
        return max(trials, key=self.gain)

    def _around_the_best(self) -> Iterator[RetrievalSettings]:
        best = self._best(self.trials.values())
        if best.settings != self.silent:
            return around(best.settings, self.dev.most_k)
        near = self._best(trial for trial in self.trials.values() if trial is not best)
        return more_cautious(near.settings)

    def _measure(self, tuned: Tuned, total: int, likelihood: float | None = None) -> None:
        """Translate the dev sets; the likelihood is that of the settings, unless it is known."""
        figures = {}
        for some in self.dev.sets:
            texts: list[str] = []
            for fold in some.folds:
                sources = [segment.source for segment in fold.segments]
                texts += [found.text for found in self._translator(fold, tuned).translate(sources, self.options)]
            references = [segment.target for fold in some.folds for segment in fold.segments]
            scores = bleu(texts, references).value, chrf(texts, references).value, mean_chrf(texts, references)
            figures[some.name] = Figures(*scores)
        mean = fmean(each.bleu for each in figures.values())
        likelihood = self.likelihoods.of(tuned.settings) if likelihood is None else likelihood
        ends = tuple(self._ends(tuned.settings))
        self.trials[tuned] = Trial(tuned.settings, tuned.gate, likelihood, mean, figures, ends)
        self.dev.watch("translate", 1, total)

    def _translator(self, fold: Fold, tuned: Tuned) -> Translator:
        if tuned.settings == self.silent:
            return Translator(self.dev.model)
        return Translator(self.dev.model, retriever=self.dev.retriever(fold, tuned.settings, tuned.gate))

    def _learned(self, by_distance: RetrievalSettings, leans: Sequence[float]) -> Iterator[tuple[Tuned, float]]:
        """Settings with a gate trained on the references, as it is and leaning to the store, and their likelihood;
        nothing where the store has nothing for these."""
        dev, made = self.dev, self.dev.store.manifest
        lessons = [
            lesson(dev.model, some, lambda done: dev.watch("learn", done, len(dev))) for some in dev.shown(by_distance)
        ]
        gate = train(_together(lessons), Purpose(by_distance.system, made.key, made.metric))
        if gate is None:
            return
        for lean in leans:
            leaning = gate.leaning(lean)
            each = (float(one.log_p(leaning(one.seen).clamp(max=MOST)).mean()) for one in lessons)
            yield Tuned(by_distance.model_copy(update={"adapt": "learned"}), leaning), fmean(each)

    def _untuned(self) -> RetrievalSettings:
        """What a system does where nothing was tuned."""
        dev, fresh = self.dev, RetrievalSettings(system=self.dev.system.name)
        weight, temperature, reach = Numbers.of(dev.system.complete(fresh, dev.scale))
        k = None if dev.most_k is None else min(fresh.k or dev.most_k, dev.most_k)
        found = {"k": k, "adapt": "distance", "weight": weight, "temperature": temperature, "reach": reach}
        return dev.given.model_copy(update=found)

    def _ends(self, settings: RetrievalSettings) -> Iterator[str]:
        """The values that lie at an end of what is searched."""
        if settings == self.silent:
            return
        if self.dev.most_k is not None and settings.k == self.dev.most_k:
            yield f"k = {settings.k}"
        if settings.c == max(self.dev.system.c_grid, default=0):
            yield f"c = {settings.c}"
        letters = {"temperature": "T", "reach": "τ", "weight": "λ"}
        for name, axis in axes(settings, self.dev.scale).items() if settings.adapt != "learned" else ():
            if axis.ends_at(value := getattr(settings, name)):
                yield f"{letters[name]} = {value:.3g}"


def _together(lessons: Sequence[Lesson]) -> Lesson:
    """One lesson of several, whose segments are others."""
    columns = []
    before = 0
    for one in lessons:
        columns.append((one.seen, one.p_knn, one.p_mt, one.asked, one.fixed, one.segments + before))
        before += int(one.segments.max()) + 1
    return Lesson(*(torch.cat(column) for column in zip(*columns, strict=True)))
