"""The arrays of `similar` in a built store against their definitions, and how wide its keys are."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from knnmt.align.settings import AlignSettings
from knnmt.build import similar
from knnmt.build.context import Context
from knnmt.build.settings import BuildSettings
from knnmt.build.similar import LEAST, Statistics, principal, shares, spread
from knnmt.datastore import Datastore
from knnmt.errors import UsageError
from knnmt.model.checkpoint import Model, load
from knnmt.systems.table import SYSTEMS

from ..oracle.similar import segments_of
from .examples import parallel_text


@pytest.fixture(scope="module")
def model(model_folder: Callable[[str], Path]) -> Model:
    return load(model_folder("marian"))


def built(model: Model, folder: Path, **changes: object) -> Datastore:
    corpus = parallel_text(folder / "corpus.tsv", 120)
    plain = {"systems": ("similar",), "clean": None, "align": AlignSettings(iterations=2)}
    settings = BuildSettings.model_validate(plain | changes)
    return Datastore.build(corpus, model=model, out=folder / "store", langs="de-en", settings=settings)


def test_tokens_know_their_segments_and_their_shares(model: Model, tmp_path: Path) -> None:
    part = built(model, tmp_path).parts[0]
    names = ("type_offsets", "link_offsets", "link_entries", "target_offsets")
    truth = segments_of({name: part[name] for name in names})
    for name, values in truth.items():
        if name == "token_shares":  # halves may be rounded either way
            np.testing.assert_allclose(part[name], values, atol=1)
        else:
            np.testing.assert_array_equal(part[name], values)


@pytest.mark.parametrize("side", ["source", "target"])
def test_narrow_keys_stand_for_the_keys(model: Model, tmp_path: Path, side: str) -> None:
    part = built(model, tmp_path, systems=("similar", "fast")).parts[0]
    projected = (
        part[f"{side}_keys"].astype(np.float64) @ part[f"small_{side}_projection"] - part[f"small_{side}_middle"]
    )
    if side == "source":
        assert np.abs(part["small_source"] - projected).max() <= 0.51  # rounded, and all inside a byte
        return
    low, high = part["small_target"] % 16, part["small_target"] >> 4 & 15
    numbers = ((np.stack((low, high), axis=2) ^ 8) - 8).reshape(projected.shape)
    assert np.abs(numbers - projected.clip(-8, 7)).max() <= 0.51
    assert np.abs(projected.mean(axis=0) + 0.5).max() < 0.1  # the middle of -8 and 7
    assert (np.abs(numbers + 0.5) < 7.5).mean() > 0.9  # few are cut off


@pytest.mark.parametrize("turned", [False, True])
def test_a_projection_keeps_what_varies_most_and_the_size_of_distances(turned: bool) -> None:
    rng = np.random.default_rng(0)
    states = rng.normal(size=(3000, 12)) * np.r_[[5.0, 4.0, 3.0], np.full(9, 0.2)]
    states = (states @ np.linalg.qr(rng.normal(size=(12, 12)))[0]).astype(np.float16)
    narrow = states.astype(np.float64) @ principal(states, 3, turned=turned)
    far = np.square(states[:1500].astype(np.float64) - states[1500:]).sum(axis=1)
    near = np.square(narrow[:1500] - narrow[1500:]).sum(axis=1)
    assert np.corrcoef(far, near)[0, 1] > 0.99
    assert np.median(near) == pytest.approx(np.median(far), rel=0.05)


def test_narrow_keys_are_the_same_with_any_number_of_threads() -> None:
    """Threads of NumPy's own are set by the environment, as Ray sets them for its workers."""
    program = """
import hashlib, numpy as np
from knnmt.build.similar import in_bytes, in_halves, principal
states = np.random.default_rng(0).normal(size=(20_000, 256)).astype(np.float16)
found = in_bytes(states, principal(states, 32, 1), {workers}, 1 << 29)
found += in_halves(states, principal(states, 64, 1, turned=True))
print(*(hashlib.sha256(each.tobytes()).hexdigest() for each in found))
"""
    found = set()
    for threads in ("1", "2"):
        environment = os.environ | {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        command = [sys.executable, "-c", program.format(workers=threads)]
        found.add(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)
    assert len(found) == 1


def test_nothing_is_projected_where_there_is_nothing_to_leave_out() -> None:
    np.testing.assert_array_equal(principal(np.ones((4, 5), np.float16), 8), np.eye(5, dtype=np.float32))


def test_a_rare_word_tells_more_than_a_frequent_one_and_a_short_segment_more_than_a_long_one() -> None:
    # type 0 is in all of 40 segments, type 1 in the first, which is short, and the second, which is long
    segments = np.r_[np.arange(40), 0, 1, np.full(30, 1)]
    offsets = np.array([0, 40, 42, 72])
    statistics = Statistics(40, segments.size, spread(offsets, segments, 40))
    assert statistics.spread.tolist() == [40, 2, 1]
    found = shares(offsets, segments, 40, statistics)
    assert found[40] > found[41] > found[2] >= 0


def test_a_budget_decides_how_wide_target_keys_are(model: Model, tmp_path: Path) -> None:
    def opened(store: Datastore) -> int:
        return sum(store.parts[0].files[f"{name}.npy"].size for name in SYSTEMS["similar"].arrays)

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    wide = built(model, tmp_path / "a")
    assert wide.parts[0].sizes["target_small"] == min(wide.parts[0].sizes["width"] // 2, LEAST)
    assert wide.parts[0].sizes["target_numbers"] == 2 * wide.parts[0].sizes["target_small"]
    budget = opened(wide) + 4 * 10**5
    narrow = built(model, tmp_path / "b", budget=budget)
    assert opened(narrow) <= budget
    (tmp_path / "c").mkdir()
    with pytest.raises(UsageError, match="give at least"):
        built(model, tmp_path / "c", budget=1000)


@pytest.mark.parametrize(("width", "most"), [(256, 0.30), (512, 0.20), (1024, 0.20)])
def test_all_that_is_opened_is_a_small_share_of_16_bit_keys(width: int, most: float) -> None:
    """A corpus of 40,000 segments of 25 tokens a side, each with one link, in the arrays that the system opens."""
    entries = 10**6
    settings = SimpleNamespace(budget=None, part_tokens=8 << 20)
    totals = np.array([entries // 25, entries, entries, entries])
    context = cast(
        "Context", SimpleNamespace(width=width, vocabulary=32_000, settings=settings, common=lambda _: totals)
    )
    sizes = {"segments": entries // 25, "entries": entries, "tokens": entries, "links": entries, "width": width}
    sizes |= {f"{side}_small": similar._size(context, side) for side in ("source", "target")}
    sizes["target_numbers"] = similar.numbers_of(sizes["target_small"], width)
    sizes |= {f"{side}_vocabulary": 32_000 for side in ("source", "target")}
    opened = sum(similar._bytes(name, sizes) for name in SYSTEMS["similar"].arrays)
    assert sizes["target_small"] >= 64
    assert opened <= most * 2 * width * entries
