"""kNN-MT by a FAISS index: a flat one finds what the exact search finds, and no damaged one is ever read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from knnmt.datastore import Datastore
from knnmt.errors import StoreError
from knnmt.model.checkpoint import Model, load
from knnmt.retrieval.session import Retriever, SentenceLookup
from knnmt.store.manifest import INDEX
from knnmt.systems.settings import RetrievalSettings

from .examples import CPU, built, some_segments

faiss = pytest.importorskip("faiss")


@pytest.fixture(scope="module")
def model(model_folder: Callable[[str], Path]) -> Model:
    return load(model_folder("marian"), device="cpu")


@pytest.fixture(scope="module", params=["squared", "euclidean", "cosine"])
def store(model: Model, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Datastore:
    return built(model, tmp_path_factory.mktemp("indexed"), index=True, metric=request.param)


def looks(store: Datastore, nprobe: int = 32, k: int = 5, **options: Any) -> list[SentenceLookup]:
    """By the index, and exactly."""
    ids = torch.zeros(2, 1, dtype=torch.int64)
    source = ids, ids == 0, torch.zeros(2, 1, store.sizes["width"])
    return [
        Retriever(store, CPU, RetrievalSettings(system="knn", k=k, index=index, nprobe=nprobe), **options).look(*source)
        for index in (True, False)
    ]


def states_near(store: Datastore) -> torch.Tensor:
    """Decoder states (2, 3, d): some keys, moved a little."""
    rng = np.random.default_rng(0)
    keys = store.parts[0]["target_keys"][rng.integers(0, store.sizes["entries"], 6)].astype(np.float32)
    return torch.from_numpy(keys + rng.normal(scale=0.1, size=keys.shape).astype(np.float32)).view(2, 3, -1)


def test_a_flat_index_finds_what_the_exact_search_finds(store: Datastore) -> None:
    by_index, exact = looks(store)
    query = exact.view.query(states_near(store))
    ours, theirs = by_index.lookup.find(query), exact.lookup.find(query)
    torch.testing.assert_close(ours.distances, theirs.distances, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(ours.nearest, theirs.nearest, rtol=1e-3, atol=1e-3)
    found = [look.lookup.neighbours(query) for look in (by_index, exact)]
    p = [torch.zeros(2, 3, store.sizes["target_vocabulary"]).scatter(2, n.tokens, n.log_p.exp()) for n in found]
    torch.testing.assert_close(p[0], p[1], rtol=1e-2, atol=1e-3)
    assert (ours.entries == theirs.entries).float().mean() > 0.9  # but for ties
    by_index.keep(torch.tensor([1]))
    assert torch.equal(by_index.lookup.find(query[1:]).entries, ours.entries[1:])


def test_segments_left_out_make_room_for_those_behind_them(store: Datastore) -> None:
    left_out, removed = some_segments(store.parts[0]["target_offsets"], 0.6, seed=1)
    by_index, exact = looks(store, left_out=left_out)
    query = exact.view.query(states_near(store))
    ours, theirs = by_index.lookup.find(query), exact.lookup.find(query)
    assert (ours.entries >= 0).all()
    assert not removed[ours.entries.numpy()].any()
    torch.testing.assert_close(ours.distances, theirs.distances, rtol=1e-3, atol=1e-3)


def test_an_index_of_lists_is_searched_in_as_many_as_asked_for(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = built(model, tmp_path, index=True)
    part = store.parts[0]
    keys = part["target_keys"].astype(np.float32)
    index = faiss.index_factory(keys.shape[1], "IVF8,Flat")
    index.train(keys)
    index.add(keys)
    monkeypatch.setattr(faiss, "read_index", lambda name: index)
    k = 1 + max(index.invlists.list_size(number) for number in range(index.nlist))  # more than one list has
    exact = looks(store, k=k)[1]
    query = exact.view.query(states_near(store))
    for nprobe, all_found in ((8, True), (1, False)):
        by_index = looks(store, nprobe=nprobe, k=k)[0]
        found = by_index.lookup.find(query)
        wanted = exact.lookup.find(query)
        close = torch.isclose(found.distances, wanted.distances, rtol=1e-3, atol=1e-3)
        assert bool(close.all()) == all_found
        assert (found.distances >= wanted.distances - 1e-3).all()
    left_out, removed = some_segments(store.parts[0]["target_offsets"], 0.6, seed=1)
    by_index, exact = looks(store, left_out=left_out)  # all of its lists, by the settings' default
    found, wanted = by_index.lookup.find(query), exact.lookup.find(query)
    torch.testing.assert_close(found.distances, wanted.distances, rtol=1e-3, atol=1e-3)
    assert not removed[found.entries.numpy()].any()


def test_a_damaged_index_is_refused_before_faiss_reads_it(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = built(model, tmp_path, count=10, index=True)
    path = store.parts[0].folder / INDEX
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)

    def read_index(name: str) -> None:
        raise AssertionError(f"{name} was read")

    monkeypatch.setattr(faiss, "read_index", read_index)
    with pytest.raises(StoreError, match=r"index\.faiss is corrupt: its checksum does not match"):
        looks(Datastore.open(store.path))


def test_an_index_is_asked_for_where_there_is_none(model: Model, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"built without index\.faiss"):
        looks(built(model, tmp_path, count=10))


def test_an_index_of_another_store_is_refused(model: Model, tmp_path: Path) -> None:
    store = built(model, tmp_path, count=10, index=True)
    other = faiss.IndexFlatL2(store.sizes["width"])
    other.add(np.zeros((3, store.sizes["width"]), np.float32))
    by_index = RetrievalSettings(system="knn", k=5, index=True)
    retriever = Retriever(store, CPU, by_index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faiss, "read_index", lambda name: other)
        ids = torch.zeros(1, 1, dtype=torch.int64)
        with pytest.raises(StoreError, match="its FAISS index does not have one row per entry"):
            retriever.look(ids, ids == 0, torch.zeros(1, 1, store.sizes["width"]))
