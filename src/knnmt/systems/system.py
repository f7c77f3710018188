"""The interface of a system: everything that the rest of the product needs to know about it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from knnmt.errors import UsageError
from knnmt.search.mix import Falling, Scores
from knnmt.search.nearest import BySentence
from knnmt.store.memories import AnyStore
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.view import View


class Source(NamedTuple):
    """Encoded sentences: ids (B, S), mask (B, S), states (B, S, d)."""

    ids: Tensor
    mask: Tensor
    states: Tensor

    def tokens(self, view: View) -> tuple[Tensor, Tensor, Tensor]:
        """The sentence (Q,), type (Q,) and state (Q, d) of each source token, padding left out."""
        sentence, position = self.mask.nonzero(as_tuple=True)
        return sentence, self.ids[sentence, position], view.query(self.states[sentence, position])


class Found(NamedTuple):
    """The entries found for each state, all (B, K, k): entry -1 and distance inf where there is none.

    nearest: (B, K), the smallest distance that the lookup saw: of an entry, or of the cluster that was chosen.
    log_counts: the log of how many entries each of those found counts for: those that it stands for, times the weight
    of its memory. () where each counts for itself.
    """

    entries: Tensor
    tokens: Tensor
    distances: Tensor
    nearest: Tensor
    log_counts: Tensor

    def scores(self, temperature: float) -> Tensor:
        """What the softmax is taken of. (B, K, k)."""
        return self.log_counts - self.distances / temperature


class Neighbours(NamedTuple):
    """p_kNN of each beam.

    tokens: (B, K, k), each once or as often with the same log_p; log_p: (B, K, k), -inf where there is nothing;
    nearest: (B, K), the smallest distance, inf where nothing was found
    """

    tokens: Tensor
    log_p: Tensor
    nearest: Tensor


class Candidates(BySentence, ABC):
    """What a batch of sentences may see of a store. states: (B, K, d), as `View.query` gives them. Nothing here loops
    over sentences or beams, or waits for the device (FAISS aside)."""

    static = True  # whether a step on a GPU asks nothing of the host, so that it can be replayed

    def __init__(self, view: View, settings: RetrievalSettings) -> None:
        assert settings.temperature is not None
        self.view, self.k, self.temperature = view, settings.k, settings.temperature

    @abstractmethod
    def find(self, states: Tensor) -> Found:
        """The entries, one by one."""

    def offered(self) -> Tensor | None:
        """The target tokens of all entries that may be found, -1 for none. (B, N), or None where that may be any."""
        return None

    def felt(self, nearest: Tensor) -> Tensor:
        """The distance that λ falls with, given the smallest one (B, K). (B, K)."""
        return nearest

    def mix(self, states: Tensor, scores: Scores, falling: Falling) -> tuple[Tensor, Tensor] | None:
        """Mix their distribution into logits, in place: the new normaliser and the smallest distance, both (B, K).
        None where λ and p_kNN have to be asked for first."""
        return None

    def neighbours(self, states: Tensor) -> Neighbours:
        """Their distribution, by token: the softmax of −d/T over what is found."""
        found = self.find(states)
        return Neighbours(*self.view.search.merge(found.tokens, found.scores(self.temperature)), found.nearest)


class Defaults(NamedTuple):
    """Values of settings where none is given. temperature and reach: of the median distance between random keys; c:
    None where it depends on the sentence; longer: times the model's length penalty."""

    weight: float = 0.9
    temperature: float = 1 / 40
    reach: float = 1 / 2
    c: int | None = 64
    longer: float = 1.0


DEFAULTS = Defaults()
Select = Callable[[View, Source, RetrievalSettings], Candidates]


@dataclass(frozen=True)
class System:
    """A way to select what a sentence may see, once, and to look up states in that, at every step.

    arrays: those that it opens (keys may be product-quantized); takes_*: which settings mean something to it; c_grid:
    what tuning tries for c; most_k: the largest k that a store allows, None for any
    """

    name: str
    summary: str
    arrays: tuple[str, ...]
    select: Select
    defaults: Defaults = DEFAULTS
    takes_k: bool = True
    all_k: bool = False  # whether k may be null: all entries
    takes_c: bool = False
    takes_nprobe: bool = False
    c_grid: tuple[int, ...] = ()
    most_k: Callable[[AnyStore], int | None] = lambda store: None

    def complete(self, settings: RetrievalSettings, scale: float) -> RetrievalSettings:
        """The settings with numbers for all that has a default. scale: the median distance between random keys."""
        own = self.defaults
        defaults = {
            "c": own.c,
            "weight": own.weight,
            "temperature": scale * own.temperature,
            "reach": scale * own.reach,
        }
        missing = {name: value for name, value in defaults.items() if getattr(settings, name) is None}
        return settings.model_copy(update={**missing, "system": self.name})

    def check(self, store: AnyStore, settings: RetrievalSettings) -> None:
        """Refuse a k larger than what a store ranks, and k = all where that would be the whole store."""
        most = self.most_k(store)
        if settings.k is None and self.takes_k and not self.all_k:
            raise UsageError(f"{self.name} needs a number of neighbours k")
        if self.takes_k and most is not None and (settings.k is None or settings.k > most):
            asked = "all entries of a cluster" if settings.k is None else f"k={settings.k}"
            path = next(one.path for one in store.stores if self.most_k(one) == most)
            raise UsageError(f"{path} ranks {most} entries per cluster, too few for {asked}: raise k_max and rebuild")
