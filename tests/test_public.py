"""What `import knnmt` offers: every name, lazily; objects that say what they are; a missing library is named."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import knnmt
from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.errors import KnnmtError, MissingExtraError
from knnmt.model.checkpoint import load
from knnmt.optional import require

from .build.examples import parallel_text

ROOT = Path(__file__).parents[1]


def test_every_public_name_is_there() -> None:
    for name in knnmt.__all__:
        assert getattr(knnmt, name) is not None
    assert set(dir(knnmt)) == set(knnmt.__all__)


def test_errors_can_be_caught_without_importing_torch() -> None:
    program = "import sys, knnmt; knnmt.StoreError; print('torch' in sys.modules, 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_every_error_that_a_caller_may_meet_is_exported() -> None:
    assert {error.__name__ for error in _below(KnnmtError)} <= set(knnmt.__all__)


def _below(error: type[KnnmtError]) -> set[type[KnnmtError]]:
    found = {each for below in error.__subclasses__() for each in (below, *_below(below))}
    return {each for each in found if each.__module__ == "knnmt.errors"}


def test_objects_show_what_they_are(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    corpus = parallel_text(tmp_path / "train.tsv", 20)
    settings = BuildSettings(systems=("fast", "proto"), clean=None)
    store = knnmt.Datastore.build(
        corpus, out=tmp_path / "store", langs="de-en", model=model_folder("marian"), settings=settings
    )
    shown = repr(store)
    assert shown.startswith(f"Datastore({str(tmp_path / 'store')!r}, de-en, ")
    assert shown.endswith(f"{len(store)} segments, systems: fast, proto)")
    found = knnmt.Translation("Good morning!", -0.12345, tokens=(1, 2, 3))
    assert repr(found) == "Translation('Good morning!', score=-0.123)"


def test_a_missing_library_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert require("json", extra="none") is sys.modules["json"]
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtraError, match=r"^faiss is not installed: pip install 'knnmt\[faiss\]'$"):
        require("faiss", extra="faiss")


def test_a_build_with_an_index_is_refused_at_once_without_faiss(
    model_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "faiss", missing)
    model = load(str(model_folder("marian")), langs="de-en")
    corpus = parallel_text(tmp_path / "train.tsv", 20)
    with pytest.raises(MissingExtraError, match="faiss"):
        build([corpus], model, tmp_path / "store", "de-en", BuildSettings(index=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.tsv"]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="packages are made of what git does not ignore")
def test_no_source_is_ignored() -> None:
    sources = "\n".join(str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py"))
    done = subprocess.run(
        ["git", "check-ignore", "--no-index", "--stdin"], cwd=ROOT, input=sources, capture_output=True, text=True
    )
    assert done.stdout == ""
