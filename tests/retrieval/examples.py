"""Random stores with sentences to look up in them: what a system makes of those, beside what the oracle makes."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.datastore import Datastore
from knnmt.model.checkpoint import Model
from knnmt.model.transformer import States
from knnmt.retrieval.gate import SHAPES, Gate, Purpose
from knnmt.retrieval.session import Retriever
from knnmt.search import pq
from knnmt.settings import Metric
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Found
from knnmt.systems.table import SYSTEMS

from ..build.examples import parallel_text, written
from ..oracle import datastore, systems

VOCABULARY, K_MAX = 5, datastore.EXACT
UNSEEN = 4  # a type that random stores never have
CPU = torch.device("cpu")
CUDA = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
)
ORACLE: dict[str, Callable[..., systems.Found]] = {
    "knn": lambda store, ids, states, state, s: systems.knn(store, state, s),
    "fast": systems.fast,
    "fast-clustered": systems.fast_clustered,
    "faster": systems.faster,
    "faster-exact": systems.faster_exact,
}
BY_SOURCE = [name for name in ORACLE if name != "knn"]


@dataclass(frozen=True)
class Case:
    """A store's arrays, B sentences, K decoder states (B, K, d) for each and a p_MT (B, K, V) for each of those."""

    arrays: datastore.Store
    metric: Metric
    ids: list[list[int]]
    source: list[NDArray[Any]]
    states: NDArray[np.float32]
    p_mt: NDArray[np.float64]

    @classmethod
    def drawn(
        cls,
        seed: int,
        metric: Metric = "squared",
        batch: int = 3,
        beams: int = 2,
        width: int = 2,
        count: int = 5,
        summed: bool = False,
    ) -> Self:
        """Draw all of it; on the oracle's grid, so that ties are common and exact. With `cosine` they would be ties but
        for rounding, and so would sums of roots, which are distances by way of several clusters (`summed`, with
        `euclidean`): there, what is looked up stands off the grid."""
        rng = np.random.default_rng(seed)
        segments = datastore.random_segments(rng, count=count, width=width)
        while not any(segment.links for segment in segments):  # no store is built of such
            segments = datastore.random_segments(rng, count=count, width=width)
        assign = datastore.random_clusters(rng, segments)
        arrays = datastore.build(segments, assign, VOCABULARY, K_MAX, metric=metric)
        sentences = [datastore.random_sentence(rng, width=width) for _ in range(batch)]
        states = np.stack([datastore.random_states(rng, beams, width) for _ in range(batch)])
        p_mt = rng.dirichlet(np.ones(VOCABULARY), (batch, beams))
        source = [vectors for _, vectors in sentences]
        if metric == "cosine":
            states, *source = (
                (some + rng.normal(0.0, 0.01, some.shape)).astype(np.float32) for some in (states, *source)
            )
        if metric == "euclidean" and summed:  # nowhere near a key: the root of a tiny square has few digits
            states = (states + rng.uniform(0.05, 0.3, states.shape)).astype(np.float32)
        return cls(arrays, metric, [list(ids) for ids, _ in sentences], source, states, p_mt)

    def saying(self, ids: Sequence[Sequence[int]], source: Sequence[Any]) -> Self:
        """The same store, asked about other sentences."""
        return replace(self, ids=[list(row) for row in ids], source=[np.asarray(row, np.float32) for row in source])

    def alone(self, row: int) -> Self:
        """One of the sentences only."""
        kept = slice(row, row + 1)
        return replace(
            self, ids=self.ids[kept], source=self.source[kept], states=self.states[kept], p_mt=self.p_mt[kept]
        )

    def padded(self) -> tuple[Tensor, Tensor, Tensor]:
        """The sentences as a model gives them; padding has states too, which nothing may look at."""
        ids = torch.zeros((len(self.ids), max(map(len, self.ids))), dtype=torch.int64)
        mask = torch.zeros_like(ids, dtype=torch.bool)
        states = torch.full((*ids.shape, self.states.shape[2]), 0.25)
        for row, (some, vectors) in enumerate(zip(self.ids, self.source, strict=True)):
            ids[row, : len(some)], mask[row, : len(some)] = torch.tensor(some), True
            states[row, : len(some)] = torch.from_numpy(np.asarray(vectors, np.float32))
        return ids, mask, states

    def write(self, folder: Path, **options: Any) -> Datastore:
        """The store on disk."""
        options = {"vocabulary": VOCABULARY, "k_max": K_MAX, "metric": self.metric} | options
        return written(self.arrays, folder, **options)

    def look(self, retriever: Retriever) -> Any:
        """Begin a search of all sentences, and give their decoder states beside it."""
        device = retriever.live.view.device
        ids, mask, states = (each.to(device) for each in self.padded())
        return retriever.look(ids, mask, states)

    def found(self, retriever: Retriever) -> Found:
        """What the decoder states find."""
        look = self.look(retriever)
        found: Found = look.lookup.find(look.view.query(torch.from_numpy(self.states).to(look.view.device)))
        return found

    def mixed(self, retriever: Retriever, normaliser: float = 3.0) -> NDArray[np.float32]:
        """What a system makes of p_MT, (B, K, V); the logits have a normaliser that is not 0."""
        device = retriever.live.view.device
        states = torch.from_numpy(self.states).to(device)
        logits = (torch.from_numpy(np.log(self.p_mt)).float() + normaliser).to(device)
        total = torch.full(self.p_mt.shape[:2], normaliser, device=device)
        after = self.look(retriever).mix(States(states, states), logits, total)
        p: NDArray[np.float32] = (logits - after[:, :, None]).exp().cpu().numpy()
        return p


def oracle_settings(chosen: RetrievalSettings, metric: str) -> systems.Settings:
    """The same settings as the oracle has them."""
    completed = SYSTEMS[chosen.system].complete(chosen, 1.0)
    return systems.Settings(
        k=chosen.k, c=completed.c or 0, temperature=chosen.temperature or 1.0, metric=metric, probe=chosen.probe,
        lam=completed.weight or 0.0, lam_max=completed.weight or 0.0,
        tau=chosen.reach if chosen.adapt == "distance" else None,
    )  # fmt: skip


def assert_same(
    store: Datastore,
    case: Case,
    chosen: RetrievalSettings,
    arrays: datastore.Store | None = None,
    left_out: Collection[int] = (),
    device: str = "cpu",
    oracle: Callable[..., systems.Found] | None = None,
) -> None:
    """A system finds what the oracle finds in these arrays (the case's own if None), and mixes it as that does."""
    retriever = Retriever(store, torch.device(device), chosen, left_out=left_out)
    ours, found = case.mixed(retriever), case.found(retriever)
    wanted = oracle_settings(chosen, case.metric)
    arrays = case.arrays if arrays is None else arrays
    oracle = oracle or ORACLE[chosen.system]
    for row in range(len(case.ids)):
        for beam in range(case.states.shape[1]):
            state = case.states[row, beam]
            truth = oracle(arrays, case.ids[row], case.source[row], state, wanted)
            if case.metric == "squared":
                entries = found.entries[row, beam]
                assert entries[entries >= 0].tolist() == [neighbour.entry for neighbour in truth.neighbours]
            p = systems.mixed(case.p_mt[row, beam], truth, wanted)
            np.testing.assert_allclose(ours[row, beam], p, atol=1e-5)


def some_segments(offsets: NDArray[np.int64], share: float, seed: int) -> tuple[frozenset[int], NDArray[np.bool_]]:
    """About this share of a store's segments, by number, and a mask of their entries (E,). offsets: of their targets"""
    chosen = np.random.default_rng(seed).random(len(offsets) - 1) < share
    return frozenset(np.flatnonzero(chosen).tolist()), chosen.repeat(np.diff(offsets))


def decoded(store: Datastore, side: str) -> NDArray[np.float32]:
    """The keys that a quantized store stands for."""
    codes, codebooks = (torch.from_numpy(store.parts[0][f"{side}_{what}"]) for what in ("codes", "codebooks"))
    states: NDArray[np.float32] = pq.decode(codes, codebooks).numpy()
    return states


def built(model: Model, folder: Path, count: int = 60, **changes: Any) -> Datastore:
    """A real store of the tiny models' words, with many clusters in a type."""
    corpus = parallel_text(folder / "corpus.tsv", count)
    settings = BuildSettings.model_validate({"cluster_size": 4, "k_max": K_MAX, "clean": None} | changes)
    build([corpus], model, folder / "store", "de-en", settings)
    return Datastore.open(folder / "store")


def random_gate(purpose: Purpose, seed: int = 0) -> Gate:
    """A gate whose λ depends on all that it sees, and is seldom near 0 or 1."""
    generator = torch.Generator().manual_seed(seed)
    drawn = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    moderate = {"outer": 0.3 * drawn["outer"], "outer_bias": torch.full(SHAPES["outer_bias"], 0.5)}
    return Gate(purpose, drawn | moderate | {"spread": drawn["spread"].abs() + 0.5})


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    """Compute with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_thread() -> AbstractContextManager[None]:
    """Compute with one thread: for so little, threads wait longer for each other than they work."""
    return with_threads(1)
