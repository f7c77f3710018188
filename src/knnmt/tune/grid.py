"""The settings that are tried: coarse grids, what lies beyond their ends, and what lies around good ones.

Temperatures T and reaches τ are fractions of the store's scale, the median distance between random keys.
"""

import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from knnmt.store.store import Store
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import System

K = (4, 8, 16, 32, 64, 128, 256, 512)
TEMPERATURES = (1 / 160, 1 / 80, 1 / 40, 1 / 20, 1 / 10)
CONSTANT_WEIGHTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of a constant λ
MAX_WEIGHTS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.99)  # of λ by distance
REACHES = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
# how far the search goes beyond the ends of the grids
TEMPERATURE_LIMITS, WEIGHT_LIMITS, REACH_LIMITS = (1 / 2560, 1.6), (0.01, 0.99), (1 / 128, 32.0)

Values = dict[str, object]
"""Some settings by name."""


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

    def times(self, scale: float) -> "Axis":
        """The same axis in the units of a store."""
        return Axis(tuple(scale * x for x in self.grid), (scale * self.limits[0], scale * self.limits[1]), self.share)


def axes(settings: RetrievalSettings, scale: float) -> dict[str, Axis]:
    """What is searched besides k and c, by the name of the setting."""
    found = {"temperature": Axis(TEMPERATURES, TEMPERATURE_LIMITS).times(scale)}
    if settings.adapt == "distance":
        found["reach"] = Axis(REACHES, REACH_LIMITS).times(scale)
        return found | {"weight": Axis(MAX_WEIGHTS, WEIGHT_LIMITS, share=True)}
    return found | {"weight": Axis(CONSTANT_WEIGHTS, WEIGHT_LIMITS, share=True)}


def largest_k(system: System, store: Store) -> int | None:
    """The largest k that is tried; None where a system takes all that it sees."""
    if not system.takes_k:
        return None
    allowed = system.most_k(store)
    return min(max(K), store.sizes["entries"], *([] if allowed is None else [allowed]))


def neighbours_and_temperatures(most_k: int | None, scale: float) -> Iterator[tuple[int | None, float]]:
    """All k with all T. most_k: the largest k; None where a system takes all that it sees."""
    counts = [None] if most_k is None else [*(k for k in K if k < most_k), most_k]
    return itertools.product(counts, [scale * fraction for fraction in TEMPERATURES])


def weights(kinds: Collection[str], scale: float) -> list[Values]:
    """All values that decide on λ, for these kinds of it."""
    found: list[Values] = []
    if "constant" in kinds:
        found += [{"adapt": "constant", "weight": weight} for weight in CONSTANT_WEIGHTS]
    if "distance" in kinds:
        pairs = itertools.product(MAX_WEIGHTS, REACHES)
        found += [{"adapt": "distance", "weight": weight, "reach": scale * reach} for weight, reach in pairs]
    return found


def spread(ranked: Sequence[RetrievalSettings], count: int) -> list[RetrievalSettings]:
    """The best settings that differ from one another: one for each kind of λ, c and temperature."""
    chosen: dict[tuple[object, ...], RetrievalSettings] = {}
    for settings in ranked:
        chosen.setdefault((settings.adapt, settings.c, settings.temperature), settings)
        if len(chosen) == count:
            break
    return list(chosen.values())


class Numbers(NamedTuple):
    """λ or its maximum, T and τ of complete settings."""

    weight: float
    temperature: float
    reach: float

    @classmethod
    def of(cls, settings: RetrievalSettings) -> "Numbers":
        """Those of some settings."""
        assert settings.weight is not None
        assert settings.temperature is not None
        assert settings.reach is not None
        return cls(settings.weight, settings.temperature, settings.reach)


def around(best: RetrievalSettings, most_k: int | None) -> Iterator[RetrievalSettings]:
    """Settings near the best, in the order in which they are worth a try: translation likes more weight and other
    temperatures than likelihood does. First by large steps, then by small ones."""
    weight, temperature, reach = Numbers.of(best)
    distant = best.adapt == "distance"
    heavier, slightly = min(0.95, weight + 0.15), 2**0.5
    updates: list[Values] = [
        {"weight": heavier},
        {"reach": 2 * reach} if distant else {"weight": max(0.05, weight - 0.15)},
        {"temperature": temperature * 2},
        {"temperature": temperature / 2},
        {"weight": heavier, "reach": 2 * reach} if distant else {"weight": min(0.95, weight + 0.3)},
    ]
    if best.k is not None and most_k is not None and 2 * best.k <= most_k:
        updates.append({"k": best.k * 2})
    if distant:
        updates += [{"reach": reach * slightly}, {"reach": reach / slightly}]
    updates += [{"temperature": temperature * slightly}, {"temperature": temperature / slightly}]
    updates += [{"weight": max(0.05, weight - 0.1)}, {"weight": min(0.99, weight + 0.05)}]
    yield from dict.fromkeys(best.model_copy(update=update) for update in updates)


def lengths(best: RetrievalSettings) -> Iterator[RetrievalSettings]:
    """The best settings with length penalties around theirs: first for longer translations, which a store lacks."""
    assert best.length_penalty is not None
    for times in (1.2, 1 / 1.2):
        yield best.model_copy(update={"length_penalty": round(times * best.length_penalty, 3)})


def more_cautious(good: RetrievalSettings) -> Iterator[RetrievalSettings]:
    """Settings that leave more to the model, for a store that has little for these texts: with more they were worse
    than base MT, which likelihood does not tell."""
    weight, _, reach = Numbers.of(good)
    updates: list[Values] = (
        [{"reach": reach / 2}, {"reach": reach / 4}, {"weight": weight / 2, "reach": reach / 2}]
        if good.adapt == "distance"
        else [{"weight": weight / 2}, {"weight": weight / 4}]
    )
    yield from (good.model_copy(update=update) for update in updates)
