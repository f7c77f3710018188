"""A corpus that is cut into parts: together they hold what one part of it holds, to the bit."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from knnmt.align.settings import AlignSettings
from knnmt.build import stages
from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.corpus import CleanSettings
from knnmt.model.checkpoint import Model, load
from knnmt.store.store import Store

from .examples import parallel_text

PAIRS = 80
SETTINGS = BuildSettings(
    cluster_size=4, prototype_size=4, k_max=7, batch_tokens=64, clean=CleanSettings(check_language=False)
)


@pytest.fixture(scope="module")
def model(model_folder: Callable[[str], Path]) -> Model:
    return load(model_folder("marian"), langs="de-en", device="cpu")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return parallel_text(tmp_path_factory.mktemp("corpus") / "corpus.tsv", PAIRS)


pytestmark = pytest.mark.usefixtures("short_runs")


@pytest.fixture(scope="module")
def stores(short_runs: None, model: Model, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Store]:
    """The same corpus in one, two and five parts."""
    folder = tmp_path_factory.mktemp("stores")
    build([corpus], model, folder / "1", "de-en", SETTINGS)
    made = {1: Store.open(folder / "1")}
    for count in (2, 5):
        most = -(-made[1].sizes["entries"] // count)
        build([corpus], model, folder / str(count), "de-en", SETTINGS.model_copy(update={"part_tokens": most}))
        made[count] = Store.open(folder / str(count))
    return made


def together(store: Store, name: str) -> NDArray[Any]:
    return np.concatenate([part[name] for part in store.parts])


def tokens_of(store: Store) -> dict[int, list[tuple[bytes, list[int]]]]:
    """Of each type, in their order: the state of each source token, and the entries it links to in the store."""
    found: dict[int, list[tuple[bytes, list[int]]]] = {}
    for part in store.parts:
        links = np.split(part["link_entries"] + part.first_entry, part["link_offsets"][1:-1])
        for kind, (begin, end) in enumerate(pairwise(part["type_offsets"].tolist())):
            rows = [(part["source_keys"][row].tobytes(), links[row].tolist()) for row in range(begin, end)]
            found.setdefault(kind, []).extend(rows)
    return found


@pytest.mark.parametrize("count", [2, 5])
def test_parts_hold_together_what_one_part_holds(stores: dict[int, Store], count: int) -> None:
    one, several = stores[1], stores[count]
    assert len(several.parts) == count
    list(several.verify())
    for name in ("target_keys", "target_ids", "target_norms", "text"):
        assert np.array_equal(together(several, name), one.parts[0][name]), name
    assert tokens_of(several) == tokens_of(one)
    assert list(several.segments()) == list(one.segments())
    for name in ("segments", "entries", "tokens", "links", "bytes"):
        assert several.sizes[name] == one.sizes[name], name
    assert several.scale == one.scale
    assert several.manifest.frequent_types == one.manifest.frequent_types
    assert several.manifest.kept == one.manifest.kept


def test_parts_are_about_as_large_as_each_other(stores: dict[int, Store]) -> None:
    """But for a run of segments, which is not cut."""
    sizes = [part.sizes["entries"] for part in stores[5].parts]
    assert all(abs(size - sum(sizes) / 5) <= 70 for size in sizes)


@pytest.mark.parametrize("count", [2, 5])
def test_parts_share_projections_and_weigh_types_by_the_whole_store(stores: dict[int, Store], count: int) -> None:
    one, several = stores[1], stores[count]
    for part in several.parts:
        for name in (f"small_{side}_{what}" for side in ("source", "target") for what in ("projection", "middle")):
            assert np.array_equal(part[name], several.parts[0][name]), name
    spread = sum(part["type_segments"].astype(int) for part in several.parts)
    assert np.array_equal(spread, one.parts[0]["type_segments"])
    shares, expected = (
        {
            (part.first_segment + int(segment), kind): int(share)
            for part in store.parts
            for kind, (begin, end) in enumerate(pairwise(part["type_offsets"].tolist()))
            for segment, share in zip(part["token_segments"][begin:end], part["token_shares"][begin:end], strict=True)
        }
        for store in (several, one)
    )
    assert shares == expected


@pytest.mark.parametrize("count", [1, 5])
def test_tokens_are_in_the_order_of_the_corpus_and_clusters_list_their_rows(
    stores: dict[int, Store], count: int
) -> None:
    for part in stores[count].parts:
        members, starts = part["cluster_members"], part["cluster_starts"]
        assert sorted(members.tolist()) == list(range(part.sizes["tokens"]))
        assert all(np.all(np.diff(members[begin:end]) > 0) for begin, end in pairwise(starts.tolist()))
        kinds = np.searchsorted(part["type_offsets"], members, side="right") - 1
        owners = np.repeat(np.arange(starts.size - 1), np.diff(starts))
        assert np.array_equal(kinds, np.searchsorted(part["cluster_offsets"], owners, side="right") - 1)
        for begin, end in pairwise(part["type_offsets"].tolist()):
            assert np.all(np.diff(part["token_segments"][begin:end]) >= 0)
        for number, (begin, end) in enumerate(pairwise(starts.tolist())):
            mean = part["source_keys"][members[begin:end]].astype(np.float64).mean(axis=0)
            np.testing.assert_allclose(part["cluster_source"][number], mean, atol=2e-3)


def test_the_number_of_workers_changes_no_byte_of_any_part(
    model: Model, corpus: Path, stores: dict[int, Store], tmp_path: Path
) -> None:
    most = -(-stores[1].sizes["entries"] // 5)
    settings = SETTINGS.model_copy(update={"part_tokens": most})
    build([corpus], model, tmp_path / "store", "de-en", settings, workers=3)
    assert Store.open(tmp_path / "store").manifest == stores[5].manifest


def test_a_part_without_links_is_none(model: Model, corpus: Path, tmp_path: Path) -> None:
    """Links of another aligner may be all in one place."""
    lines = ["0-0" if number in (0, 1, PAIRS // 2) else "" for number in range(PAIRS)]
    (tmp_path / "links").write_text("".join(f"{line}\n" for line in lines))
    settings = SETTINGS.model_copy(update={"part_tokens": 100, "align": AlignSettings(cover=False)})
    build([corpus], model, tmp_path / "store", "de-en", settings, alignments=tmp_path / "links")
    store = Store.open(tmp_path / "store")
    assert len(store) == PAIRS
    assert [part.sizes["links"] for part in store.parts] == [2, 1]
    list(store.verify())


# -------------------------------------------------------------------------------------------------------- which stages


def test_a_stage_whose_arrays_no_system_opens_does_not_run(model: Model, corpus: Path, tmp_path: Path) -> None:
    report = build([corpus], model, tmp_path / "store", "de-en", SETTINGS.model_copy(update={"systems": ("proto",)}))
    assert not {"cluster", "similar", "keys", "index"} & set(report.seconds)
    assert "prototypes" in report.seconds


def test_every_array_that_a_system_opens_is_made_by_a_stage_or_is_content() -> None:
    made = {name for stage in stages.STAGES.values() for name in stage.makes}
    content = {"source_keys", "target_keys", "type_offsets", "link_offsets", "link_entries", *stages.ALWAYS}
    assert stages.kept(BuildSettings(keys="float16")) <= made | content


def test_a_registered_stage_runs_where_a_system_opens_its_array(
    model: Model, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []
    monkeypatch.setitem(stages.STAGES, "extra", stages.Stage("extra", lambda context: ran.append(context), ("text",)))
    monkeypatch.setitem(stages.STAGES, "idle", stages.Stage("idle", lambda context: ran.append(context), ("nobodys",)))
    report = build([corpus], model, tmp_path / "store", "de-en", SETTINGS.model_copy(update={"systems": ("knn",)}))
    assert len(ran) == 1
    assert "extra" in report.seconds
    assert "idle" not in report.seconds
