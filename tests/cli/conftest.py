"""A tiny model, parallel text in its words, and a store of that."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ..build.examples import parallel_text
from .process import fine, knnmt


@pytest.fixture(scope="session")
def tiny(model_folder: Callable[[str], Path]) -> Path:
    """The folder of a model."""
    return model_folder("marian")


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Parallel text."""
    return parallel_text(tmp_path_factory.mktemp("corpus") / "train.tsv", 200)


@pytest.fixture(scope="session")
def store(tiny: Path, corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of all of it, for all systems."""
    folder = tmp_path_factory.mktemp("stores") / "store"
    fine(knnmt("build", corpus, "-l", "de-en", "-m", tiny, "-o", folder, "--no-clean", "--cluster-size", "16"))
    return folder
