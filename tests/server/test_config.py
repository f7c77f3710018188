"""A server by configuration: pairs, memories and keys from a file, models loaded on demand, all of it reloaded."""

import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from knnmt import BuildSettings, Datastore
from knnmt.corpus import Segment
from knnmt.errors import UsageError
from knnmt.model.checkpoint import Model
from knnmt.server.app import create_team_app
from knnmt.server.config import PairConfig, ServerConfig, read_config
from knnmt.server.model_pool import ModelPool, ModelSpec, bytes_of
from knnmt.server.opening import open_desks
from knnmt.server.people import ANYONE
from knnmt.translate import Translator

from ..build.examples import parallel_text

DOCS = Path(__file__).parents[2] / "docs"
TEXT, COMPANY, PROJECT = "der Hund läuft im Garten", "the dog runs in the garden", "a big dog runs"
ADA = {"Authorization": "Bearer ada"}


@pytest.fixture(scope="module")
def sealed(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    for seed, name in enumerate(("company", "project")):
        text = parallel_text(folder / f"{name}.tsv", 30, seed)
        settings = BuildSettings(clean=None, cluster_size=16, systems=("fast",))
        Datastore.build(text, model=model, langs="de-en", out=folder / name, settings=settings, workers=1)
    return folder


@pytest.fixture
def place(sealed: Path, model_folder: Callable[[str], Path], tmp_path: Path) -> Path:
    """A folder with two stores and a configuration."""
    for name in ("company", "project"):
        shutil.copytree(sealed / name, tmp_path / name)
    write(tmp_path, model_folder("marian"))
    return tmp_path


def write(place: Path, model: Path, more: str = "", project: str = "project") -> None:
    digest = hashlib.sha256(b"ada").hexdigest()
    (place / "server.toml").write_text(
        f"""
        state = "state"
        [server]
        beam = 1
        [memories.company]
        store = "company"
        [memories.project]
        store = "{project}"
        [[pairs]]
        langs = "de-en"
        model = "{model}"
        memories = ["project", "company"]
        device = "cpu"
        [[pairs]]
        langs = "en-de"
        model = "{model}"
        device = "cpu"
        [keys.ada]
        digest = "{digest}"
        role = "admin"
        {more}
        """,
        encoding="utf-8",
    )


@pytest.fixture
def client(place: Path) -> Iterator[TestClient]:
    path = place / "server.toml"
    with TestClient(create_team_app(read_config(path), path), base_url="http://localhost", headers=ADA) as client:
        yield client


def translated(client: TestClient, **asked: Any) -> dict[str, Any]:
    found = client.post("/v1/translate", json={"q": TEXT, **asked})
    assert found.status_code == 200, found.text
    (first,) = found.json()["translations"]
    return dict(first)


def test_the_example_is_read(tmp_path: Path) -> None:
    config = read_config(DOCS / "server.toml")
    assert config.memory == 8 << 30
    assert [pair.langs for pair in config.pairs] == ["de-en", "en-de"]
    assert config.memories["handbook"].store == DOCS / "stores" / "handbook"
    assert config.keys["rita"].own == ("handbook",)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("memroy = 1", "memroy: is no setting: there are server, memory,"),
        ("memory = 'much'", "memory: should be a size such as 8GB, not 'much'"),
        ("[[pairs]]\nlangs = 'de'", "pairs.0.langs: 'de' is no language pair"),
        ("[[pairs]]\nmemories = ['x']", "pairs.0.memories: there is no memory 'x'; there are: none"),
        ("[memories.a]", "memories.a.store: is needed"),
        ("[keys.a]\ndigest = 'x'", "keys.a.digest: should be the 64 digits that `knnmt serve --keys"),
        ("[[pairs]]\nlang = 'de-en'", "pairs.0.lang: is no setting: there are langs, model,"),
        ("[keys.a]\ndigest = '" + "0" * 64 + "'\nrol = 'boss'", "keys.a.rol: is no setting: there are digest, role,"),
        ("[keys.a]\ndigest = '" + "0" * 64 + "'\nrole = 'boss'", "keys.a.role: should be 'translate', 'teach',"),
        ("[server]\nport = 99999", "server.port: should be less than or equal to 65535, not 99999"),
        ("memory = ", "invalid TOML: "),
    ],
)
def test_what_is_wrong_is_told_in_a_line_with_its_place(tmp_path: Path, wrong: str, told: str) -> None:
    path = tmp_path / "server.toml"
    path.write_text(wrong, encoding="utf-8")
    with pytest.raises(UsageError) as error:
        read_config(path)
    assert str(error.value).startswith(f"{path}: ")
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_a_store_of_other_languages_is_refused_with_its_name(place: Path, model_folder: Callable[[str], Path]) -> None:
    write(place, model_folder("marian"), project="nowhere")
    with pytest.raises(UsageError, match=r"memories\.project: .*nowhere"):
        open_desks(read_config(place / "server.toml"), ModelPool())


def test_both_embedded_directions_are_served_without_a_configuration() -> None:
    desks = open_desks(ServerConfig.of_stores([], PairConfig()), ModelPool())
    assert list(map(str, desks.pairs())) == ["de-en", "en-de"]
    assert desks.desk(ANYONE, "en", "de").memories == ()
    alone = open_desks(ServerConfig.of_stores([], PairConfig(langs="en-de")), ModelPool())
    assert list(map(str, alone.pairs())) == ["en-de"]


def test_a_project_counts_before_its_company(client: TestClient) -> None:
    for memory, target in (("project", PROJECT), ("company", COMPANY)):  # the company's lesson is the newer one
        found = client.post("/v1/memory", params={"memory": memory}, json={"source": TEXT, "target": target})
        assert found.status_code == 201
    assert translated(client)["text"] == PROJECT
    assert translated(client, memories=["company"])["text"] == COMPANY
    assert translated(client, memories=["company", "project"])["text"] == COMPANY
    assert translated(client, memories=[])["match"] is None
    asked = {"q": TEXT, "source": "de", "target": "en"}
    assert client.post("/translate", json=asked).json()["translatedText"] == PROJECT
    near = translated(client, q="der Hund schläft im Garten", evidence=True)
    assert {one["memory"] for token in near["tokens"] for one in token["neighbours"]} == {"project", "company"}
    assert client.post("/v1/translate", json={"q": TEXT, "target": "de", "memories": ["company"]}).status_code == 404


def test_what_a_project_was_built_from_counts_before_a_lesson_of_its_company(client: TestClient, place: Path) -> None:
    project = Datastore.open(place / "project")
    text = next(project.segments()).source
    client.post("/v1/memory", params={"memory": "company"}, json={"source": text, "target": COMPANY})
    assert translated(client, q=text, memories=["company"])["text"] == COMPANY
    assert translated(client, q=text)["text"] == project.matches(text)[0].segment.target


def test_who_taught_what_is_kept(client: TestClient, place: Path) -> None:
    assert client.post("/suggest", json={"q": TEXT, "s": PROJECT, "source": "de", "target": "en"}).status_code == 200
    (first, *_) = client.get("/v1/memory", params={"order": "recent"}).json()["segments"]
    assert (first["author"], first["memory"], first["target"]) == ("ada", "project", PROJECT)
    assert first["origin"] == f"suggested (ada, {first['date']})"
    exported = client.get("/v1/memory/export", params={"memory": "project"}).text
    assert 'creationid="ada"' in exported
    assert '<prop type="x-origin">suggested</prop>' in exported
    store = Datastore.open(place / "project")
    assert next(store.segments()).origin  # of the file it was built from
    (entry, *_) = client.get("/v1/audit").json()["entries"]
    assert (entry["caller"], entry["action"], entry["memory"]) == ("ada", "export", "project")
    taught = client.get("/v1/audit").json()["entries"][1]
    assert (taught["action"], taught["ids"]) == ("teach", [first["id"]])
    assert TEXT not in (place / "state" / "audit.jsonl").read_text()


def test_a_bad_configuration_changes_nothing(
    client: TestClient, place: Path, model_folder: Callable[[str], Path]
) -> None:
    theo = {"Authorization": "Bearer theo"}
    write(place, model_folder("marian"), "[keys.theo]\nrole = 'boss'")
    refused = client.post("/v1/reload")
    assert refused.status_code == 400
    assert "keys.theo.digest: is needed" in refused.json()["error"]
    assert client.get("/v1/me", headers=theo).status_code == 403
    write(place, model_folder("marian"), f"[keys.theo]\ndigest = '{hashlib.sha256(b'theo').hexdigest()}'")
    before = translated(client)
    store = client.app.state.server.desks.memories["project"].store  # type: ignore[attr-defined]
    assert client.post("/v1/reload").json()["keys"] == 2
    assert client.get("/v1/me", headers=theo).json()["role"] == "translate"
    assert client.app.state.server.desks.memories["project"].store is store  # type: ignore[attr-defined]
    assert translated(client) == before


def test_requests_finish_with_what_they_began_with(client: TestClient, place: Path) -> None:
    server = client.app.state.server  # type: ignore[attr-defined]
    model = server.desk(ANYONE).translator.model
    answers: list[int] = []
    asking = [threading.Thread(target=lambda: answers.append(status(client))) for _ in range(8)]
    for thread in asking:
        thread.start()
    assert client.post("/v1/reload").status_code == 200
    for thread in asking:
        thread.join()
    assert answers == [200] * 8
    assert server.desk(ANYONE).translator.model is model


def status(client: TestClient) -> int:
    return client.post("/v1/translate", json={"q": [TEXT] * 20, "beam": 8}).status_code


def test_models_make_room_for_each_other(model_folder: Callable[[str], Path], model: Model) -> None:
    first, second, third = (
        ModelSpec(str(model_folder("marian")), langs, "cpu") for langs in ("de-en", "de-AT-en", "de-CH-en")
    )
    pool = ModelPool(bytes_of(model) + max(bytes_of(model), first.size_on_disk()))  # the size on disk is its estimate
    one = pool.translator(first, (), Translator)
    two = pool.translator(second, (), Translator)
    assert pool.translator(first, (), Translator) is one
    pool.translator(third, (), Translator)
    assert not pool.has(second, ())  # the least recently used
    assert pool.has(first, ())
    assert pool.used <= (pool.budget or 0)
    assert two.translate([TEXT])  # whoever holds it may finish
    assert pool.translator(second, (), Translator) is not two


def test_models_are_loaded_in_threads_that_end(model: Model) -> None:
    threads: list[threading.Thread] = []

    def load(_: ModelSpec) -> Model:
        threads.append(threading.current_thread())
        return model

    def make(loaded: Model) -> Translator:
        threads.append(threading.current_thread())
        return Translator(loaded)

    ModelPool(load=load).translator(ModelSpec(), (), make)
    assert len(threads) == 2
    assert not any(thread.is_alive() for thread in threads)


def test_a_model_that_cannot_be_loaded_is_the_error_of_whoever_asked() -> None:
    with pytest.raises(UsageError):
        ModelPool().translator(ModelSpec("no-such-model", "de-en", "cpu"), (), Translator)


def test_what_another_process_taught_is_listed(client: TestClient, place: Path, model: Model) -> None:
    total = client.get("/v1/memory").json()["total"]
    Datastore.open(place / "project").add([Segment("ein Baum", "a tree", "", "tree")], model)
    listed = client.get("/v1/memory", params={"order": "recent"}).json()["segments"]
    assert [each["id"] for each in listed] == ["tree"]
    assert client.get("/v1/memory").json()["total"] == total + 1
    assert client.put("/v1/memory/tree", json={"source": "ein Baum", "target": "the tree"}).status_code == 200


def test_who_taught_survives_a_compaction(client: TestClient, place: Path, model: Model) -> None:
    assert client.post("/v1/memory", json={"source": "ein Baum", "target": "a tree", "id": "tree"}).status_code == 201
    Datastore.open(place / "project").compact(model, workers=1)
    found = client.get("/v1/memory", params={"memory": "project", "q": "a tree"}).json()["segments"]
    assert {(each["id"], each["author"]) for each in found if each["id"] == "tree"} == {("tree", "ada")}
    Datastore.open(place / "project").compact(model, full=True, workers=1)
    found = client.get("/v1/memory", params={"memory": "project", "q": "a tree"}).json()["segments"]
    assert {(each["id"], each["author"]) for each in found if each["id"] == "tree"} == {("tree", "ada")}
