"""Replicas: servers that share one store, of which one learns and the others follow its journal."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from knnmt import BuildSettings, Datastore, Translator
from knnmt.server.app import create_app
from knnmt.server.settings import ServerSettings

from ..build.examples import parallel_text

TEXT, LESSON = "der Hund läuft im Garten", "a big cat sleeps in the house"
ASKED = {"q": TEXT, "source": "de", "target": "en"}


@pytest.fixture
def store(model_folder: Callable[[str], Path], tmp_path: Path) -> Path:
    corpus = parallel_text(tmp_path / "train.tsv", 60)
    settings = BuildSettings.model_validate({"clean": None, "cluster_size": 16})
    made = Datastore.build(
        corpus, model=model_folder("marian"), langs="de-en", out=tmp_path / "store", settings=settings
    )
    return made.path


def server(model: Path, store: Path, *, teach: bool = True) -> TestClient:
    """A replica with a model and a view of the store of its own, as another process has them."""
    app = create_app(Translator(model, store, langs="de-en"), ServerSettings(beam=2, teach=teach))
    return TestClient(app, base_url="http://localhost")


def translated(client: TestClient) -> str:
    found: str = client.post("/translate", json=ASKED).json()["translatedText"]
    return found


def test_what_one_replica_learns_the_others_use_at_once(model_folder: Callable[[str], Path], store: Path) -> None:
    model = model_folder("marian")
    with server(model, store) as writer, server(model, store, teach=False) as reader:
        assert translated(reader) == translated(writer) != LESSON
        assert reader.post("/suggest", json=ASKED | {"s": LESSON}).status_code == 403
        name = writer.post("/v1/memory", json={"source": TEXT, "target": LESSON}).json()["ids"][0]
        listed = reader.get("/v1/memory", params={"order": "recent"}).json()["segments"]
        assert [each["id"] for each in listed] == [name]  # before a translation has looked for it
        assert translated(reader) == translated(writer) == LESSON

        Datastore.open(store).compact(Translator(model, langs="de-en").model)  # other parts, under both of them
        assert translated(reader) == translated(writer) == LESSON
        assert writer.delete(f"/v1/memory/{name}").status_code == 200
        assert translated(reader) == translated(writer) != LESSON


def test_a_replica_follows_a_store_that_was_built_again(
    model_folder: Callable[[str], Path], store: Path, tmp_path: Path
) -> None:
    """As after a nightly `knnmt build --replace`, on Ray or not."""
    model = model_folder("marian")
    text = tmp_path / "new.tsv"
    shutil.copyfile(tmp_path / "train.tsv", text)
    with text.open("a", encoding="utf-8") as file:
        file.write(f"{TEXT}\t{LESSON}\tnew\n")
    with server(model, store, teach=False) as reader:
        assert translated(reader) != LESSON
        settings = BuildSettings.model_validate({"clean": None, "cluster_size": 16})
        Datastore.build(text, model=model, langs="de-en", out=store, settings=settings, replace=True)
        assert translated(reader) == LESSON
