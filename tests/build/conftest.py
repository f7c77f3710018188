"""A small corpus and its store, which several modules read."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from knnmt.build.build import build
from knnmt.model.checkpoint import Model

from ..forked import Forked, script
from . import killed
from .examples import parallel_text
from .small import PAIRS, SETTINGS


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parallel text."""
    return parallel_text(tmp_path_factory.mktemp("corpus") / "corpus.tsv", PAIRS)


@pytest.fixture(scope="session")
def built(model: Model, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of the corpus under SETTINGS."""
    out = tmp_path_factory.mktemp("built") / "store"
    build([corpus], model, out, "de-en", SETTINGS)
    return out


@pytest.fixture
def there(built: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(built, tmp_path / "store")


@pytest.fixture(scope="session")
def process(model_folder: Callable[[str], Path]) -> Iterator[Forked]:
    """Does builds and compactions that may be killed: see `killed`."""
    with script(killed.__file__, model_folder("marian")) as process:
        yield process
