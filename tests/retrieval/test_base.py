"""With λ = 0 every system gives base MT's translation and its score, bit for bit."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from knnmt.datastore import Datastore
from knnmt.model.checkpoint import Model, load
from knnmt.systems.settings import SILENT, RetrievalSettings
from knnmt.systems.table import SYSTEMS
from knnmt.translate import TranslateSettings, Translator

from .examples import built

TEXTS = [
    "der Hund läuft .",
    "die Katze sieht das Haus und der Hund schläft im Garten .",
    "ein Baum",
    "das Haus ist groß , die Katze klein",
    "xyz",
    "",
]


@pytest.fixture(scope="module")
def model(model_folder: Callable[[str], Path]) -> Model:
    return load(model_folder("marian"), device="cpu")


@pytest.fixture(scope="module")
def store(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return built(model, tmp_path_factory.mktemp("base"), index=True)


@pytest.mark.parametrize("system", [*SYSTEMS, "indexed"])
@pytest.mark.parametrize("beam", [1, 5])
@pytest.mark.parametrize("adapt", ["constant", "distance"])
def test_a_weight_of_0_is_base_mt_to_the_bit(
    model: Model, store: Datastore, system: str, beam: int, adapt: Any
) -> None:
    search = TranslateSettings(beam=beam, n_best=beam, max_length=30, exact=False)
    name, index = ("knn", True) if system == "indexed" else (system, False)
    off = RetrievalSettings(system=name, k=4, weight=0.0, adapt=adapt, index=index)
    on = RetrievalSettings(system=name, k=4, weight=0.9, adapt="constant", index=index)
    base = Translator(model).translate(TEXTS, search)
    found = Translator(model, store, retrieval=off).translate(TEXTS, search)
    for ours, theirs in zip(found, base, strict=True):
        ranked = [[t.tokens for t in (one, *one.alternatives)] for one in (ours, theirs)]
        scores = [[t.score for t in (one, *one.alternatives)] for one in (ours, theirs)]
        assert ranked[0] == ranked[1]
        assert scores[0] == scores[1]
    mixed = Translator(model, store, retrieval=on).translate(TEXTS, search)
    assert [t.tokens for t in mixed] != [t.tokens for t in base]  # or the store was not looked up at all


def test_a_store_has_a_length_penalty_of_its_own(model: Model, store: Datastore) -> None:
    """Which counts unless the caller asks for another one, or the store is silent."""
    search, own = TranslateSettings(max_length=30, exact=False), model.length_penalty
    asking = search.model_copy(update={"length_penalty": 4.0})
    retrieval = RetrievalSettings(system="similar")

    def tokens(settings: RetrievalSettings, search: TranslateSettings) -> list[tuple[int, ...]]:
        return [one.tokens for one in Translator(model, store, retrieval=settings).translate(TEXTS, search)]

    longer = retrieval.model_copy(update={"length_penalty": 4.0})
    assert tokens(longer, search) == tokens(retrieval, asking) != tokens(retrieval, search)
    given = search.model_copy(update={"length_penalty": own})
    assert tokens(longer, given) == tokens(retrieval, given)
    silent = longer.model_copy(update={"weight": SILENT})
    assert tokens(silent, search) == [one.tokens for one in Translator(model).translate(TEXTS, search)]
    untuned = Translator(model, store, retrieval=retrieval).retriever
    assert untuned is not None
    assert untuned.length_penalty(own) == SYSTEMS["similar"].defaults.longer * own


def test_base_asked_for_with_a_store_at_hand_is_base_mt(model: Model, store: Datastore) -> None:
    base, named = Translator(model), Translator(model, store, system="base")
    assert named.retriever is None
    assert named.translate(TEXTS) == base.translate(TEXTS)
