"""A new system is its own file and its stage: with these it is built, tuned, explained, benched and served."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

from knnmt.build import stages
from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.lab.bench.settings import BenchSettings
from knnmt.lab.bench.speed import measure
from knnmt.model.checkpoint import Model
from knnmt.retrieval.session import Retriever
from knnmt.server.app import create_app
from knnmt.server.settings import ServerSettings
from knnmt.store import schema
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS
from knnmt.translate import TranslateSettings, Translator
from knnmt.tune.tune import tune

from ..retrieval.examples import built
from . import toy

TEXT = "der Hund läuft im Garten ."


@pytest.fixture(scope="module", params=[1 << 20, 200], ids=["one part", "several parts"])
def store(
    model: Model, short_runs: None, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Datastore]:
    toy.learn_of_it()
    folder = tmp_path_factory.mktemp("toy")
    store = built(model, folder, systems=("toy",), part_tokens=request.param, batch_tokens=64)
    assert (len(store.parts) > 1) == (request.param < 1000)
    yield store
    del SYSTEMS["toy"], stages.STAGES["toy"]
    for name in toy.ARRAYS:
        del schema.ARRAYS[name]


def test_it_is_built_without_what_others_need(store: Datastore) -> None:
    for part in store.parts:
        assert "last_tokens" in part
        assert "cluster_source" not in part
        assert "small_target" not in part
    assert list(store.verify())


def test_it_finds_the_entries_of_the_last_tokens(store: Datastore, model: Model) -> None:
    """The slow way: of each part and type the last token, and of their entries the nearest to a state."""
    ids = torch.tensor(model.tokenizer.encode_source([TEXT]))
    source = torch.zeros(1, ids.size(1), store.sizes["width"])
    look = Retriever(store, model.device, RetrievalSettings(system="toy", k=3)).look(ids, ids >= 0, source)
    seen = set()
    for part in store.parts:
        for kind in ids[0].tolist():
            if part["type_offsets"][kind + 1] > part["type_offsets"][kind]:
                last = part["type_offsets"][kind + 1] - 1
                links = part["link_entries"][part["link_offsets"][last] : part["link_offsets"][last + 1]]
                seen |= {part.first_entry + entry for entry in links.tolist()}
    keys = np.concatenate([part["target_keys"] for part in store.parts]).astype(np.float64)
    state = keys[len(keys) // 2]
    wanted = sorted(seen, key=lambda entry: (np.square(keys[entry] - state).sum(), entry))[:3]
    found = look.lookup.find(torch.from_numpy(state).float()[None, None])
    assert found.entries[0, 0].tolist() == wanted


def test_it_is_tuned_explained_benched_and_served(store: Datastore, model: Model) -> None:
    dev = [Segment("der Hund läuft", "the dog runs"), Segment("ein Baum im Garten", "a tree in the garden")]
    trials = tune(model, store, dev, "toy", decoded=1)
    assert {trial.settings.system for trial in trials} == {"toy"}
    translator = Translator(model, store, system="toy")
    found = translator.translate([TEXT], TranslateSettings(evidence=True, exact=False))[0]
    assert any(token.neighbours for token in found.evidence)
    settings = BenchSettings(pairs=2, beam=2, batch_size=2, k=4, first_pass=False)
    rows, skipped = measure(model, store, [TEXT, "ein Baum"], settings)
    assert [row.system for row in rows] == ["base", "knn", "toy"]  # which opens nothing more
    assert not skipped
    with TestClient(create_app(translator, ServerSettings(beam=2)), "http://127.0.0.1") as client:
        assert client.get("/v1/systems").json()["default"] == "toy"
        asked = client.post("/translate", json={"q": TEXT, "source": "de", "target": "en"})
        assert asked.json()["translatedText"] == translator.translate([TEXT], TranslateSettings(beam=2))[0].text


def test_it_is_short() -> None:
    assert len(Path(toy.__file__).read_text("utf-8").splitlines()) < 60
