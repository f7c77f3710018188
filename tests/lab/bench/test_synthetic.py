"""Synthetic stores are stores: sound, of the size asked for, and found in by the systems."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt.datastore import Datastore
from knnmt.errors import UsageError
from knnmt.lab.bench import growth, synthetic
from knnmt.lab.bench.growth import grown, in_words
from knnmt.lab.bench.interval import Spread
from knnmt.lab.bench.peak import Memory
from knnmt.lab.bench.runner import served
from knnmt.lab.bench.synthetic import Shape, make
from knnmt.retrieval.session import Retriever
from knnmt.systems import levels
from knnmt.systems.settings import RetrievalSettings

CPU = torch.device("cpu")
KEYED = Shape(3000, width=8, vocabulary=40, cluster_size=16, k_max=5)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "SECONDS", 0.0)
    monkeypatch.setattr(growth, "BATCH", 3)


@pytest.fixture
def serving(monkeypatch: pytest.MonkeyPatch) -> Shape:
    """A store without keys, whose frequent types have two levels of clusters."""
    monkeypatch.setattr(synthetic, "KEYED_BELOW", 1)
    monkeypatch.setattr(levels, "COARSE_FROM", 8)
    return Shape(3000, width=8, vocabulary=40, cluster_size=16, k_max=5)


def written(shape: Shape, folder: Path) -> Datastore:
    return make(shape, folder / "store")


def test_with_keys_it_serves_whatever_needs_them(tmp_path: Path) -> None:
    store = written(KEYED, tmp_path)
    assert len(list(store.verify())) == len(store.files)
    assert {"knn", "fast", "fast-clustered", "faster", "faster-exact"} <= set(served(store))
    assert store.sizes["entries"] == store.sizes["tokens"] == 3000
    assert store.segment(0).source == ""
    for system in served(store):
        row = grown(KEYED, store, system, k=3, c=4, device=CPU)
        assert row.batch == row.select.median + growth.STEPS * row.lookup.median
        assert 0 < row.opened <= row.disk


def test_without_keys_it_serves_faster(tmp_path: Path, serving: Shape) -> None:
    store = written(serving, tmp_path)
    assert list(store.verify())
    assert served(store) == ["faster"]
    assert "target_ids" not in store.parts[0]
    assert store.sizes["coarse"] > 0
    row = grown(serving, store, "faster", k=3, c=4, device=CPU)
    assert row.clusters == store.sizes["clusters"] >= 3000 / 16
    assert row.opened == row.disk


def test_it_serves_similar_if_that_is_asked_for(tmp_path: Path, serving: Shape) -> None:
    """Its arrays fit together at any size: a token's segment lists it, and its entry is in that segment."""
    shape = replace(serving, similar=True)
    store = written(shape, tmp_path)
    assert list(store.verify())
    assert served(store) == ["faster", "similar"]
    part = store.parts[0]
    for token in range(0, 3000, 7):
        segment = part["token_segments"][token]
        listed = part["segment_tokens"][part["segment_starts"][segment] : part["segment_starts"][segment + 1]]
        assert token in listed
        assert (np.diff(listed) > 0).all()
        begin, end = part["target_offsets"][segment : segment + 2]
        assert begin <= part["link_entries"][token] < end
    row = grown(shape, store, "similar", k=3, c=None, device=CPU)
    assert row.select.median > 0


def test_what_lies_at_a_mean_finds_its_cluster(tmp_path: Path, serving: Shape) -> None:
    """Two levels of clusters and the rankings hang together: the mean of a cluster leads to its entries."""
    store = written(serving, tmp_path)
    retriever = Retriever(store, CPU, RetrievalSettings(system="faster", k=5, weight=0.0))
    means, bounds = (store.parts[0][name] for name in ("cluster_source", "ranking_offsets"))
    for number in range(0, len(means), 7):
        kind = int(np.searchsorted(serving.clusters, number, side="right") - 1)
        source, target = (
            torch.from_numpy(store.parts[0][f"cluster_{side}"][number].astype(np.float32))
            for side in ("source", "target")
        )
        look = retriever.look(torch.tensor([[kind]]), torch.tensor([[True]]), source[None, None])
        found = look.lookup.find(target[None, None])
        entries = store.parts[0]["ranking_entries"][bounds[number] : bounds[number + 1]]
        assert found.entries[0, 0, : len(entries)].tolist() == entries.tolist()
        assert len(set(entries.tolist())) == len(entries)
        members = serving.places(entries.astype(np.int64))
        assert ((members >= serving.starts[number]) & (members < serving.starts[number + 1])).all()


@pytest.mark.parametrize("tokens", [1, 7, 3000, 10**9])
def test_shapes(tokens: int) -> None:
    shape = Shape(tokens, vocabulary=1000)
    assert shape.counts.sum() == tokens
    assert (np.diff(shape.counts) <= 0).all()
    assert shape.starts[0] == 0
    sizes = np.diff(shape.starts)
    assert sizes.min() >= 1
    assert sizes.max() <= shape.size
    offsets, ranges = shape.coarse
    assert offsets[-1] == len(ranges)
    deep = np.flatnonzero(np.diff(offsets))
    covered = sum(int(shape.clusters[kind + 1] - shape.clusters[kind]) for kind in deep)
    assert int((ranges[:, 1] - ranges[:, 0]).sum()) == covered
    some = np.unique(np.linspace(0, tokens - 1, 50).astype(np.int64))
    assert shape.places(shape.entries(some)).tolist() == some.tolist()
    assert shape.entries(some).max() < tokens


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="counts up to"):
        Shape(10**10)
    with pytest.raises(UsageError, match="already exists"):
        make(KEYED, tmp_path)


def test_growth_in_words() -> None:
    def row(tokens: int, seconds: float, size: int) -> growth.Growth:
        spent, memory = Spread(seconds, seconds, seconds), Memory()
        return growth.Growth("faster", tokens, 4, 2, 0.1, spent, 0.1, spent, seconds, size, size, memory, memory)

    said = in_words([row(10**8, 0.02, 10**6), row(10**6, 0.01, 10**5)])
    assert "from 1,000,000 to 100,000,000 tokens, 100 times as many" in said
    assert "take 2.0 times as long (about tokens^0.15)" in said
    assert "10.0 times the bytes (tokens^0.50)" in said
