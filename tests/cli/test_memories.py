"""Commands with several stores: searched as one, told apart in what is shown."""

import json
import shutil
from pathlib import Path

import pytest

from knnmt.cli.app import weighted
from knnmt.corpus import Languages, read
from knnmt.errors import UsageError
from knnmt.store.manifest import MANIFEST, manifest_bytes, read_manifest

from ..build.examples import parallel_text
from .process import fine, knnmt, refused

TEXT = "der Hund sieht eine große Katze im Garten ."


@pytest.fixture(scope="module")
def project(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A second store of other segments, for one system only."""
    folder = tmp_path_factory.mktemp("project")
    text = parallel_text(folder / "own.tsv", 40, seed=1)
    options = ("--no-clean", "--cluster-size", "16", "--for", "fast")
    fine(knnmt("build", text, "-l", "de-en", "-m", tiny, "-o", folder / "project", *options))
    return folder / "project"


def first(store: Path) -> str:
    """The source of the first segment that a store was built from."""
    return str(json.loads(fine(knnmt("export", store)).splitlines()[0])["source"])


def test_several_stores_are_searched_as_one_and_each_is_named(tiny: Path, store: Path, project: Path) -> None:
    options = ("-m", tiny, "-s", store, "-s", project, "--beam", "1")
    lines = [json.loads(line) for line in fine(knnmt("export", project)).splitlines()]
    texts = f"{first(store)}\n{lines[0]['source']}\n"
    given = [
        json.loads(line)["translations"][0]
        for line in fine(knnmt("translate", *options, "--json", text=texts)).splitlines()
    ]
    assert given[1]["text"] == lines[0]["target"]
    assert [each["match"]["memory"] for each in given] == ["store", "project"]
    named = {"store": 0, "project": 0}
    content = json.loads(fine(knnmt("explain", TEXT, *options, "--json")))
    for token in content["tokens"]:
        for near in token["neighbours"]:
            named[near["memory"]] += 1
    assert all(named.values())
    shown = fine(knnmt("explain", TEXT, *options, "--neighbours", "8"))
    assert " store " in shown.splitlines()[1]
    assert " project " in shown
    assert " store " not in fine(knnmt("explain", TEXT, *options[:4], "--beam", "1"))


def test_what_the_last_store_is_taught_counts_with_all(tiny: Path, store: Path, project: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(project, tmp_path / "own"))
    text = first(store)
    fine(knnmt("add", own, "-m", tiny, "--source", text, "--target", "a big tree"))
    given = fine(knnmt("translate", "-m", tiny, "-s", store, "-s", own, "--beam", "1", text=f"{text}\n"))
    assert given == "a big tree\n"


def test_overlaps_are_those_with_all_stores(
    tiny: Path, store: Path, project: Path, corpus: Path, tmp_path: Path
) -> None:
    one, other = (next(iter(read(path, Languages("de", "en")))) for path in (corpus, project.with_name("own.tsv")))
    reference = tmp_path / "ref.en"
    reference.write_text(f"{one.target}\n{other.target}\nsomething else\n", encoding="utf-8")
    done = knnmt("evaluate", reference, reference, "-s", store, "-s", project, "--json")
    assert json.loads(done.stdout)["overlaps"] == {"exact": 2, "near": 0}
    lines = f"{one.source}\n{other.source}\n"
    options = ("-m", tiny, "-s", store, "-s", project, "--beam", "1", "--leave-out-own")
    assert "contains 2 word for word" in knnmt("translate", *options, text=lines).stderr


def test_stores_that_cannot_be_opened_together(tiny: Path, store: Path, project: Path, tmp_path: Path) -> None:
    use = ("translate", "-m", tiny, "-s", store)
    refused(knnmt(*use, "-s", project, "-s", store, text="a\n"), 1, "the same store is given twice", str(store))
    for order in (("-s", store, "-s", project), ("-s", project, "-s", store)):
        refused(knnmt("translate", "-m", tiny, *order, "--system", "proto", text="a\n"), 1, f"{project} was", "proto")
    other = Path(shutil.copytree(project, tmp_path / "other"))
    manifest = read_manifest(other).model_copy(update={"model_fingerprint": "x", "model": "opus"})
    (other / MANIFEST).write_bytes(manifest_bytes(manifest))
    refused(knnmt(*use, "-s", other, text="a\n"), 1, str(store), str(other), "models differ", "opus")


def test_inspect_and_verify_several_stores(store: Path, project: Path) -> None:
    one, other = json.loads(fine(knnmt("inspect", store, project, "--json")))
    assert (one["path"], other["path"]) == (str(store), str(project))
    assert "proto" in one["systems"]
    assert {"fast"} <= set(other["systems"]) < set(one["systems"])
    shown = fine(knnmt("inspect", store, project))
    assert shown.index(store.name) < shown.index(project.name)
    assert [line.partition(" ")[0] for line in fine(knnmt("verify", store, project)).splitlines()] == [
        str(store),
        str(project),
    ]
    assert [each["full"] for each in json.loads(fine(knnmt("verify", store, project, "--full", "--json")))] == [
        True
    ] * 2


def test_stores_have_weights(tiny: Path, store: Path, project: Path) -> None:
    options = ("-m", tiny, "-s", store, "-s", project, "--store-weights", "0,1", "--beam", "1")
    content = json.loads(fine(knnmt("explain", TEXT, *options, "--json")))
    assert {near["memory"] for token in content["tokens"] for near in token["neighbours"]} == {"project"}


def test_weights_are_given_in_the_order_of_the_stores() -> None:
    one, other = Path("C:\\one"), Path("other")
    assert weighted(None, None) is None
    assert weighted([one], None) == [one]
    assert weighted([one, other], "1,0.5") == {one: 1.0, other: 0.5}
    assert weighted([one, one], "1,2") == [one, one]  # which is refused when they are opened
    for stores, weights, message in (([one], "1,2", "1, not 2"), ([one], "a", "not 'a'"), (None, "1", "0, not 1")):
        with pytest.raises(UsageError, match=message):
            weighted(stores, weights)
