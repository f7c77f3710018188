"""A gate learns when to trust the store, is kept in a file that cannot be mistaken, and leaves lessons their weight."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from knnmt.datastore import Datastore
from knnmt.errors import DataError, UsageError
from knnmt.retrieval.gate import FEATURES, FILE, SHAPES, Gate, Purpose, features
from knnmt.retrieval.mix import MOST, learned
from knnmt.retrieval.session import Retriever
from knnmt.retrieval.tuned import Tuned, gate_file
from knnmt.search.mix import merge
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Neighbours
from knnmt.tune.gate import Lesson, train

from ..oracle import datastore
from .examples import CPU, ORACLE, UNSEEN, Case, random_gate
from .test_taught import lesson, teach

SEEDS = st.integers(0, 2**32 - 1)
FAST = Purpose("fast", "ffn_input", "squared")


def chosen(gate: Gate, system: str | None = None) -> Tuned:
    settings = RetrievalSettings(
        system=system or gate.purpose.system, k=3, c=2, temperature=1.5, weight=0.6, reach=4.0, adapt="learned"
    )
    return Tuned(settings, gate)


def ready(store: Datastore, tuned: Tuned) -> Retriever:
    return Retriever(store, CPU, tuned.settings, gate=tuned.gate)


# ------------------------------------------------------------------------------------------------------- learning


def drawn_lesson(count: int, seed: int) -> Lesson:
    """Neighbours that are right where they are near and the model agrees, and mostly wrong elsewhere."""
    rng = np.random.default_rng(seed)
    near, agreed = rng.random(count), rng.random(count)
    right = rng.random(count) < np.where((near < 0.5) & (agreed > 0.5), 0.95, 0.1)
    best = rng.uniform(0.5, 1.0, count)
    seen = np.stack([np.sqrt(near), np.log(best), np.log(agreed)], axis=1)
    numbers = (np.where(right, best, (1 - best) / 4), np.full(count, 0.3), np.ones(count, bool), np.zeros(count))
    columns = [torch.from_numpy(each) for each in (seen.astype(np.float32), *numbers, np.arange(count) // 20)]
    return Lesson(*(column.float() if column.dtype == torch.float64 else column for column in columns))


def test_a_gate_tells_good_neighbours_from_bad_ones_that_it_never_saw() -> None:
    gate, new = train(drawn_lesson(3000, seed=1), FAST), drawn_lesson(2000, seed=2)
    assert gate is not None
    constant = max(float(new.log_p(torch.full((2000,), share)).mean()) for share in np.linspace(0, 0.99, 100))
    assert float(new.log_p(gate(new.seen)).mean()) > constant + 0.1  # though that was chosen knowing the answers
    good, bad = (gate(torch.tensor([0.3, -0.2, agreed])) for agreed in (-0.1, -3.0))
    assert good > 0.8
    assert bad < 0.2


def test_training_is_repeatable_and_stops_where_there_is_nothing_to_learn() -> None:
    some = drawn_lesson(500, seed=3)
    assert train(some, FAST) == train(some, FAST) != train(drawn_lesson(500, seed=4), FAST)
    silent = Lesson(some.seen, some.p_knn, some.p_mt, torch.zeros_like(some.asked), some.fixed, some.segments)
    assert train(silent, FAST) is None
    assert train(some.of(some.segments == 0), FAST) is None  # none can be held out
    # p_kNN that says what p_MT says: every λ is as good, and no number goes astray
    same = Lesson(some.seen * 0, some.p_mt, some.p_mt, some.asked, some.fixed, some.segments)
    gate = train(same, FAST)
    assert gate is not None
    assert all(bool(value.isfinite().all()) for value in gate.parameters.values())


def test_what_the_gate_is_not_asked_about_does_not_teach_it() -> None:
    some = drawn_lesson(600, seed=5)
    more = Lesson(*(torch.cat((one, one)) for one in vars(some).values()))
    unasked = torch.arange(1200) >= 600
    wrong = torch.where(unasked, 1e-4, more.p_knn)
    fixed = torch.where(unasked, 0.9, 0.0)
    told = Lesson(more.seen, wrong, more.p_mt, more.asked & ~unasked, fixed, more.segments)
    assert train(told, FAST) == train(some, FAST)
    expected = torch.log(0.9 * told.p_knn[600:] + 0.1 * told.p_mt[600:])
    torch.testing.assert_close(told.log_p(torch.full((1200,), 0.5))[600:], expected)


def test_leaning_adds_to_the_log_odds() -> None:
    seen = torch.randn(7, len(FEATURES), generator=torch.Generator().manual_seed(0))
    gate = random_gate(FAST)
    torch.testing.assert_close(gate.leaning(0.5)(seen).logit(), gate(seen).logit() + 0.5, rtol=1e-4, atol=1e-4)


# -------------------------------------------------------------------------------------------------- what it sees


@given(SEEDS, st.integers(1, 9))
@settings(deadline=None, max_examples=50)
def test_features_are_those_of_the_distributions(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    tokens, scores = torch.from_numpy(rng.integers(0, 6, (2, 3, k))), torch.from_numpy(rng.normal(size=(2, 3, k)))
    scores[torch.from_numpy(rng.random((2, 3, k)) < 0.3)] = -torch.inf
    logits = torch.from_numpy(rng.normal(size=(2, 3, 11)))
    nearest = torch.where((scores > -torch.inf).any(-1), 3.0, torch.inf)
    found = Neighbours(*merge(tokens, scores), nearest)
    seen = features(found, logits + 5.0, logits.logsumexp(-1) + 5.0, scale=12.0)
    assert seen.dtype == torch.float32
    assert seen.isfinite().all()
    p_mt = logits.softmax(-1)
    for row, beam in np.ndindex(2, 3):
        p = np.zeros(11)
        shares = scores[row, beam].softmax(-1).nan_to_num()
        np.add.at(p, tokens[row, beam].numpy(), shares.numpy())
        if p.sum() > 0:
            wanted = [0.5, np.log(p.max()), p_mt[row, beam, p.argmax()].log().item()]
            assert seen[row, beam].tolist() == pytest.approx(wanted, abs=1e-5)
    # what fills a row up, and a token that is there twice, make no difference
    fill = torch.full((2, 3, 1), 9), torch.full((2, 3, 1), -torch.inf)
    twice = found.tokens[..., :1], found.log_p[..., :1]
    tokens, log_p = (torch.cat(each, -1) for each in zip(found[:2], fill, twice, strict=True))
    more = Neighbours(tokens, log_p, nearest)
    assert torch.equal(features(more, logits + 5.0, logits.logsumexp(-1) + 5.0, scale=12.0), seen)


def test_nothing_found_is_no_weight_and_a_sure_gate_leaves_a_trace_of_the_model() -> None:
    sure = random_gate(FAST).leaning(100.0)
    tokens, log_p = torch.tensor([[[1, 2], [1, 2]]]), torch.tensor([[[-0.1, -3.0], [-torch.inf, -torch.inf]]])
    found = Neighbours(tokens, log_p, torch.tensor([[1.0, torch.inf]]))
    weight = learned(found, torch.zeros(1, 2, 4), torch.zeros(1, 2), sure, 1.0)
    assert weight[0].tolist() == [pytest.approx(MOST, abs=1e-7), 0.0]


# --------------------------------------------------------------------------------------------------- in a system


@pytest.mark.parametrize("system", ORACLE)
@given(seed=SEEDS, batch=st.integers(2, 4))
@settings(max_examples=20, deadline=None)
def test_a_sentence_is_mixed_as_if_it_were_alone(system: str, seed: int, batch: int) -> None:
    case = Case.drawn(seed, batch=batch)
    with tempfile.TemporaryDirectory() as folder:
        store = case.write(Path(folder) / "store")
        gate = random_gate(Purpose(system, store.manifest.key, "squared"))
        retriever = ready(store, chosen(gate))
        together = case.mixed(retriever)
        np.testing.assert_allclose(together.sum(-1), 1.0, atol=1e-4)
        for row in range(batch):
            np.testing.assert_allclose(case.alone(row).mixed(retriever)[0], together[row], atol=1e-6)


def test_a_sentence_that_finds_nothing_is_base_mt_to_the_bit(tmp_path: Path) -> None:
    case = Case.drawn(3, batch=1).saying([[UNSEEN]], [[[0.0, 0.0]]])
    retriever = ready(case.write(tmp_path / "store"), chosen(random_gate(FAST).leaning(9.0)))
    logits = torch.from_numpy(np.log(case.p_mt)).float()
    np.testing.assert_array_equal(case.mixed(retriever), (logits + 3.0 - 3.0).exp().numpy())


def test_a_gate_has_no_say_in_what_lessons_weigh(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    case, segments = Case.drawn(7), datastore.random_segments(rng, count=3, width=2)
    store = case.write(tmp_path / "store")
    teach(store, *(lesson(segment, str(number), "squared") for number, segment in enumerate(segments)))
    query = torch.from_numpy(case.states)
    heard = []
    for lean in (-100.0, 100.0):
        gate = random_gate(Purpose("knn", store.manifest.key, "squared")).leaning(lean)
        look = case.look(ready(store, chosen(gate)))
        heard.append(look.heard(query, look.lookup.neighbours(query).nearest))
    assert heard[0] is not None
    assert (heard[0].weight > 0).any()
    assert torch.equal(heard[0].weight, heard[1].weight)


# --------------------------------------------------------------------------------------------------------- files


def test_a_gate_comes_back_from_its_file_with_its_settings(tmp_path: Path) -> None:
    path, gate = tmp_path / "fast.json", random_gate(FAST)
    chosen(gate).save(path, bleu=12.5)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["fast.gate.safetensors", "fast.json"]
    found = Tuned.load(path)
    assert found == chosen(gate)
    assert found != chosen(random_gate(FAST, seed=1))
    assert hash(found) == hash(chosen(gate))
    assert found.gate is not None
    seen = torch.randn(4, len(FEATURES))
    assert torch.equal(found.gate(seen), gate(seen))
    Tuned(found.settings.without_gate(), found.gate).save(path)  # a gate does not outlive its settings
    assert [each.name for each in tmp_path.iterdir()] == ["fast.json"]


def _damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def _rewritten(path: Path, metadata: dict[str, str] | None = None, **changes: torch.Tensor | None) -> None:
    """The gate of a file with other tensors (None: without) or metadata."""
    of = {"format": FILE.format, "features": " ".join(FEATURES), **FAST._asdict()} if metadata is None else metadata
    arrays = load_file(path) | changes
    save_file({name: value for name, value in arrays.items() if value is not None}, path, of)


@pytest.mark.parametrize(
    "change",
    [
        _damaged,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"{}" * 50),
        lambda path: _rewritten(path, {}),
        lambda path: _rewritten(path, {"format": FILE.format, "features": "distance", **FAST._asdict()}),
        lambda path: _rewritten(path, {"format": FILE.format, "features": " ".join(FEATURES), "system": "fast"}),
        lambda path: _rewritten(path, inner=None),
        lambda path: _rewritten(path, more=torch.zeros(1)),
        lambda path: _rewritten(path, inner=torch.zeros(3, 3)),
        lambda path: _rewritten(path, outer=torch.zeros(SHAPES["outer"], dtype=torch.float64)),
        lambda path: _rewritten(path, outer=torch.full(SHAPES["outer"], torch.nan)),
        lambda path: _rewritten(path, spread=torch.zeros(SHAPES["spread"])),
        lambda path: random_gate(FAST, seed=5).save(path),  # sound, but of other settings
    ],
)
def test_what_is_not_the_gate_of_these_settings_is_refused(tmp_path: Path, change: Any) -> None:
    chosen(random_gate(FAST)).save(tmp_path / "fast.json")
    change(gate_file(tmp_path / "fast.json"))
    with pytest.raises(DataError, match=r"fast\.gate\.safetensors: .*(tune again|`knnmt tune`)"):
        Tuned.load(tmp_path / "fast.json")


def test_without_a_gate_nothing_is_learned(tmp_path: Path) -> None:
    chosen(random_gate(FAST)).save(tmp_path / "fast.json")
    gate_file(tmp_path / "fast.json").unlink()
    with pytest.raises(UsageError, match=r"fast\.gate\.safetensors: no such gate file.*`knnmt tune`"):
        Tuned.load(tmp_path / "fast.json")
    store = Case.drawn(1).write(tmp_path / "store")
    with pytest.raises(UsageError, match="there is no gate"):
        Retriever(store, CPU, RetrievalSettings(system="fast", adapt="learned"))


@pytest.mark.parametrize(
    "purpose", [FAST._replace(system="knn"), FAST._replace(key="x"), FAST._replace(metric="cosine")]
)
def test_a_gate_for_something_else_is_refused(tmp_path: Path, purpose: Purpose) -> None:
    store = Case.drawn(1).write(tmp_path / "store")
    right = FAST._replace(key=store.manifest.key)
    ready(store, chosen(random_gate(right)))
    with pytest.raises(DataError, match=r"the gate was trained for .*, not for fast"):
        ready(store, chosen(random_gate(purpose), system="fast"))


def test_who_names_a_weight_or_another_system_gets_it_without_the_gate() -> None:
    given = chosen(random_gate(FAST))
    by_distance = given.settings.model_copy(update={"adapt": "distance"})
    assert given.of("fast") == given
    assert given.of("knn").settings == by_distance.model_copy(update={"system": "knn"})
    assert given.settings.weighing(0.25) == by_distance.model_copy(update={"weight": 0.25})
    constant = RetrievalSettings(weight=0.5, adapt="constant")
    assert constant.weighing(0.25) == RetrievalSettings(weight=0.25, adapt="constant")


def test_a_file_of_settings_cannot_hold_a_gate_itself(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"retrieval": {"gate": {"inner": [[1.0]]}}}', encoding="utf-8")
    with pytest.raises(DataError, match="write it with `knnmt tune`"):
        Tuned.load(path)
