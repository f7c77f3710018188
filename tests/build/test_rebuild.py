"""What is at the place of a store already: the same store, another one, or other files."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from knnmt.build.build import build
from knnmt.datastore import Datastore
from knnmt.errors import UsageError
from knnmt.model.checkpoint import Model, load
from knnmt.store.manifest import MANIFEST

from .examples import parallel_text
from .small import PAIRS, SETTINGS, files, leftovers, settings


def times(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def test_a_store_that_is_there_is_not_made_again(model: Model, corpus: Path, there: Path) -> None:
    before = times(there)
    report = build([corpus], model, there, "de-en", SETTINGS)
    assert not report.seconds
    assert report.kept == PAIRS
    assert report.size == sum(len(content) for name, content in files(there).items() if name != MANIFEST)
    assert times(there) == before
    assert leftovers(there.parent) == {"store"}


def test_a_store_is_made_again_to_the_byte_where_it_is_to_be_replaced(
    model: Model, corpus: Path, there: Path, built: Path
) -> None:
    report = build([corpus], model, there, "de-en", SETTINGS, replace=True)
    assert "represent" in report.seconds
    assert files(there) == files(built)
    assert leftovers(there.parent) == {"store"}


def test_another_store_is_replaced_only_where_that_is_said(
    model: Model, corpus: Path, there: Path, built: Path
) -> None:
    other = settings(k_max=3)
    with pytest.raises(UsageError, match="holds another datastore: choose another folder, or replace it"):
        build([corpus], model, there, "de-en", other)
    assert files(there) == files(built)
    assert leftovers(there.parent) == {"store"}

    old = Datastore.open(there)
    before = {name: np.array(old.parts[0][name]) for name in ("target_ids", "ranking_entries")}
    seen = set()

    def progress(stage: str, some: int, total: int | None) -> None:
        seen.add(stage)
        now = Datastore.open(there)
        assert now.manifest == old.manifest
        assert len(list(now.verify())) == len(old.files)

    build([corpus], model, there, "de-en", other, replace=True, progress=progress)
    assert seen == {"read", "align", "link", "represent", "cluster", "prototypes", "similar", "keys"}
    new = Datastore.open(there)
    assert new.manifest.settings["k_max"] == 3
    assert list(new.verify())
    assert len(list(there.glob("part-*"))) == 1
    assert all(
        np.array_equal(old.parts[0][name], array) for name, array in before.items()
    )  # whoever had it open has it
    assert leftovers(there.parent) == {"store"}


def changed_text(corpus: Path) -> None:
    corpus.write_text(corpus.read_text(encoding="utf-8") + "der Hund\tthe dog\n", encoding="utf-8")


def test_a_corpus_that_changed_makes_another_store(model: Model, tmp_path: Path) -> None:
    corpus = parallel_text(tmp_path / "corpus.tsv", 20)
    build([corpus], model, tmp_path / "store", "de-en", SETTINGS)
    changed_text(corpus)
    with pytest.raises(UsageError, match="holds another datastore"):
        build([corpus], model, tmp_path / "store", "de-en", SETTINGS)


@pytest.mark.parametrize("damage", ["newer", "broken"])
def test_a_store_that_cannot_be_read_is_not_overwritten_unasked(
    model: Model, corpus: Path, there: Path, damage: str
) -> None:
    manifest = there / MANIFEST
    if damage == "newer":
        manifest.write_text(json.dumps({"knnmt": {"format": 2}}))
    else:
        manifest.write_bytes(manifest.read_bytes()[:-10])
    before = files(there)
    with pytest.raises(UsageError, match="replace"):
        build([corpus], model, there, "de-en", SETTINGS)
    assert files(there) == before
    build([corpus], model, there, "de-en", SETTINGS, replace=True)
    assert list(Datastore.open(there).verify())


def test_a_folder_with_other_files_is_left_alone(model: Model, corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("mine")
    for replace in (False, True):
        with pytest.raises(UsageError, match="it is a folder with other files in it"):
            build([corpus], model, tmp_path / "thesis", "de-en", SETTINGS, replace=replace)
    assert files(tmp_path / "thesis") == {"chapter.txt": b"mine"}
    assert leftovers(tmp_path) == {"thesis"}


def test_a_folder_that_only_looks_like_the_work_folder_is_left_alone(
    model: Model, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "store.building" / "part").mkdir(parents=True)
    (tmp_path / "store.building" / "plan of the house.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"store\.building"):
        build([corpus], model, tmp_path / "store", "de-en", SETTINGS)
    assert (tmp_path / "store.building" / "plan of the house.txt").read_text() == "mine"


def test_an_empty_folder_will_do(model: Model, corpus: Path, built: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    build([corpus], model, tmp_path / "store", "de-en", SETTINGS)
    assert files(tmp_path / "store") == files(built)


def test_a_store_may_be_built_right_here(
    model: Model, corpus: Path, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    build([corpus], model, Path(), "de-en", SETTINGS)
    assert files(tmp_path / "here") == files(built)
    assert leftovers(tmp_path) == {"here"}


def test_a_model_in_another_precision_makes_another_store(
    model_folder: Callable[[str], Path], corpus: Path, there: Path
) -> None:
    coarse = load(model_folder("marian"), langs="de-en", device="cpu", precision="bfloat16")
    with pytest.raises(UsageError, match="holds another datastore"):
        build([corpus], coarse, there, "de-en", SETTINGS)
