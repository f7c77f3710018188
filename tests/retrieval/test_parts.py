"""Parts and memories: what is cut into several, or opened together, is searched as one.

kNN-MT and Fast find the same entries with the same distances to the bit. The other systems cluster each part for
itself, so that they need not find the same; they work over any number of parts.
"""

import shutil
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.model.checkpoint import Model
from knnmt.retrieval.session import Retriever
from knnmt.store.memories import AnyStore, Memories
from knnmt.systems import levels
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS
from knnmt.translate import TranslateSettings, Translator

from ..store.examples import joined
from .examples import built

TEXTS = ["der Hund läuft im Garten .", "die Katze sieht das Haus und der Hund schläft", "ein Baum", "groß und klein ."]
TOKENS = {1: 1 << 20, 2: 260, 5: 110}  # target tokens of a part, for so many parts
SETTINGS: dict[str, Any] = {"k": 6, "c": 3, "temperature": 5.0, "weight": 0.7, "reach": 200.0}


pytestmark = pytest.mark.usefixtures("short_runs")


@pytest.fixture(scope="module")
def stores(short_runs: None, model: Model, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Datastore]:
    folder = tmp_path_factory.mktemp("parts")
    made = {}
    for count, tokens in TOKENS.items():
        (folder / str(count)).mkdir()
        made[count] = built(model, folder / str(count), part_tokens=tokens, batch_tokens=64)
    assert [len(store.parts) for store in made.values()] == [1, 2, 5]
    return made


def found(store: AnyStore, model: Model, system: str, **changes: Any) -> list[list[Any]]:
    """Entries, tokens and distances of all steps of some translations, to the bit; and the translations."""
    settings = RetrievalSettings(**{"system": system, **SETTINGS, **changes})
    retriever = Retriever(store, model.device, settings)
    ids = [torch.tensor([row]) for row in model.tokenizer.encode_source(TEXTS)]
    rows = []
    generator = torch.Generator().manual_seed(0)
    for row in ids:
        encoded = model.transformer.encode(row, row >= 0)
        look = retriever.look(row, row >= 0, encoded.states)
        states = look.view.query(3 * torch.randn(1, 4, store.sizes["width"], generator=generator))
        near = look.lookup.find(states)
        rows.append([near.entries.tolist(), near.tokens.tolist(), near.distances.tolist()])
    translator = Translator(model, retriever=retriever)
    return [*rows, [each.text for each in translator.translate(TEXTS, TranslateSettings(exact=False))]]


@pytest.mark.parametrize("system", ["knn", "fast"])
def test_the_same_is_found_in_one_part_and_in_several(stores: dict[int, Datastore], model: Model, system: str) -> None:
    one = found(stores[1], model, system)
    for count in (2, 5):
        assert found(stores[count], model, system) == one


@pytest.mark.parametrize("system", ["knn", "fast"])
def test_by_torch_it_is_the_same_but_for_rounding(stores: dict[int, Datastore], model: Model, system: str) -> None:
    """A product of matrices may round otherwise at another size."""
    with patch("knnmt.search.find_spec", return_value=None):
        *one, texts = found(stores[1], model, system)
        for count in (2, 5):
            *several, translated = found(stores[count], model, system)
            assert translated == texts
            for ours, theirs in zip(several, one, strict=True):
                np.testing.assert_allclose(ours[2], theirs[2], rtol=1e-5)


@pytest.mark.parametrize("system", ["knn", "fast"])
def test_so_it_is_after_lessons_removals_and_compactions(model: Model, tmp_path: Path, system: str) -> None:
    """Numbers are others after a compaction; tokens, distances and translations are not."""
    made = []
    for count in (1, 5):
        (tmp_path / str(count)).mkdir()
        store = built(model, tmp_path / str(count), part_tokens=TOKENS[count], batch_tokens=64)
        store.add([Segment("der Hund läuft im Garten .", "a big cat", ""), Segment("ein Baum", "the tree", "")], model)
        store.remove(["line-3", "line-40"])
        steps = [found(store, model, system)]
        store.compact(model)
        steps.append(found(store, model, system))
        store.compact(model, full=True)
        assert len(store.parts) == 1
        steps.append(found(store, model, system))
        made += [[*(row[1:] for row in rows), texts] for *rows, texts in steps]
    for step, one in enumerate(made):
        assert one == made[0], step


@pytest.mark.parametrize("system", ["faster", "faster-exact", "fast-clustered"])
def test_clusters_that_are_laid_side_by_side_are_found_as_where_they_are(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str
) -> None:
    store = built(model, tmp_path, part_tokens=TOKENS[5], batch_tokens=64)
    for change in (None, ["line-3", "line-40"], [f"line-{number}" for number in range(1, 20)]):
        if change is not None:
            store.remove(change)
        rows = []
        for least in (10**6, 1):
            monkeypatch.setattr(levels, "BESIDE_FROM", least)
            rows.append(found(store, model, system))
        assert rows[0] == rows[1]


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_part_of_lessons_changes_nothing_else(
    stores: dict[int, Datastore], model: Model, tmp_path: Path, system: str
) -> None:
    """Lessons are heard as lessons, also when they are sealed: their part takes no place from other entries."""
    store = Datastore.open(shutil.copytree(stores[1].path, tmp_path / "store"))
    store.add([Segment("der Hund im Garten .", "a big cat", ""), Segment("ein Baum", "the tree", "")], model)
    before = found(store, model, system)
    store.compact(model)
    assert len(store.parts) == 2
    assert found(store, model, system) == before


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_system_translates_over_several_parts(stores: dict[int, Datastore], model: Model, system: str) -> None:
    for count in (1, 5):
        *_, texts = found(stores[count], model, system)
        base = Translator(model).translate(TEXTS)
        assert all(texts)
        assert texts != [each.text for each in base]


@pytest.mark.parametrize("system", SYSTEMS)
def test_two_memories_are_searched_as_their_union(model: Model, tmp_path: Path, system: str) -> None:
    """The union is one store of the parts of both; with projections of their own, `similar` is near to it."""
    paths = []
    for name, count in (("company", 40), ("project", 25)):
        (tmp_path / name).mkdir()
        paths.append(built(model, tmp_path / name, count=count).path)
    union, memories = joined(tmp_path / "union", paths), Memories.open(paths)
    assert len(memories) == len(union)
    ours, theirs = found(memories, model, system), found(union, model, system)
    assert ours == theirs
    translator = Translator(model, paths, retrieval=RetrievalSettings(system=system, **SETTINGS))
    evidence = translator.translate(TEXTS[:1], TranslateSettings(evidence=True, exact=False))[0].evidence
    assert {near.memory for token in evidence for near in token.neighbours} <= {"company/store", "project/store"}
    added = translator.add([Segment("der Hund läuft im Garten .", "a big cat", "")])
    assert added.new == 1
    assert Datastore.open(paths[1]).recent()[0].target == "a big cat"
    assert not Datastore.open(paths[0]).recent()
    assert translator.translate(TEXTS[:1])[0].text == "a big cat"
