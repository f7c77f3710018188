"""Segments of a store that it is tuned on: of projects that it knows, and of projects of which it has nothing then."""

import json
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.evaluate import Score
from knnmt.model.checkpoint import Model
from knnmt.retrieval.tuned import tuned_for
from knnmt.translate import Translator
from knnmt.tune import grid, search
from knnmt.tune import held_out as holding
from knnmt.tune.held_out import hold_out
from knnmt.tune.tune import StoreTuning, tune_store

from .retrieval.examples import built


class Texts:
    """A store as far as it is asked for its segments."""

    def __init__(self, origins: list[str]) -> None:
        self.all = [
            (number, Segment(f"Wort {number} steht hier allein", f"word {number}", origin))
            for number, origin in enumerate(origins)
        ]

    def numbered(self) -> Iterator[tuple[int, Segment]]:
        return iter(self.all)


def drawn(origins: list[str]) -> tuple[holding.DevSet, holding.DevSet]:
    known, unknown = hold_out(cast(Datastore, Texts(origins)))
    return known, unknown


PROJECTS = [f"/site/shop/locale/{name}.po:{line}" for name in ("a", "b") for line in range(10)]
PROJECTS += [f"/site/blog/de.po:{line}" for line in range(12)] + [f"/site/wiki/de.mo#{line}" for line in range(4)]


def test_a_known_project_is_translated_without_the_segments_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "HELD_OUT", 6)
    known, _ = drawn(PROJECTS)
    (fold,) = known.folds
    assert len(known) == len(fold.segments) == 6
    assert {PROJECTS[number] for number in fold.left_out} == {segment.origin for segment in fold.segments}
    assert len({segment.origin.partition("de")[0] for segment in fold.segments}) > 1  # from all over the store


def test_an_unknown_project_is_translated_without_any_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holding, "HELD_OUT", 9)
    _, unknown = drawn(PROJECTS)
    projects = ["/site/shop/", "/site/blog/", "/site/wiki/"]  # the largest first; all files of a project go together
    assert len(unknown.folds) == len(projects)
    for project, fold in zip(projects, unknown.folds, strict=True):
        assert 0 < len(fold.segments) <= 3
        assert all(segment.origin.startswith(project) for segment in fold.segments)
        assert fold.left_out == {number for number, origin in enumerate(PROJECTS) if origin.startswith(project)}


def test_what_is_nearly_all_of_a_store_is_cut_into_blocks() -> None:
    for origins in ([f"memory.tsv:{line}" for line in range(20)], [f"Ada:{n}" for n in range(20)] + ["Bob:1"]):
        _, unknown = drawn(origins)
        assert len(unknown.folds) == holding.GROUPS
        for fold in unknown.folds:
            assert len(fold.left_out) == 4
            assert max(fold.left_out) - min(fold.left_out) == 3


# ------------------------------------------------------------------------------------------------- tuning on them


@pytest.fixture(scope="module")
def store(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return built(model, tmp_path_factory.mktemp("held"))


@pytest.fixture
def scored(model: Model, store: Datastore, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[float]], StoreTuning]:
    """Tune by scores that are given: one for the known and one for the unknown project a trial; the last stay."""
    monkeypatch.setattr(holding, "HELD_OUT", 6)
    monkeypatch.setattr(grid, "TEMPERATURES", (1 / 80, 1 / 10))
    monkeypatch.setattr(grid, "MAX_WEIGHTS", (0.5, 0.99))
    monkeypatch.setattr(grid, "REACHES", (1 / 2, 2.0))

    def run(scores: list[float]) -> StoreTuning:
        left = iter(scores)
        said: list[float] = []

        def bleu(*_: Any) -> Score:
            said.append(next(left, scores[-2 + len(said) % 2]))
            return Score("BLEU", said[-1], "")

        monkeypatch.setattr(search, "bleu", bleu)
        monkeypatch.setattr(search, "chrf", lambda *_: Score("chrF2", said[-1], ""))
        monkeypatch.setattr(search, "mean_chrf", lambda *_: said[-1])
        return tune_store(model, store, decoded=1)

    return run


# base MT, untuned, one by likelihood, one near the best, then half of the way: known and unknown project each
@pytest.mark.parametrize(
    ("scores", "kept"),
    [
        ([20, 20, 40, 30, 60, 29, 39, 29], False),  # 20 better on what it knows, and worse on what it does not
        ([20, 20, 40, 30, 40.1, 30.1, 39, 29], False),  # better by chance
        ([20, 20, 40, 30, 39, 36, 39, 29], False),
        ([20, 20, 40, 30, 42, 31, 39, 29, 41, 30.8], True),
        ([20, 20, 40, 30, 42, 31, 39, 29, 41, 29.8], False),  # the middle is worse than both ends
    ],
)
def test_settings_are_kept_only_where_they_harm_neither(
    store: Datastore, model: Model, scored: Callable[[list[float]], StoreTuning], scores: list[float], kept: bool
) -> None:
    tuned = scored(scores)
    assert (tuned.best is not tuned.untuned) == kept
    assert [figures.bleu for figures in tuned.best.sets.values()] == (scores[8:10] if kept else scores[2:4])
    assert list(tuned.segments) == ["known project", "unknown project"]
    used = Translator(model, Datastore.open(store.path)).retriever
    assert used is not None
    assert used.given == tuned.best.settings
    notes = json.loads((store.path / "settings.json").read_text())
    assert notes["tuned"]["unknown project"]["bleu"] == (scores[9] if kept else scores[3])
    assert notes["base"]["known project"]["bleu"] == 20


def test_where_nothing_beats_base_mt_lessons_are_not_silenced(
    store: Datastore, scored: Callable[[list[float]], StoreTuning]
) -> None:
    tuned = scored([50, 50, 40, 30, 39, 29])
    assert tuned.best is tuned.base
    saved = tuned_for(Datastore.open(store.path))
    assert saved is not None
    assert saved.settings.silent
    assert saved.settings.weight  # 0 is what a user asks for who wants base MT and no lessons
