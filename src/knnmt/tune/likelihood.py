"""The likelihood of the references under many settings: all of the grids, then beyond the ends of the best.

The model shows each reference once for each c; what its states find there gives the likelihood under any k, T, λ and τ.
"""

from collections.abc import Collection, Iterator, Sequence
from statistics import fmean

from knnmt.errors import UsageError
from knnmt.systems.settings import RetrievalSettings
from knnmt.tune.dev import Dev
from knnmt.tune.grid import axes, neighbours_and_temperatures, weights
from knnmt.tune.references import Seen, see

EQUAL = 1e-3  # nats a token: likelihoods that differ by less are the same, and the cheaper settings come first


class Likelihoods:
    """The mean log-likelihood of a reference token, over all dev sets alike, by settings.

    c_grid: the values of c that are tried; () where the system has none
    """

    def __init__(self, dev: Dev, c_grid: Sequence[int], most_k: int | None) -> None:
        self.dev, self.most_k = dev, most_k
        self.c_grid: Sequence[int | None] = c_grid or (None,)
        self._found: dict[RetrievalSettings, float] = {}
        self._seen: dict[int | None, list[Seen]] = {}  # of each dev set, by c

    def search(self, kinds: Collection[str]) -> list[RetrievalSettings]:
        """All settings of the grids and what is better beyond them, for these kinds of λ, the likeliest first."""
        self._try_grids(kinds)
        for kind in sorted({"constant", "distance"}.intersection(kinds)):
            self._go_beyond(next(settings for settings in self._ranked() if settings.adapt == kind))
        return self._ranked()

    def of(self, settings: RetrievalSettings) -> float:
        """The likelihood under some settings; what their c finds is looked up if it was not yet."""
        if settings not in self._found:
            if settings.c not in self._seen:
                self._seen[settings.c] = self._see(settings.c)
            self._found[settings] = fmean(seen.likelihood(settings) for seen in self._seen[settings.c])
        return self._found[settings]

    def _ranked(self) -> list[RetrievalSettings]:
        """The likeliest settings first; of equals, those that cost less."""
        return sorted(self._found, key=lambda s: (-round(self._found[s] / EQUAL), s.k or 0, s.c or 0))

    def _try_grids(self, kinds: Collection[str]) -> None:
        """All settings of the grids; c grows while more of it is better."""
        best = -float("inf")
        for c in self.c_grid:
            self._seen[c] = self._see(c, total=len(self.c_grid) * len(self.dev))
            found = dict(self._coarse(c, kinds))
            self._found |= found
            before, best = best, max(best, *found.values())
            if best < before + EQUAL:
                break

    def _coarse(self, c: int | None, kinds: Collection[str]) -> Iterator[tuple[RetrievalSettings, float]]:
        scale, seen = self.dev.scale, self._seen[c]
        for k, temperature in neighbours_and_temperatures(self.most_k, scale):
            p_knn = [one.p_knn(k, temperature) for one in seen]
            for values in weights(kinds, scale):
                settings = self.dev.given.model_copy(update={"k": k, "c": c, "temperature": temperature} | values)
                yield settings, fmean(one.likelihood(settings, p) for one, p in zip(seen, p_knn, strict=True))

    def _go_beyond(self, best: RetrievalSettings) -> None:
        """Look beyond the ends of the grids, axis by axis, as long as it gets better."""
        moved = True
        while moved:
            moved = False
            for name, axis in axes(best, self.dev.scale).items():
                while (value := axis.beyond(getattr(best, name))) is not None:
                    further = best.model_copy(update={name: value})
                    if self.of(further) < self._found[best] + EQUAL:
                        break
                    best, moved = further, True

    def _see(self, c: int | None, total: int = 0) -> list[Seen]:
        """What the states of the references find, in each dev set."""

        def advance(done: int) -> None:
            if total:
                self.dev.watch("look up", done, total)

        settings = self.dev.given.model_copy(update={"c": c})
        found = [see(self.dev.model, some, advance) for some in self.dev.shown(settings)]
        seen = [one for one in found if one is not None]
        if len(seen) < len(found):
            raise UsageError("there is nothing to tune on: all segments of the dev set are too long for the model")
        return seen
