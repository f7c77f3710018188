"""One store of several: what `Memories` finds in all of them, on disk."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from knnmt.build.build import build
from knnmt.build.union import merge_stores
from knnmt.cli.app import app
from knnmt.corpus import Segment
from knnmt.datastore import Datastore
from knnmt.errors import StoreError, UsageError
from knnmt.model.checkpoint import Model
from knnmt.retrieval.session import Retriever
from knnmt.store.memories import AnyStore, Memories
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS
from knnmt.translate import Translator

from .examples import parallel_text
from .small import files, settings


@pytest.fixture(scope="module")
def sealed(model: Model, built: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two stores, of which both were taught and lost something, and whose narrow keys have different widths."""
    folder = tmp_path_factory.mktemp("stores")
    one, other = shutil.copytree(built, folder / "one"), folder / "other"
    build([parallel_text(folder / "text.tsv", 40, seed=5)], model, other, "de-en", settings(budget=60_000))
    store = Datastore.open(one)
    store.add([Segment("ein Hund schläft", "the lazy dog", "", "a"), Segment("Katze", "tiger", "", "b")], model)
    store.compact(model)
    store.remove(["3"])
    store = Datastore.open(other)
    store.add([Segment("ein Baum im Garten", "some tree", "", "b")], model)  # another lesson of the same id
    store.remove(["7", "8"])
    assert Datastore.open(one).sizes["target_small"] != Datastore.open(other).sizes["target_small"]
    return one, other


@pytest.fixture
def merged(sealed: tuple[Path, Path], tmp_path: Path) -> Datastore:
    merge_stores(sealed, tmp_path / "merged")
    return Datastore.open(tmp_path / "merged")


def texts(store: AnyStore) -> list[tuple[str, str]]:
    return [(segment.source, segment.target) for segment in store.segments()]


def test_a_merged_store_finds_what_the_stores_find_together(
    merged: Datastore, sealed: tuple[Path, Path], model: Model
) -> None:
    assert set(merged.files) <= set(merged.verify())
    together = Memories.open(sealed)
    assert (merged.scale, merged.sizes) == (together.scale, together.sizes)
    lines = ["ein Hund schläft im Garten", "das Haus und der Baum", "die Katze sieht"]
    for system in SYSTEMS:
        chosen = RetrievalSettings(system=system, k=4)
        one, other = (
            Translator(model, retriever=Retriever(store, model.device, chosen)) for store in (merged, together)
        )
        assert [each.text for each in one.translate(lines)] == [each.text for each in other.translate(lines)], system


def test_what_was_taught_and_removed_is_kept(merged: Datastore, sealed: tuple[Path, Path], model: Model) -> None:
    """Of two lessons with one id the later one counts."""
    one, other = (Datastore.open(path) for path in sealed)
    assert set(merged.lessons.taught) == {"a", "b"}
    assert merged.lessons.taught["b"].segment.target == "some tree"
    together = sorted([*texts(one), *texts(other)])
    together.remove(("Katze", "tiger"))
    assert sorted(texts(merged)) == together
    assert Translator(model, merged).translate(["ein Hund schläft"])[0].text == "the lazy dog"
    before = files(sealed[0])
    merged.add([Segment("groß", "huge", "", "c")], model)
    merged.compact(model, full=True)
    assert len(merged.parts) == 1
    assert set(merged.files) <= set(merged.verify())
    assert files(sealed[0]) == before  # files were shared, and never change
    assert Translator(model, merged).translate(["groß"])[0].text == "huge"


def test_files_are_shared_on_one_disk_and_copied_between_disks(
    sealed: tuple[Path, Path], merged: Datastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = merged.parts[0].folder.name
    assert (merged.path / name / "text.npy").samefile(sealed[0] / name / "text.npy")

    def refused(source: str, target: str) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", refused)
    merge_stores(sealed, tmp_path / "copied")
    assert files(tmp_path / "copied") == files(merged.path)
    assert not (tmp_path / "copied" / name / "text.npy").samefile(sealed[0] / name / "text.npy")


def test_an_interrupted_merge_is_resumed(
    sealed: tuple[Path, Path], merged: Datastore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0

    def fails(*arguments: object) -> None:
        nonlocal made
        made += 1
        if made == 20:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("knnmt.build.union._link", fails)
        with pytest.raises(KeyboardInterrupt):
            merge_stores(sealed, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    merge_stores(sealed, tmp_path / "again")
    assert files(tmp_path / "again") == files(merged.path)
    assert not (tmp_path / "again.building").exists()
    stamp = (tmp_path / "again" / "manifest.json").stat().st_mtime_ns
    merge_stores(sealed, tmp_path / "again")  # already merged
    assert (tmp_path / "again" / "manifest.json").stat().st_mtime_ns == stamp


def test_what_cannot_be_merged_is_refused(sealed: tuple[Path, Path], built: Path, tmp_path: Path, model: Model) -> None:
    one, other = sealed
    with pytest.raises(UsageError, match="name at least two stores"):
        merge_stores([one], tmp_path / "merged")
    with pytest.raises(UsageError, match="is one of the stores to merge"):
        merge_stores([one, other], other)
    copy = shutil.copytree(one, tmp_path / "copy")
    (tmp_path / "taken.building").write_text("mine")
    with pytest.raises(UsageError, match=r"cannot make the folder .*taken\.building: .*; choose a place"):
        merge_stores(sealed, tmp_path / "taken")
    with pytest.raises(StoreError, match=r"several of these stores hold the same part \(part-"):
        merge_stores([one, copy], tmp_path / "merged")
    text = parallel_text(tmp_path / "text.tsv", 20, seed=9)
    build([text], model, tmp_path / "cosine", "de-en", settings(metric="cosine"))
    with pytest.raises(StoreError, match="metrics differ"):
        merge_stores([one, tmp_path / "cosine"], tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_the_command(sealed: tuple[Path, Path], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["merge", *map(str, sealed), "--out", str(tmp_path / "merged")])
    assert done.exit_code == 0, done.output
    segments = len(Datastore.open(tmp_path / "merged"))
    assert f"{segments:,} segments in 3 parts" in done.output
    assert np.isfinite(Datastore.open(tmp_path / "merged").scale)
