"""From texts to a store: every array is what slow NumPy makes of the model's states, whatever the settings."""

from collections import defaultdict
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from knnmt.align.bitext import Links
from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.build.stages import ALWAYS
from knnmt.corpus import Languages, Segment, clean, read
from knnmt.datastore import Datastore
from knnmt.errors import StoreError, UsageError
from knnmt.model.checkpoint import Model
from knnmt.model.transformer import KeyKind
from knnmt.store.manifest import INDEX
from knnmt.store.schema import ARRAYS
from knnmt.systems.table import SYSTEMS

from ..oracle import datastore as oracle
from .small import (
    CLEAN,
    PAIRS,
    SETTINGS,
    Pair,
    Rows,
    bitext_of,
    ids_of,
    leftovers,
    oracle_segments,
    part_files,
    represent_alone,
    settings,
)


def verified(store: Datastore) -> set[str]:
    """The files of the parts, all of which are sound."""
    return {Path(name).name for name in store.verify() if name.startswith("part-")}


def cleaned(corpus: Path) -> list[Segment]:
    languages = Languages("de", "en")
    return list(clean(read(corpus, languages), languages, CLEAN))


@cache
def states_alone(model: Model, corpus: Path, key: KeyKind) -> list[tuple[Rows, Rows]]:
    """The states of each pair, when the model is shown that one alone."""
    return represent_alone(model, ids_of(model, cleaned(corpus)), key)


def clusters_of(store: Datastore, segments: list[oracle.Segment], unit: bool) -> dict[oracle.Place, int]:
    """Which cluster the store has put each source token in: the token is told by its state."""
    part = store.parts[0]
    assign: dict[oracle.Place, int] = {}
    numbers = np.empty(part.sizes["tokens"], np.int64)
    numbers[part["cluster_members"]] = np.repeat(np.arange(part.sizes["clusters"]), np.diff(part["cluster_starts"]))
    places: dict[int, list[tuple[oracle.Place, Any]]] = defaultdict(list)
    for number, segment in enumerate(segments):
        for i in sorted({i for i, _ in segment.links}):
            state = oracle.unit(segment.source_states[i]) if unit else segment.source_states[i]
            places[segment.source_ids[i]].append(((number, i), state))
    for kind, (begin, end) in enumerate(pairwise(part["type_offsets"].tolist())):
        tokens, first = places[kind], int(part["cluster_offsets"][kind])
        assert end - begin == len(tokens)
        if tokens:
            keys = part["source_keys"][begin:end].astype(np.float64)
            rows = [int(np.square(keys - state).sum(axis=1).argmin()) for _, state in tokens]
            assert sorted(rows) == list(range(end - begin)), "each token has a row of its own"
            assign |= {place: int(numbers[begin + row]) - first for (place, _), row in zip(tokens, rows, strict=True)}
    return assign


WHOLE = (
    "target_ids", "target_offsets", "type_offsets", "link_offsets", "link_entries", "cluster_offsets", "cluster_starts",
    "ranking_offsets",
)  # fmt: skip
HALVES = ("target_keys", "source_keys", "cluster_source", "cluster_target")


def assert_the_oracles(
    store: Datastore, model: Model, pairs: list[Pair], states: list[tuple[Rows, Rows]], links: Links, k_max: int | None
) -> None:
    """Compare every array: whole numbers exactly, states as far as 16 bits go, rankings up to equal distances."""
    part, metric = store.parts[0], store.manifest.metric
    segments = oracle_segments(model, pairs, states, links)
    assign = clusters_of(store, segments, unit=metric == "cosine")
    vocabulary = model.transformer.architecture.source_vocabulary
    expected = oracle.build(segments, assign, vocabulary, k_max or 10**9, metric)
    # tokens are in the order of the corpus, as they are where a type is one cluster
    ordered = oracle.build(segments, dict.fromkeys(assign, 0), vocabulary, k_max or 10**9, metric)
    expected |= {name: ordered[name] for name in ("link_offsets", "link_entries", "source_keys")}
    for name in WHOLE:
        np.testing.assert_array_equal(part[name], expected[name], name)
    for name in HALVES:
        np.testing.assert_allclose(part[name].astype(float), expected[name].astype(float), atol=4e-3, err_msg=name)
    np.testing.assert_allclose(part["ranking_distances"], expected["ranking_distances"], rtol=1e-2, atol=1e-2)

    # from the keys as they are stored, means and ranks are exact
    keys, starts = part["target_keys"], part["cluster_starts"]
    for number, (begin, end) in enumerate(pairwise(part["ranking_offsets"].tolist())):
        rows = part["cluster_members"][starts[number] : starts[number + 1]]
        linked = [part["link_entries"][slice(*part["link_offsets"][row : row + 2])].tolist() for row in rows]
        distinct = sorted(set().union(*linked))
        ranked = part["ranking_entries"][begin:end].tolist()
        mean = part["cluster_target"][number]
        if metric != "cosine":
            assert np.array_equal(mean, oracle.centroid([keys[e] for e in distinct], keys.shape[1], oracle.as_is))
            members = list(part["source_keys"][rows])
            own = oracle.centroid(members, keys.shape[1], oracle.as_is)
            assert np.array_equal(part["cluster_source"][number], own)
        away = {entry: oracle.squared(keys[entry], mean) for entry in distinct}
        assert len(set(ranked)) == len(ranked) == min(len(distinct), k_max or len(distinct))
        assert set(ranked) <= set(distinct)
        np.testing.assert_allclose([away[entry] for entry in ranked], sorted(away.values())[: end - begin], rtol=1e-5)
        np.testing.assert_allclose(part["ranking_distances"][begin:end], [away[e] for e in ranked], rtol=1e-5)
    assert np.array_equal(part["ranking_tokens"], part["target_ids"][part["ranking_entries"]])


@pytest.mark.parametrize(
    "changes",
    [{}, {"metric": "cosine"}, {"metric": "euclidean"}, {"key": "output"}, {"k_max": None}, {"batch_tokens": 64}],
    ids=str,
)
def test_a_store_holds_what_slow_numpy_makes_of_the_models_states(
    model: Model, corpus: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    chosen = settings(**changes)
    report = build([corpus], model, tmp_path / "store", "de-en", chosen)
    store = Datastore.open(tmp_path / "store")
    assert {f"{name}.npy" for name in ARRAYS} - verified(store) == {
        *(f"{side}_{kind}.npy" for side in ("source", "target") for kind in ("codes", "codebooks")),
        "given_links.npy", "given_offsets.npy",
    }  # fmt: skip
    pairs = ids_of(model, cleaned(corpus))
    links = store.aligner().align(bitext_of(model, pairs))
    assert_the_oracles(store, model, pairs, states_alone(model, corpus, chosen.key), links, chosen.k_max)
    assert len(store.parts[0]["cluster_source"]) > 2 * len(
        np.unique(store.parts[0]["cluster_offsets"])
    )  # many in a type
    if chosen.metric == "cosine":
        lengths = np.linalg.norm(store.parts[0]["target_keys"].astype(float), axis=1)
        np.testing.assert_allclose(lengths, 1, atol=1e-3)
    assert store.manifest.key == chosen.key
    assert store.manifest.kept == report.kept == len(store) == len(pairs)
    assert BuildSettings.model_validate(store.manifest.settings) == chosen
    assert leftovers(tmp_path) == {"store"}


def test_the_scale_is_the_median_distance_of_two_keys(built: Path) -> None:
    store = Datastore.open(built)
    keys = store.parts[0]["target_keys"].astype(np.float32)
    distances = np.square(keys[:, None] - keys[None, :]).sum(axis=2)
    assert store.manifest.scale == pytest.approx(float(np.median(distances)), rel=0.1)


def test_the_most_frequent_types_are_named(built: Path, model: Model) -> None:
    store = Datastore.open(built)
    counts = np.diff(store.parts[0]["type_offsets"])
    named = store.manifest.frequent_types
    assert [kind.tokens for kind in named] == sorted(counts[counts > 0].tolist(), reverse=True)[:20]
    order = np.argsort(-counts, kind="stable")[: len(named)]
    assert [kind.piece for kind in named] == model.tokenizer.pieces(order.tolist())


# ------------------------------------------------------------------------------------------------------- settings


def test_quantized_keys_take_the_place_of_keys(model: Model, corpus: Path, built: Path, tmp_path: Path) -> None:
    build([corpus], model, tmp_path / "store", "de-en", settings(keys="pq"))
    store, plain = Datastore.open(tmp_path / "store"), Datastore.open(built)
    assert len(verified(store)) == len(plain.parts[0].files) + 2
    for side in ("target", "source"):
        assert f"{side}_keys" not in store.parts[0]
        keys = plain.parts[0][f"{side}_keys"].astype(np.float32)
        codes, codebooks = store.parts[0][f"{side}_codes"], store.parts[0][f"{side}_codebooks"]
        assert codes.shape == (len(keys), store.sizes["subspaces"])
        width = codebooks.shape[2]
        for subspace, centroids in enumerate(codebooks):
            parts = keys[:, subspace * width : (subspace + 1) * width]
            away = np.square(parts[:, None] - centroids[None]).sum(axis=2)
            chosen = away[np.arange(len(keys)), codes[:, subspace]]
            np.testing.assert_allclose(chosen, away.min(axis=1), atol=1e-5)  # the nearest centroid, or one as near
        decoded = np.concatenate([codebooks[part][codes[:, part]] for part in range(len(codebooks))], axis=1)
        np.testing.assert_allclose(store.parts[0][f"{side}_norms"], np.square(decoded).sum(axis=1), rtol=1e-5)
        np.testing.assert_allclose(plain.parts[0][f"{side}_norms"], np.square(keys).sum(axis=1), rtol=1e-5)


def test_a_store_for_one_system_leaves_out_what_that_does_not_need(
    model: Model, corpus: Path, built: Path, tmp_path: Path
) -> None:
    report = build([corpus], model, tmp_path / "store", "de-en", settings(systems=("faster",)))
    there, all_files = part_files(tmp_path / "store"), part_files(built)
    wanted = {*SYSTEMS["faster"].arrays, *ALWAYS}
    missing = {name.removesuffix(".npy") for name in all_files if name.endswith(".npy")} - wanted
    assert {"target_keys", "source_keys", "link_entries", "proto_source"} <= missing
    assert set(all_files) - set(there) == {f"{name}.npy" for name in missing}
    assert all(content == all_files[name] for name, content in there.items())
    store = Datastore.open(tmp_path / "store")
    assert report.size == sum(file.size for file in store.files.values())
    assert verified(store) == set(there)
    with pytest.raises(StoreError, match="was built without target_keys"):
        store.parts[0]["target_keys"]


def test_an_index_over_all_keys_is_made_where_asked_for(
    model: Model, corpus: Path, built: Path, tmp_path: Path
) -> None:
    faiss = pytest.importorskip("faiss")
    build([corpus], model, tmp_path / "store", "de-en", settings(index=True))
    store = Datastore.open(tmp_path / "store")
    assert INDEX in verified(store)
    assert INDEX not in Datastore.open(built).parts[0].files
    index = faiss.read_index(str(store.parts[0].file(INDEX)))
    keys = store.parts[0]["target_keys"].astype(np.float32)
    distances, nearest = index.search(keys[:20], 1)
    assert index.ntotal == len(keys)
    assert np.allclose(distances, 0, atol=1e-3)
    np.testing.assert_allclose(keys[nearest[:, 0]], keys[:20], atol=1e-3)


def test_an_unknown_system_is_refused(model: Model, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no system 'fastest': use knn, fast"):
        build([corpus], model, tmp_path / "store", "de-en", settings(systems=("faster", "fastest")))
    assert not leftovers(tmp_path)


def test_the_library_builds_with_a_models_name(
    model_folder: Callable[[str], Path], corpus: Path, tmp_path: Path
) -> None:
    store = Datastore.build(
        str(corpus), langs="de-en", out=str(tmp_path / "store"), model=model_folder("marian"), settings=SETTINGS
    )
    assert len(store) == PAIRS
    assert list(store.verify())
