"""k-means as a GPU runs it, against the one that a CPU runs."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from knnmt.build.kmeans import centroids, cluster, rank
from knnmt.build.lloyd import _absent, _assign, _assign_on_gpu, assign, train, train_on_gpu
from knnmt.csr import offsets_of

NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


@given(
    seed=st.integers(0, 2**32),
    batch=st.integers(1, 3),
    rows=st.integers(2, 30),
    parts=st.integers(1, 6),
    iterations=st.integers(0, 12),
    whole=st.booleans(),
    held=st.sampled_from([1, 64, 1 << 20]),
)
def test_a_gpu_finds_the_same_means(
    seed: int, batch: int, rows: int, parts: int, iterations: int, whole: bool, held: int
) -> None:
    generator, parts = torch.Generator().manual_seed(seed), min(parts, rows)
    points = torch.randn(batch, rows, 16, generator=generator)
    if whole:  # many are equal, so that parts become empty
        points = points.round()
    means = points[:, :parts].clone()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("knnmt.build.lloyd.DISTANCES_GPU", held)
        labels, nearest = _assign_on_gpu(points, means)
        found = train_on_gpu(points, means, iterations)
        labelled = _assign_on_gpu(points, found)[0].numpy()
        more = torch.nn.functional.pad(points, (0, 0, 0, 3), value=9.0), torch.nn.functional.pad(means, (0, 0, 0, 2))
        sizes, counts = np.full(batch, rows), np.full(batch, parts)
        padded = train_on_gpu(*more, iterations, sizes, counts)
        same = _assign_on_gpu(more[0], padded, _absent(counts, padded))[0].numpy()
    expected, distances = _assign(points, means)
    assert np.allclose(nearest.numpy(), distances, atol=1e-4)
    if not whole:  # equally near means may be told apart otherwise
        assert (labels.numpy() == expected).all()
        plain = train(points, means, iterations)
        placed = assign(points, plain)
        assert torch.allclose(found, plain, atol=1e-4)
        assert torch.allclose(padded[:, :parts], plain, atol=1e-4)
        assert (labelled == placed).all()
        assert (same[:, :rows] == placed).all()


@NEEDS_CUDA
def test_clusters_means_and_rankings_on_a_gpu() -> None:
    rng = np.random.default_rng(0)
    sizes = np.array([300, 5, 0, 77, 300, 1000])
    states = rng.standard_normal((int(sizes.sum()), 24)).astype(np.float16)
    there, offsets = torch.from_numpy(states).cuda(), offsets_of(sizes)
    found = cluster(there, offsets, 16, workers=2)
    again = cluster(there, offsets, 16, workers=1)
    assert (found.order == again.order).all()
    assert (found.starts == again.starts).all()
    assert sorted(found.order.tolist()) == list(range(len(states)))

    def inertia(order: np.ndarray, starts: np.ndarray) -> float:
        rows = np.split(states[order].astype(np.float32), starts[1:-1])
        return float(sum(((some - some.mean(axis=0)) ** 2).sum() for some in rows))

    plain = cluster(states, offsets, 16)
    assert inertia(found.order, found.starts) == pytest.approx(inertia(plain.order, plain.starts), rel=0.03)
    assert (centroids(there, plain.order, plain.starts) == centroids(states, plain.order, plain.starts)).all()
    ids, links = np.arange(len(states), dtype=np.int32), np.arange(len(states) + 1)
    here, other = (rank(each, ids, plain.starts, links, plain.order, 5) for each in (states, there))
    assert (here.centroids == other.centroids).all()
    assert np.allclose(here.distances, other.distances, rtol=1e-4)
