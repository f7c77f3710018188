"""Weights of memories: how much the entries of each store count in p_kNN, in every system."""

import shutil
from math import exp
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore, open_stores
from knnmt.errors import UsageError
from knnmt.model.checkpoint import Model
from knnmt.retrieval.session import Retriever, SentenceLookup
from knnmt.store.memories import AnyStore, Memories
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS
from knnmt.translate import TranslateSettings, Translator

from ..oracle import systems
from .examples import built
from .test_parts import SETTINGS, TEXTS, found

pytestmark = pytest.mark.usefixtures("short_runs")
WEIGHTS = {"company": 1.0, "project": 5.0, "copy": 0.25}


@pytest.fixture(scope="module")
def paths(short_runs: None, model: Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three stores; the last is a copy of the first, with the same projections."""
    made = {}
    folder = tmp_path_factory.mktemp("weights")
    for name, count in (("company", 40), ("project", 25)):
        (folder / name).mkdir()
        made[name] = built(model, folder / name, count=count).path.rename(folder / name / name)
    return made | {"copy": Path(shutil.copytree(made["company"], folder / "copy"))}


def weighed(paths: dict[str, Path], **weights: float) -> Memories:
    return Memories.open({paths[name]: weight for name, weight in weights.items()})


def look(store: AnyStore, model: Model, system: str, **changes: Any) -> tuple[SentenceLookup, torch.Tensor]:
    """What the first text may see, and states of other numbers to look up in it. (1, 4, d)."""
    settings = RetrievalSettings(**{"system": system, **SETTINGS, **changes})
    row = torch.tensor(model.tokenizer.encode_source(TEXTS[:1]))
    made = Retriever(store, model.device, settings).look(row, row >= 0, model.transformer.encode(row, row >= 0).states)
    states = 3 * torch.randn(1, 4, store.sizes["width"], generator=torch.Generator().manual_seed(0))
    return made, made.view.query(states)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("temperature", [40.0, 4.0])  # a low one leaves some beams with fewer tokens than others
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_weight_multiplies_the_share_of_a_memory_s_entries(
    model: Model, paths: dict[str, Path], system: str, temperature: float
) -> None:
    size, changed = 200, 0.0
    changes = {"temperature": temperature} | ({"probe": 3} if system == "faster" else {})
    changes |= {"k": 4096} if system == "proto" else {}  # which ranks by weight, too
    plain, memories = Memories.open(list(paths.values())), weighed(paths, **WEIGHTS)
    without, states = look(plain, model, system, **changes)
    seen = without.lookup.find(states)  # as other tests compare it with the oracle
    columns = seen.entries, seen.tokens, seen.distances, seen.log_counts.expand(seen.distances.shape).exp()
    with_weights, _ = look(memories, model, system, **changes)
    ours, near = with_weights.lookup.neighbours(states), with_weights.lookup.find(states)
    for beam in range(states.size(1)):
        rows = zip(*(column[0, beam].tolist() for column in columns), strict=True)
        listed = [(systems.Neighbour(*row[:3]), row[3]) for row in rows if row[0] >= 0]
        segments = memories.where(np.array([one.entry for one, _ in listed]))[0].tolist()
        stands_for = {one.entry: count for one, count in listed}
        names = [memories.memory_of(segment) for segment in segments]
        counts = {one.entry: count * WEIGHTS[name] for (one, count), name in zip(listed, names, strict=True)}
        settings, everything = systems.Settings(temperature=temperature), systems.Found([one for one, _ in listed], 0.0)
        truth = systems.distribution(everything, settings, size, counts.__getitem__)
        p = np.zeros(size)
        p[ours.tokens[0, beam].numpy()] = ours.log_p[0, beam].exp().numpy()
        np.testing.assert_allclose(p, truth, atol=1e-5)
        shares = near.scores(temperature)[0, beam].softmax(dim=-1)  # which evidence shows
        shown = np.bincount(near.tokens[0, beam].numpy(), shares.numpy(), minlength=size)
        np.testing.assert_allclose(shown, truth, atol=1e-5)
        unweighted = systems.distribution(everything, settings, size, stands_for.__getitem__)
        changed = max(changed, float(abs(truth - unweighted).max()))
    assert changed > 1e-3 or system == "faster-exact"  # whose entries of a step are of one memory


@pytest.mark.parametrize("system", SYSTEMS)
def test_equal_weights_change_no_bit(model: Model, paths: dict[str, Path], system: str) -> None:
    plain = found(Memories.open(list(paths.values())), model, system)
    for weight in (1.0, 3.0):
        assert found(weighed(paths, **dict.fromkeys(paths, weight)), model, system) == plain


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_memory_of_weight_0_is_as_if_it_were_not_given(model: Model, paths: dict[str, Path], system: str) -> None:
    alone = found(Datastore.open(paths["project"]), model, system)
    assert found(weighed(paths, company=0.0, project=1.0), model, system) == alone
    assert found(weighed(paths, project=2.0, company=0.0), model, system) == alone


def test_lessons_outrank_whatever_the_weight_but_0(model: Model, paths: dict[str, Path], tmp_path: Path) -> None:
    own = Path(shutil.copytree(paths["project"], tmp_path / "own"))
    settings = RetrievalSettings(system="fast", **SETTINGS)
    for weight, heard in ((1e-6, True), (0.0, False)):
        store = open_stores({paths["company"]: 1.0, own: weight})
        translator = Translator(model, store, retrieval=settings)
        translator.add([Segment(TEXTS[0], "a big cat", "", id="taught")])
        assert Datastore.open(own).recent()[0].target == "a big cat"
        for exact in (True, False):
            given = translator.translate(TEXTS[:1], TranslateSettings(exact=exact))[0].text
            assert (given == "a big cat") == heard
        assert store.find("taught") is not None
        assert len(store) == len(Datastore.open(own)) + len(Datastore.open(paths["company"]))
        assert translator.remove(["taught"]) == ["taught"]


def test_evidence_shows_the_weighted_shares(model: Model, paths: dict[str, Path]) -> None:
    """Raised to 100,000, a memory speaks alone wherever it has been found at all."""
    settings = RetrievalSettings(system="knn", **{**SETTINGS, "k": 4096, "temperature": 100.0})
    shares = {}
    for weight in (1.0, 100_000.0):
        translator = Translator(model, {paths["company"]: 1.0, paths["project"]: weight}, retrieval=settings)
        evidence = translator.translate(TEXTS[:1], TranslateSettings(evidence=True, exact=False))[0].evidence
        heaviest = [one for token in evidence for one in token.neighbours[:2]]
        shares[weight] = sum(one.memory == "project" for one in heaviest) / len(heaviest)
    assert shares[1.0] < shares[100_000.0] == 1.0


@pytest.mark.parametrize(
    ("weights", "message"),
    [((1.0, -1.0), "is -1.0"), ((1.0, float("nan")), "is nan"), ((float("inf"), 1.0), "is inf"), ((0, 0), "every")],
)
def test_weights_that_mean_nothing_are_refused(
    paths: dict[str, Path], weights: tuple[float, float], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        open_stores(dict(zip((paths["company"], paths["project"]), weights, strict=True)))


def test_the_oracle_counts_an_entry_as_often_as_it_is_told() -> None:
    """Twice the entry, or the weight 2: the same."""
    near = [systems.Neighbour(0, 0, 1.0), systems.Neighbour(1, 1, 2.0)]
    twice = systems.Found([*near, near[1]], 1.0)
    p = systems.distribution(systems.Found(near, 1.0), systems.Settings(), 2, lambda entry: 1.0 + entry)
    np.testing.assert_allclose(p, systems.distribution(twice, systems.Settings(), 2))
    np.testing.assert_allclose(p[1] / p[0], 2 * exp(-1.0))


def test_the_store_that_ranks_too_few_entries_is_named(model: Model, paths: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    few = built(model, tmp_path / "few", count=20, k_max=3).path
    for order in ([few, paths["project"]], [paths["project"], few]):
        with pytest.raises(UsageError, match=f"{few} ranks 3 entries per cluster"):
            Retriever(Memories.open(order), model.device, RetrievalSettings(system="faster"))


class NoWaiting(TorchDispatchMode):
    """Refuses what would wait for a GPU: values that Python reads, and shapes that depend on values."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        assert "_local_scalar_dense" not in name, name
        assert "nonzero" not in name, name
        assert "unique" not in name, name
        masks = [each for each in (args[1] if name == "aten.index.Tensor" else ()) if each is not None]
        assert all(each.dtype != torch.bool for each in masks), name
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_step_by_torch_waits_for_nothing(model: Model, paths: dict[str, Path], system: str) -> None:
    with patch("knnmt.search.find_spec", return_value=None):
        look_up, states = look(weighed(paths, **WEIGHTS), model, system)
    with NoWaiting():
        once = look_up.lookup.neighbours(states)
    assert torch.equal(look_up.lookup.neighbours(states).log_p, once.log_p)
    with pytest.raises(AssertionError, match=r"aten\.index"), NoWaiting():
        states[states > 0].sum()
