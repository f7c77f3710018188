"""From texts to a store: every array is what slow NumPy makes of the model's states, whatever the settings."""

import fcntl
import json
import logging
import resource
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from knnmt.align import AlignSettings, Bitext, Links
from knnmt.build import cut
from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.build.stages import ALWAYS
from knnmt.corpus import CleanSettings, Languages, Segment, clean, read
from knnmt.datastore import Datastore
from knnmt.errors import DataError, KnnmtError, StoreError, UsageError
from knnmt.model.checkpoint import Model, load
from knnmt.model.represent import represent
from knnmt.model.transformer import KeyKind
from knnmt.store.manifest import INDEX, MANIFEST
from knnmt.store.schema import ARRAYS
from knnmt.systems.table import SYSTEMS

from ..oracle import datastore as oracle
from .examples import parallel_text

PAIRS, K_MAX = 150, 7
CLEAN = CleanSettings(check_language=False)  # words in a row have no language
SETTINGS = BuildSettings(cluster_size=4, k_max=K_MAX, clean=CLEAN)


@pytest.fixture(scope="module")
def model(model_folder: Callable[[str], Path]) -> Model:
    return load(model_folder("marian"), langs="de-en", device="cpu")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return parallel_text(tmp_path_factory.mktemp("corpus") / "corpus.tsv", PAIRS)


@pytest.fixture(scope="module")
def built(model: Model, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of the corpus under SETTINGS."""
    out = tmp_path_factory.mktemp("built") / "store"
    build([corpus], model, out, "de-en", SETTINGS)
    return out


class Stop(Exception):  # noqa: N818 (raised to stop a build, as ^C would)
    """What interrupts a build."""


def settings(**changes: Any) -> BuildSettings:
    return SETTINGS.model_copy(update=changes)


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, to the byte."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def part_files(folder: Path) -> dict[str, bytes]:
    (part,) = folder.glob("part-*")
    return files(part)


def verified(store: Datastore) -> set[str]:
    """The files of the parts, all of which are sound."""
    return {Path(name).name for name in store.verify() if name.startswith("part-")}


def leftovers(folder: Path) -> set[str]:
    """What a build has left beside the corpus."""
    return {path.name for path in folder.iterdir()} - {"corpus.tsv"}


# --------------------------------------------------------------------------------------------------- the same by oracle


Pair = tuple[list[int], list[int]]
Rows = NDArray[np.float32]


def cleaned(corpus: Path) -> list[Segment]:
    languages = Languages("de", "en")
    return list(clean(read(corpus, languages), languages, CLEAN))


def ids_of(model: Model, segments: list[Segment]) -> list[Pair]:
    """Token ids of each segment, with the end on the source side only."""
    sources = model.tokenizer.encode_source([segment.source for segment in segments])
    targets = model.tokenizer.encode_target([segment.target for segment in segments])
    return list(zip(sources, targets, strict=True))


@cache
def states_alone(model: Model, corpus: Path, key: KeyKind) -> list[tuple[Rows, Rows]]:
    """The states of each pair, when the model is shown that one alone."""
    return represent_alone(model, ids_of(model, cleaned(corpus)), key)


def represent_alone(model: Model, pairs: list[Pair], key: KeyKind = "ffn_input") -> list[tuple[Rows, Rows]]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # for so little, threads wait longer for each other than they work
    try:
        states = [next(represent(model, [pair], key=key)) for pair in pairs]
    finally:
        torch.set_num_threads(threads)
    return [(alone.source.numpy(), alone.target.numpy()) for alone in states]


def bitext_of(model: Model, pairs: list[Pair]) -> Bitext:
    return Bitext.from_pairs([(source, [*target, model.special.end]) for source, target in pairs])


def oracle_segments(model: Model, pairs: list[Pair], states: list[tuple[Rows, Rows]], links: Links) -> Any:
    return [
        oracle.Segment(source, [*target, model.special.end], links.segment(number), *states[number])
        for number, (source, target) in enumerate(pairs)
    ]


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


# --------------------------------------------------------------------------------------------- links made elsewhere


def pharaoh(model: Model, segments: list[Segment], path: Path) -> Links:
    """Write random links for each segment, some without; those the model cannot take get nonsense."""
    rng = np.random.default_rng(2)
    kept: list[list[tuple[int, int]]] = []
    lines = []
    for source, target in ids_of(model, segments):
        if len(source) > 60 or len(target) > 60 or not target:
            lines.append("500-500 501-0")
            continue
        count = 0 if rng.random() < 0.2 else 6
        links = {(int(rng.integers(len(target) + 1)), int(rng.integers(len(source)))) for _ in range(count)}
        kept.append(sorted(links))
        lines.append(" ".join(f"{i}-{j}" for j, i in links))
    path.write_text("".join(f"{line}\n" for line in lines))
    flat = np.array([link for links in kept for link in links], np.int32)
    return Links(flat[:, 1], flat[:, 0], np.cumsum([0, *map(len, kept)]))


@pytest.fixture
def with_long_segments(tmp_path: Path) -> Path:
    """A corpus in which some segments are too long for the model or empty; twice the same is kept."""
    lines = parallel_text(tmp_path / "corpus.tsv", 40).read_text(encoding="utf-8").splitlines()
    lines.insert(0, f"{'Hund ' * 80}\tdog\tlong source")
    lines.insert(7, f"Hund\t{'dog ' * 80}\tlong target")
    lines.insert(20, "Hund\t\tno target")
    lines.insert(21, lines[5])
    lines.append(f"{'Hund ' * 80}\t{'dog ' * 80}\tboth")
    (tmp_path / "corpus.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path / "corpus.tsv"


def test_links_of_another_aligner_are_taken_as_they_are(model: Model, with_long_segments: Path, tmp_path: Path) -> None:
    everything = list(read(with_long_segments, Languages("de", "en")))
    links = pharaoh(model, everything, tmp_path / "links.txt")
    chosen = settings(align=AlignSettings(cover=False))
    report = build([with_long_segments], model, tmp_path / "store", "de-en", chosen, alignments=tmp_path / "links.txt")
    kept = [segment for segment in everything if segment.id not in ("long source", "long target", "no target", "both")]
    store = Datastore.open(tmp_path / "store")
    assert list(store.segments()) == kept
    assert report.kept == len(kept) == 41
    assert report.dropped == store.manifest.dropped == {"too long": 3, "empty": 1}
    assert store.manifest.aligner is None
    assert store.manifest.settings["clean"] is None
    list(store.verify())
    pairs = ids_of(model, kept)
    states = represent_alone(model, pairs)
    # the segment that is there twice has the same states twice: tokens are told apart by their cluster's order
    first, second = [number for number, segment in enumerate(kept) if segment.id == "4"]
    assert np.array_equal(states[first][0], states[second][0])
    segments = oracle_segments(model, pairs, states, links)
    expected = sorted(
        (
            segment.source_ids[i],
            sorted({int(store.parts[0]["target_offsets"][n]) + j for o, j in segment.links if o == i}),
        )
        for n, segment in enumerate(segments)
        for i in {i for i, _ in segment.links}
    )
    types = np.repeat(np.arange(len(store.parts[0]["type_offsets"]) - 1), np.diff(store.parts[0]["type_offsets"]))
    linked = np.split(store.parts[0]["link_entries"], store.parts[0]["link_offsets"])[1:-1]
    assert sorted((int(kind), some.tolist()) for kind, some in zip(types, linked, strict=True)) == expected


def test_the_links_of_the_aligner_may_be_given_back_to_it(
    model: Model, corpus: Path, built: Path, tmp_path: Path
) -> None:
    store = Datastore.open(built)
    pairs = ids_of(model, list(store.segments()))
    assert len(store) == PAIRS  # nothing was cleaned away, so that line i is segment i
    links = store.aligner().align(bitext_of(model, pairs))
    lines = (" ".join(f"{i}-{j}" for i, j in links.segment(number)) for number in range(len(pairs)))
    (tmp_path / "links.txt").write_text("".join(f"{line}\n" for line in lines))
    build([corpus], model, tmp_path / "store", "de-en", SETTINGS, alignments=tmp_path / "links.txt")
    ours, given = part_files(built), part_files(tmp_path / "store")
    assert Datastore.open(tmp_path / "store").manifest.aligner is None
    assert {"given_links.npy", "given_offsets.npy"} <= set(given)  # a compaction has no other
    assert {name: content for name, content in given.items() if not name.startswith("given_")} == ours


@pytest.mark.parametrize(("change", "message"), [(-1, "unexpected end of file"), (1, "more lines")])
def test_a_file_of_links_has_a_line_for_each_segment(
    model: Model, with_long_segments: Path, tmp_path: Path, change: int, message: str
) -> None:
    path = tmp_path / "links.txt"
    pharaoh(model, list(read(with_long_segments, Languages("de", "en"))), path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:change] if change < 0 else [*lines, "0-0\n"]))
    with pytest.raises(DataError, match=message):
        build([with_long_segments], model, tmp_path / "store", "de-en", SETTINGS, alignments=path)
    assert not (tmp_path / "store").exists()


def test_a_file_of_links_that_is_not_there_is_a_wrong_call(model: Model, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.txt"):
        build([corpus], model, tmp_path / "store", "de-en", SETTINGS, alignments=tmp_path / "nowhere.txt")
    assert not leftovers(tmp_path)


# ------------------------------------------------------------------------------------------------- the same to the byte


def test_the_number_of_workers_changes_no_byte(
    model: Model, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards of one batch, so that all workers have some."""
    monkeypatch.setattr(cut, "RUN", 1)
    for workers in (1, 2, 5):
        out = tmp_path / f"store{workers}"
        build([corpus], model, out, "de-en", settings(batch_tokens=64, keys="pq"), workers=workers)
        assert files(out) == files(tmp_path / "store1")


def test_a_build_leaves_torch_the_threads_it_had(model: Model, corpus: Path, tmp_path: Path) -> None:
    def threads() -> list[int]:
        with ThreadPoolExecutor(1) as pool:
            return [torch.get_num_threads(), pool.submit(torch.get_num_threads).result()]

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        build([corpus], model, tmp_path / "store", "de-en", SETTINGS)
        assert threads() == [3, 3]
    finally:
        torch.set_num_threads(before)


def test_progress_adds_up(model: Model, corpus: Path, tmp_path: Path) -> None:
    done: dict[str, int] = defaultdict(int)
    whole: dict[str, int | None] = {}

    def progress(stage: str, some: int, total: int | None) -> None:
        assert some >= 0
        done[stage] += some
        assert whole.setdefault(stage, total) == total

    report = build([corpus], model, tmp_path / "store", "de-en", settings(keys="pq"), progress=progress)
    assert list(whole) == ["read", "align", "represent", "cluster", "prototypes", "similar", "keys"]
    assert {stage: done[stage] for stage in whole if whole[stage] is not None} == {
        stage: total for stage, total in whole.items() if total is not None
    }
    assert list(report.seconds) == [
        "read", "align", "count", "cut", "represent", "scale", "cluster", "prototypes", "similar", "keys", "seal",
    ]  # fmt: skip


# -------------------------------------------------------------------------------------------- what is there already


@pytest.fixture
def there(built: Path, tmp_path: Path) -> Path:
    """A finished store, in a place of its own."""
    return shutil.copytree(built, tmp_path / "store")


def times(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def test_a_store_that_is_there_is_not_made_again(model: Model, corpus: Path, there: Path) -> None:
    before = times(there)
    report = build([corpus], model, there, "de-en", SETTINGS)
    assert not report.seconds
    assert report.kept == PAIRS
    assert report.size == sum(len(content) for name, content in files(there).items() if name != MANIFEST)
    assert times(there) == before
    assert leftovers(there.parent) == {"store"}


def test_a_store_is_made_again_to_the_byte_where_it_is_to_be_replaced(
    model: Model, corpus: Path, there: Path, built: Path
) -> None:
    report = build([corpus], model, there, "de-en", SETTINGS, replace=True)
    assert "represent" in report.seconds
    assert files(there) == files(built)
    assert leftovers(there.parent) == {"store"}


def test_another_store_is_replaced_only_where_that_is_said(
    model: Model, corpus: Path, there: Path, built: Path
) -> None:
    other = settings(k_max=3)
    with pytest.raises(UsageError, match="holds another datastore: choose another folder, or replace it"):
        build([corpus], model, there, "de-en", other)
    assert files(there) == files(built)
    assert leftovers(there.parent) == {"store"}

    old = Datastore.open(there)
    before = {name: np.array(old.parts[0][name]) for name in ("target_ids", "ranking_entries")}
    seen = set()

    def progress(stage: str, some: int, total: int | None) -> None:
        seen.add(stage)
        now = Datastore.open(there)
        assert now.manifest == old.manifest
        assert len(list(now.verify())) == len(old.files)

    build([corpus], model, there, "de-en", other, replace=True, progress=progress)
    assert seen == {"read", "align", "represent", "cluster", "prototypes", "similar", "keys"}
    new = Datastore.open(there)
    assert new.manifest.settings["k_max"] == 3
    assert list(new.verify())
    assert len(list(there.glob("part-*"))) == 1
    assert all(
        np.array_equal(old.parts[0][name], array) for name, array in before.items()
    )  # whoever had it open has it
    assert leftovers(there.parent) == {"store"}


def changed_text(corpus: Path) -> None:
    corpus.write_text(corpus.read_text(encoding="utf-8") + "der Hund\tthe dog\n", encoding="utf-8")


def test_a_corpus_that_changed_makes_another_store(model: Model, tmp_path: Path) -> None:
    corpus = parallel_text(tmp_path / "corpus.tsv", 20)
    build([corpus], model, tmp_path / "store", "de-en", SETTINGS)
    changed_text(corpus)
    with pytest.raises(UsageError, match="holds another datastore"):
        build([corpus], model, tmp_path / "store", "de-en", SETTINGS)


@pytest.mark.parametrize("damage", ["newer", "broken"])
def test_a_store_that_cannot_be_read_is_not_overwritten_unasked(
    model: Model, corpus: Path, there: Path, damage: str
) -> None:
    manifest = there / MANIFEST
    if damage == "newer":
        manifest.write_text(json.dumps({"knnmt": {"format": 2}}))
    else:
        manifest.write_bytes(manifest.read_bytes()[:-10])
    before = files(there)
    with pytest.raises(UsageError, match="replace"):
        build([corpus], model, there, "de-en", SETTINGS)
    assert files(there) == before
    build([corpus], model, there, "de-en", SETTINGS, replace=True)
    assert list(Datastore.open(there).verify())


def test_a_folder_with_other_files_is_left_alone(model: Model, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("mine")
    for replace in (False, True):
        with pytest.raises(UsageError, match="it is a folder with other files in it"):
            build([corpus], model, tmp_path / "thesis", "de-en", SETTINGS, replace=replace)
    assert files(tmp_path / "thesis") == {"chapter.txt": b"mine"}
    assert leftovers(tmp_path) == {"thesis"}


def test_a_folder_that_only_looks_like_the_work_folder_is_left_alone(
    model: Model, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "store.building" / "part").mkdir(parents=True)
    (tmp_path / "store.building" / "plan of the house.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"store\.building"):
        build([corpus], model, tmp_path / "store", "de-en", SETTINGS)
    assert (tmp_path / "store.building" / "plan of the house.txt").read_text() == "mine"


def test_an_empty_folder_will_do(model: Model, corpus: Path, built: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    build([corpus], model, tmp_path / "store", "de-en", SETTINGS)
    assert files(tmp_path / "store") == files(built)


def test_a_store_may_be_built_right_here(
    model: Model, corpus: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    build([corpus], model, Path(), "de-en", SETTINGS)
    assert files(tmp_path / "here") == files(built)
    assert leftovers(tmp_path) == {"here"}


# -------------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("out", ["nowhere/store", "file", "file/store"])
def test_a_place_that_cannot_be_is_a_wrong_call(model: Model, corpus: Path, tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match="cannot build"):
        build([corpus], model, tmp_path / out, "de-en", SETTINGS)
    assert leftovers(tmp_path) == {"file"}


def test_a_folder_that_cannot_be_written_is_one_clear_error(model: Model, corpus: Path) -> None:
    """Nobody can make a folder in /proc, not even root."""
    with pytest.raises(OSError, match=r"/proc/store\.building"):
        build([corpus], model, Path("/proc/store"), "de-en", SETTINGS)


@pytest.fixture
def file_limit() -> Iterator[Callable[[int | None], None]]:
    """Limit the size of files, which is how a disk that is full can be had without one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size: int | None) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft if size is None else size, hard))

    yield limit
    limit(None)


def test_a_full_disk_is_one_clear_error_and_the_work_goes_on_when_there_is_room(
    model: Model, corpus: Path, built: Path, tmp_path: Path, file_limit: Callable[[int | None], None]
) -> None:
    largest = max(map(len, files(built).values()))  # the keys, whose room is reserved before any is computed
    stops = {"read": (0, 200), "align": (1, 200), "represent": (4, largest - 1), "cluster": (6, 200)}
    for full, (done, room) in stops.items():

        def progress(stage: str, some: int, total: int | None, full: str = full, room: int = room) -> None:
            if stage == full or room > 200:
                file_limit(room)

        with pytest.raises((OSError, KnnmtError)) as failed:
            build([corpus], model, tmp_path / "store", "de-en", SETTINGS, progress=progress)
        file_limit(None)
        assert str(failed.value)
        assert len(list((tmp_path / "store.building").glob("*.done"))) == done, full
        with pytest.raises(StoreError, match="there is no datastore"):
            Datastore.open(tmp_path / "store")
    build([corpus], model, tmp_path / "store", "de-en", SETTINGS)
    assert files(tmp_path / "store") == files(built)
    assert leftovers(tmp_path) == {"store"}


def test_bad_lines_are_counted_and_the_others_kept(model: Model, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.tsv"
    good = parallel_text(corpus, 20).read_bytes().splitlines(keepends=True)
    bad = [b"no tab\n", b"\xff\tdog\n", b"a\tb\tc\td\n"]
    corpus.write_bytes(b"".join([bad[0], *good[:10], bad[1], *good[10:], bad[2], good[3], b" \tdog\n"]))
    report = build([corpus], model, tmp_path / "store", "de-en", SETTINGS)
    assert report.kept == 20
    assert report.dropped == {"unreadable": 3, "duplicate": 1, "empty": 1}
    store = Datastore.open(tmp_path / "store")
    assert store.manifest.dropped == report.dropped
    assert [segment.id for segment in store.segments()] == [str(number) for number in range(20)]
    assert store.segment(10).origin == f"{corpus}:13"


def test_without_cleaning_a_bad_line_stops_the_build(model: Model, tmp_path: Path) -> None:
    (tmp_path / "corpus.tsv").write_text("Hund\tdog\nno tab\n")
    with pytest.raises(DataError, match=r"corpus\.tsv:2: no tab"):
        build([tmp_path / "corpus.tsv"], model, tmp_path / "store", "de-en", settings(clean=None))
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("content", [b"", b"no tab\n" * 5, b" \t \n"], ids=["empty", "bad", "blank"])
def test_a_corpus_of_nothing_makes_no_store(model: Model, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "corpus.tsv").write_bytes(content)
    with pytest.raises(DataError, match=r"there is nothing to store: (kept 0 of|the corpus has no segments)"):
        build([tmp_path / "corpus.tsv"], model, tmp_path / "store", "de-en", SETTINGS)
    assert leftovers(tmp_path) == set()  # nor anything to resume


def test_two_builds_do_not_work_in_one_folder(model: Model, corpus: Path, built: Path, tmp_path: Path) -> None:
    refused = []

    def progress(stage: str, some: int, total: int | None) -> None:
        if stage not in refused:
            refused.append(stage)
            with pytest.raises(UsageError, match="another build is at work in"):
                build([corpus], model, tmp_path / "store", "de-en", SETTINGS)

    build([corpus], model, tmp_path / "store", "de-en", SETTINGS, progress=progress)
    assert refused == ["read", "align", "represent", "cluster", "prototypes", "similar", "keys"]
    assert files(tmp_path / "store") == files(built)


def test_the_work_folder_of_a_build_that_ended_meanwhile_is_not_taken(
    model: Model, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening the lock and having it, another build may finish and remove the folder."""
    lock = fcntl.flock

    def late(file: Any, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        (tmp_path / "store.building" / "lock").unlink()
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(UsageError, match="another build"):
        build([corpus], model, tmp_path / "store", "de-en", SETTINGS)


def test_what_a_build_with_other_settings_left_is_not_used(
    model: Model, corpus: Path, built: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def stop(stage: str, some: int, total: int | None) -> None:
        if stage == "cluster":
            raise Stop

    with pytest.raises(Stop):
        build([corpus], model, tmp_path / "store", "de-en", settings(key="output"), progress=stop)
    with caplog.at_level(logging.WARNING):
        report = build([corpus], model, tmp_path / "store", "de-en", SETTINGS)
    assert "starting again" in caplog.text
    assert "read" in report.seconds
    assert files(tmp_path / "store") == files(built)


def test_a_model_in_another_precision_makes_another_store(
    model_folder: Callable[[str], Path], corpus: Path, there: Path
) -> None:
    coarse = load(model_folder("marian"), langs="de-en", device="cpu", precision="bfloat16")
    with pytest.raises(UsageError, match="holds another datastore"):
        build([corpus], coarse, there, "de-en", SETTINGS)


def test_the_library_builds_with_a_models_name(
    model_folder: Callable[[str], Path], corpus: Path, tmp_path: Path
) -> None:
    store = Datastore.build(
        str(corpus), langs="de-en", out=str(tmp_path / "store"), model=model_folder("marian"), settings=SETTINGS
    )
    assert len(store) == PAIRS
    assert list(store.verify())


def test_a_journal_whose_last_line_was_cut_off_names_no_other_shard(
    model: Model, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash of the machine may leave half a line; what is written next must not become its other half."""
    monkeypatch.setattr(cut, "RUN", 1)
    monkeypatch.setattr("knnmt.build.represent.SYNC_SECONDS", 0.0)
    chosen = settings(batch_tokens=64)

    def stop(stage: str, some: int, total: int | None) -> None:
        if stage == "represent" and some:
            raise Stop

    journal = tmp_path / "store.building" / "part-0" / "represented"
    for _ in range(2):
        with pytest.raises(Stop):
            build([corpus], model, tmp_path / "store", "de-en", chosen, workers=1, progress=stop)
        with journal.open("a") as file:
            file.write("99")
    *lines, _ = journal.read_text().split("\n")
    assert len(lines) > 1
    assert all(int(line) < PAIRS for line in lines)
    build([corpus], model, tmp_path / "store", "de-en", chosen)
    build([corpus], model, tmp_path / "other", "de-en", chosen)
    assert files(tmp_path / "store") == files(tmp_path / "other")
