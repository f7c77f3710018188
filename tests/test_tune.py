"""Tuning: likelihoods are those of the mixed model, BLEU decides, and what is left out stays unused."""

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from knnmt.corpus import Languages, Segment, read
from knnmt.datastore import Datastore
from knnmt.errors import DataError, UsageError
from knnmt.evaluate import Score, bleu
from knnmt.model.checkpoint import Model
from knnmt.model.represent import padded
from knnmt.retrieval.gate import Purpose
from knnmt.retrieval.session import Retriever
from knnmt.retrieval.tuned import Tuned, tuned_for
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS
from knnmt.translate import TranslateSettings, Translator
from knnmt.tune import grid, search
from knnmt.tune.search import LEANS, Trial
from knnmt.tune.tune import tune, tune_store

from .build.examples import parallel_text
from .retrieval.examples import built, random_gate

GREEDY = TranslateSettings(beam=1, max_length=20, exact=False)


@pytest.fixture(scope="module")
def store(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return built(model, tmp_path_factory.mktemp("tune"))


@pytest.fixture(scope="module")
def dev(tmp_path_factory: pytest.TempPathFactory) -> list[Segment]:
    corpus = parallel_text(tmp_path_factory.mktemp("dev") / "dev.tsv", 8, seed=1)
    return list(read(corpus, Languages("de", "en")))


@pytest.fixture(autouse=True)
def coarser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grids that are fast to go through."""
    monkeypatch.setattr(grid, "TEMPERATURES", (1 / 80, 1 / 10))
    monkeypatch.setattr(grid, "CONSTANT_WEIGHTS", (0.3, 0.7))
    monkeypatch.setattr(grid, "MAX_WEIGHTS", (0.5, 0.99))
    monkeypatch.setattr(grid, "REACHES", (1 / 2, 2.0))
    monkeypatch.setitem(SYSTEMS, "fast", replace(SYSTEMS["fast"], c_grid=(4, 16)))
    monkeypatch.setitem(SYSTEMS, "proto", replace(SYSTEMS["proto"], c_grid=()))


@torch.inference_mode()
def mean_log_p(
    model: Model,
    store: Datastore,
    dev: list[Segment],
    tuned: RetrievalSettings | Tuned,
    left_out: Collection[int] = (),
) -> float:
    """What mixing gives to the tokens of the references, a segment at a time."""
    tuned = tuned if isinstance(tuned, Tuned) else Tuned(tuned)
    retriever = Retriever(store, model.device, tuned.settings, gate=tuned.gate, left_out=left_out)
    special, found = model.special, []
    for segment in dev:
        ids, mask = padded(model.tokenizer.encode_source([segment.source]), special.pad, model.device)
        (target,) = model.tokenizer.encode_target([segment.target])
        target = [*special.prefix, *target, special.end]
        encoded = model.transformer.encode(ids, mask)
        states = model.transformer.force(torch.tensor([[special.start, *target[:-1]]]), encoded)
        logits = model.transformer.logits(states.output)
        normaliser = retriever.look(ids, mask, encoded.states).mix(states, logits, logits.logsumexp(-1))
        log_p = (logits - normaliser[:, :, None])[0].gather(1, torch.tensor(target)[:, None])[:, 0]
        found += log_p[len(special.prefix) :].tolist()
    return float(np.mean(found))


def bleu_of(model: Model, dev: list[Segment], translator: Translator) -> float:
    texts = [found.text for found in translator.translate([s.source for s in dev], GREEDY)]
    return bleu(texts, [s.target for s in dev]).value


@pytest.mark.parametrize("system", SYSTEMS)
def test_trials_come_by_bleu_and_their_numbers_are_those_of_the_system(
    model: Model, store: Datastore, dev: list[Segment], system: str
) -> None:
    told: list[tuple[str, int, int | None]] = []
    trials = tune(model, store, dev, system, decoded=6, translate=GREEDY, progress=lambda *report: told.append(report))
    assert [trial.bleu for trial in trials] == sorted((trial.bleu for trial in trials), reverse=True)
    settings = [trial.settings for trial in trials]
    assert len({trial.tuned for trial in trials}) == len(settings) >= 5
    assert {s.system for s in settings} == {system}
    assert {s.adapt for s in settings} == {"constant", "distance", "learned"}
    for trial in trials:
        wanted = mean_log_p(model, store, dev, trial.tuned)
        # which k prototypes are the best, and so the nearest of them, depends on T: there it is an estimate
        assert trial.likelihood == pytest.approx(wanted, abs=0.1 if system == "proto" else 2e-3)
        assert trial.bleu == pytest.approx(bleu_of(model, dev, Translator(model, store, retrieval=trial.tuned)))
    base = [trial for trial in trials if trial.settings.silent]
    assert [trial.bleu for trial in base] == [pytest.approx(bleu_of(model, dev, Translator(model)))]
    assert sum(done for stage, done, _ in told if stage == "translate") == len(trials)
    assert sum(done for stage, done, _ in told if stage == "look up") == len(dev) * (2 if system == "fast" else 1)


@pytest.mark.parametrize("adapt", ["constant", "distance"])
def test_only_the_kind_of_weight_that_is_asked_for_is_tried(
    model: Model, store: Datastore, dev: list[Segment], adapt: Any
) -> None:
    trials = tune(model, store, dev, "fast", adapt=(adapt,), decoded=2, translate=GREEDY)
    assert {trial.settings.adapt for trial in trials if not trial.settings.silent} == {adapt}


@pytest.mark.parametrize("adapt", [("learned",), ("constant", "learned")])
def test_what_is_learned_is_for_the_best_settings_by_distance_and_tried_last(
    model: Model, store: Datastore, dev: list[Segment], adapt: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = iter(range(10, 30))  # the later the better
    monkeypatch.setattr(search, "bleu", lambda texts, references: Score("BLEU", next(scores), ""))
    trials = tune(model, store, dev, "fast", adapt=adapt, decoded=2, translate=GREEDY)
    second, first, *ruled = trials
    assert [trial.settings.adapt for trial in (first, second)] == ["learned", "learned"]
    assert not [trial for trial in ruled if trial.settings.adapt == "learned"]
    distant = [trial for trial in ruled if trial.settings.adapt == "distance"]
    if distant:
        assert first.settings.without_gate() == max(distant, key=lambda trial: trial.bleu).settings
    one, other = first.gate, second.gate
    assert one is not None
    assert one.leaning(LEANS[1]) == other


def test_by_distance_is_kept_where_what_is_learned_is_no_better(
    model: Model, store: Datastore, dev: list[Segment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "bleu", lambda texts, references: Score("BLEU", 20.0, ""))
    trials = tune(model, store, dev, "fast", adapt=("learned",), decoded=2, translate=GREEDY)
    assert trials[-1].settings.adapt == "learned"
    assert trials[0].settings.adapt != "learned"


def test_where_base_is_better_less_is_tried(
    model: Model, store: Datastore, dev: list[Segment], monkeypatch: pytest.MonkeyPatch
) -> None:
    # base MT, the untuned settings, two by likelihood, two that leave more to the model
    scores = iter([50.0, 10.0, 20.0, 30.0, 40.0, 60.0])
    monkeypatch.setattr(search, "bleu", lambda texts, references: Score("BLEU", next(scores), ""))
    trials = {
        trial.bleu: trial.settings
        for trial in tune(model, store, dev, "fast", adapt=("distance",), decoded=2, translate=GREEDY)
    }
    assert list(trials) == [60.0, 50.0, 40.0, 30.0, 20.0, 10.0]
    assert trials[50.0].silent
    reaches = [trials[score].reach or 0.0 for score in (30.0, 40.0, 60.0)]
    assert [reaches[0] / reach for reach in reaches[1:]] == [2.0, 4.0]
    assert trials[60.0] == trials[30.0].model_copy(update={"reach": trials[60.0].reach})


def test_the_search_goes_on_from_what_is_better(
    model: Model, store: Datastore, dev: list[Segment], monkeypatch: pytest.MonkeyPatch
) -> None:
    # base MT, the untuned settings, two by likelihood, then two, each around the best at the time
    scores = iter([10.0, 20.0, 30.0, 25.0, 60.0, 40.0])
    monkeypatch.setattr(search, "bleu", lambda texts, references: Score("BLEU", next(scores), ""))
    trials = tune(model, store, dev, "similar", adapt=("distance",), decoded=2, translate=GREEDY)
    found = {trial.bleu: trial.settings for trial in trials}
    before = [found[score] for score in (10.0, 20.0, 30.0, 25.0)]
    better = next(near for near in grid.around(found[30.0], None) if near not in before)
    assert found[60.0] == better
    assert found[40.0] == next(near for near in grid.around(better, None) if near not in [*before, better])


def test_with_beams_other_lengths_are_tried(
    model: Model, store: Datastore, dev: list[Segment], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Longer translations first, and on from what is better; not where the penalty is given."""
    # base MT, the untuned settings, one by likelihood, one around the best; then three of other lengths
    scores = iter([10.0, 20.0, 30.0, 25.0, 60.0, 40.0, 50.0])
    monkeypatch.setattr(search, "bleu", lambda texts, references: Score("BLEU", next(scores), ""))
    beams = GREEDY.model_copy(update={"beam": 2})
    trials = tune(model, store, dev, "similar", adapt=("distance",), decoded=1, translate=beams)
    found = {trial.bleu: trial.settings for trial in trials}
    own = SYSTEMS["similar"].defaults.longer * model.length_penalty
    assert [found[score].length_penalty for score in (20.0, 30.0, 25.0)] == [own, own, own]
    assert [found[score].length_penalty for score in (60.0, 40.0)] == pytest.approx([1.2 * own, 1.44 * own], abs=1e-3)
    assert found[60.0] == found[30.0].model_copy(update={"length_penalty": found[60.0].length_penalty})
    assert len(found) == 6  # nothing lies between the best and what is around it

    scores = iter([10.0, 20.0, 30.0, 25.0])
    given = RetrievalSettings(length_penalty=0.7)
    trials = tune(model, store, dev, "similar", adapt=("distance",), decoded=1, translate=beams, given=given)
    assert {trial.settings.length_penalty for trial in trials} == {0.7}


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_left_out_is_not_used(model: Model, store: Datastore, dev: list[Segment], system: str) -> None:
    own = [*dev, *list(store.segments())[:6]]  # segments that the store has, word for word
    left_out = range(48)  # most of what it has: whichever clusters are the nearest, some of it was in there
    trials = tune(model, store, own, system, decoded=2, translate=GREEDY, left_out=left_out)
    for trial in trials:
        assert trial.likelihood == pytest.approx(
            mean_log_p(model, store, own, trial.tuned, left_out), abs=0.1 if system == "proto" else 2e-3
        )
    chosen = next(trial.settings for trial in trials if not trial.settings.silent)
    sure = Tuned(chosen.model_copy(update={"adapt": "constant", "weight": 0.9}))  # also where the best λ is small
    assert abs(mean_log_p(model, store, own, sure) - mean_log_p(model, store, own, sure, left_out)) > 1e-2
    everything = range(store.sizes["segments"])
    trials = tune(model, store, dev, system, decoded=2, translate=GREEDY, left_out=everything)
    assert len({trial.bleu for trial in trials}) == 1  # base MT, whatever the settings


def test_a_store_that_ranks_few_is_tuned_within_what_it_ranks(model: Model, dev: list[Segment], tmp_path: Path) -> None:
    for k_max in (2, 4, 7):
        folder = tmp_path / str(k_max)
        folder.mkdir()
        trials = tune(model, built(model, folder, k_max=k_max), dev, "faster", decoded=6, translate=GREEDY)
        assert all(trial.settings.k is not None and trial.settings.k <= k_max for trial in trials)


@pytest.mark.parametrize("segments", [[], [Segment(" ", "x", "", None), Segment("x", "", "", None)]])
def test_nothing_to_tune_on_is_refused(model: Model, store: Datastore, segments: list[Segment]) -> None:
    with pytest.raises(UsageError, match="the dev set has no segments"):
        tune(model, store, segments, "fast")


def test_segments_too_long_are_left_out_of_the_likelihood_and_refused_if_all_are(
    model: Model, store: Datastore, dev: list[Segment]
) -> None:
    long = Segment("der Hund läuft . " * 60, "the dog runs . " * 60, "", None)
    with pytest.raises(UsageError, match="too long for the model"):
        tune(model, store, [long], "fast", translate=GREEDY)
    trials = tune(model, store, [*dev, long], "knn", decoded=1, translate=GREEDY)
    assert trials[0].likelihood == pytest.approx(mean_log_p(model, store, dev, trials[0].settings), abs=2e-3)


def test_an_unknown_system_is_refused(model: Model, store: Datastore, dev: list[Segment]) -> None:
    with pytest.raises(UsageError, match="no system 'fastest'"):
        tune(model, store, dev, "fastest")


# ------------------------------------------------------------------------------------------------ a file of settings


CHOSEN = RetrievalSettings(system="faster", k=None, temperature=2.5, weight=0.25, adapt="constant", probe=3)


def test_settings_come_back_from_their_file(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    Tuned(CHOSEN).save(path, dev="dev.tsv", bleu=12.5)
    assert Tuned.load(path) == Tuned(CHOSEN)
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["retrieval"]["lambda"] == 0.25
    assert "weight" not in content["retrieval"]
    assert content["bleu"] == 12.5


@pytest.mark.parametrize("name", ["lambda", "weight"])
def test_the_weight_has_two_names(tmp_path: Path, name: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"retrieval": {"system": "knn", name: 0.4}}), encoding="utf-8")
    assert Tuned.load(path).settings == RetrievalSettings(system="knn", weight=0.4)


@pytest.mark.parametrize(
    "content",
    ['{"retrieval": {"lamda": 0.5}}', '{"retrieval": {"lambda": 1.5}}', '{"retrieval": {"k": 0}}', '{"lambda": 0.5}',
     '{"retrieval": []}', "[1]", "null", "", "{", '{"retrieval": {"temperature": NaN}}', '{"retrieval": {"reach": 0}}'],
)  # fmt: skip
def test_what_is_no_file_of_settings_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=r"settings\.json: .*write it with `knnmt tune`"):
        Tuned.load(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.json: no such settings file"):
        Tuned.load(tmp_path / "none.json")


def test_settings_do_not_change_and_refuse_unknown_names() -> None:
    with pytest.raises(UsageError, match="lamda is no setting: there are system, k"):
        RetrievalSettings(lamda=0.5)  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        CHOSEN.k = 3
    assert isinstance(Trial(CHOSEN, None, -1.0, 20.0, {}).settings, RetrievalSettings)


def test_a_store_is_tuned_once_and_used_so_from_then_on(model: Model, dev: list[Segment], tmp_path: Path) -> None:
    store = built(model, tmp_path)
    best = tune_store(model, store, dev, decoded=1).best
    assert Translator(model, store.path).retriever.given == best.settings  # type: ignore[union-attr]
    assert json.loads((store.path / "settings.json").read_text())["segments"] == {"dev": len(dev)}
    # what was found for one system is not used for another, nor where settings are given
    assert Translator(model, store, system="knn").retriever.given.weight is None  # type: ignore[union-attr]
    given = RetrievalSettings(system="fast", k=3)
    assert Translator(model, store, retrieval=given).retriever.given == given  # type: ignore[union-attr]


def test_a_store_keeps_the_gate_that_was_best_for_it(
    model: Model, dev: list[Segment], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, scores = built(model, tmp_path), iter(range(10, 30))
    monkeypatch.setattr(search, "bleu", lambda texts, references: Score("BLEU", next(scores), ""))
    best = tune_store(model, store, dev, decoded=1).best  # the later the better
    assert best.settings.adapt == "learned"
    translator = Translator(model, store.path)
    assert translator.retriever is not None
    assert translator.retriever.given == best.settings
    assert translator.retriever.gate == best.gate is not None
    texts = [segment.source for segment in dev]
    assert translator.using("similar").translate(texts, GREEDY) == translator.translate(texts, GREEDY)
    # a weight that is named, as by the page of the server, counts as it does by distance
    by_distance = Translator(model, store, retrieval=best.settings.without_gate()).using(weight=0.3)
    assert translator.using(weight=0.3).translate(texts, GREEDY) == by_distance.translate(texts, GREEDY)
    assert translator.using(weight=0.0).translate(texts, GREEDY) == Translator(model).translate(texts, GREEDY)
    (store.path / "settings.gate.safetensors").unlink()
    with pytest.raises(UsageError, match="no such gate file"):
        Translator(model, store)


def test_settings_of_a_store_go_when_it_is_replaced(model: Model, dev: list[Segment], tmp_path: Path) -> None:
    store = built(model, tmp_path)
    tune_store(model, store, dev, decoded=1)
    gate = random_gate(Purpose("fast", "ffn_input", "squared"))
    Tuned(RetrievalSettings(system="fast", adapt="learned"), gate).save(store.path / "settings.json")
    corpus = parallel_text(tmp_path / "other.tsv", 30, seed=9)
    replaced = Datastore.build(corpus, out=store.path, langs="de-en", model=model, replace=True)
    assert tuned_for(replaced) is None
    assert not list(store.path.glob("settings*"))


def test_another_system_has_its_own_defaults(model: Model, store: Datastore) -> None:
    similar = Translator(model, store, system="similar").retriever
    knn = Translator(model, store, system="knn").retriever
    switched = Translator(model, retriever=similar).using("knn").retriever
    assert switched is not None
    assert knn is not None
    assert switched.settings == knn.settings


# ------------------------------------------------------------------------------------------------- ends of the grids


def test_what_is_likeliest_at_the_end_of_a_grid_is_looked_for_beyond_it(
    model: Model, store: Datastore, dev: list[Segment], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "TEMPERATURES", (1 / 2560, 1 / 1280))  # far from any good one
    monkeypatch.setattr(grid, "TEMPERATURE_LIMITS", (1 / 2560, 1.6))
    narrow = tune(model, store, dev, "knn", adapt=("constant",), decoded=2, translate=GREEDY)
    scale = Retriever(store, model.device, RetrievalSettings(system="knn")).live.view.scale
    tried = [(trial.settings.temperature or 0.0) / scale for trial in narrow if not trial.settings.silent]
    assert max(tried) > 4 / 1280  # neighbours of the best go no farther than twice
    monkeypatch.setattr(grid, "TEMPERATURE_LIMITS", (1 / 2560, 1 / 1280))
    held = tune(model, store, dev, "knn", adapt=("constant",), decoded=1, translate=GREEDY)
    likely = next(trial for trial in held if trial.settings.temperature == pytest.approx(scale / 1280))
    assert f"T = {scale / 1280:.3g}" in likely.ends


def test_more_candidates_are_tried_while_they_are_better(
    model: Model, store: Datastore, dev: list[Segment], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, int]] = []
    monkeypatch.setitem(SYSTEMS, "fast", replace(SYSTEMS["fast"], c_grid=(1, 60, 61, 62)))  # no type has more tokens
    tune(
        model, store, dev, "fast", adapt=("constant",), decoded=1, translate=GREEDY,
        progress=lambda stage, done, _: told.append((stage, done)),
    )  # fmt: skip
    assert sum(done for stage, done in told if stage == "look up") == 3 * len(dev)  # 61 is no better than 60


def test_an_axis_goes_on_by_halves_and_doubles_as_far_as_its_limits() -> None:
    axis = grid.Axis((0.25, 0.5, 1.0), (0.1, 3.0))
    assert [axis.beyond(value) for value in (0.5, 1.0, 2.0, 3.0, 0.25, 0.125, 0.1)] == [
        None, 2.0, 3.0, None, 0.125, 0.1, None,
    ]  # fmt: skip
    assert [axis.ends_at(value) for value in (0.1, 0.125, 1.0, 3.0)] == [True, False, False, True]
    share = grid.Axis((0.1, 0.9), (0.01, 0.99), share=True)
    assert share.beyond(0.9) == pytest.approx(0.95)
    assert share.beyond(0.98) == pytest.approx(0.99)


def test_what_is_not_searched_for_is_kept(model: Model, dev: list[Segment], tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    store = built(model, tmp_path, index=True)
    given = RetrievalSettings(index=True, nprobe=3)
    trials = tune(model, store, dev, "knn", adapt=("constant",), decoded=1, translate=GREEDY, given=given)
    assert {(trial.settings.index, trial.settings.nprobe) for trial in trials} == {(True, 3)}
