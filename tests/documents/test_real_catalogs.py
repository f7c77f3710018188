"""The catalogs of the demo's packages: byte-identical without translations, accepted by msgfmt with them."""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from knnmt.documents import State, open_document
from knnmt.errors import KnnmtError
from knnmt.lab.demo import PACKAGES
from knnmt.languages import Languages

FOUND = [spec for name in PACKAGES if (spec := importlib.util.find_spec(name)) is not None]
CATALOGS = sorted(
    path for spec in FOUND for folder in spec.submodule_search_locations or () for path in Path(folder).rglob("*.po")
)
GERMAN = [path for path in CATALOGS if path.parent.parent.name == "de"]
NEEDED = pytest.mark.skipif(len(FOUND) < len(PACKAGES), reason="needs the packages of demo-requirements.txt")


def differing(paths: list[Path]) -> list[Path]:
    return [path for path in paths if open_document(path).to_bytes() != path.read_bytes()]


def accepted(path: Path) -> bool:
    return not subprocess.run(["msgfmt", "-c", path, "-o", "/dev/null"], capture_output=True).returncode


@NEEDED
def test_german_catalogs_are_the_same_without_translations() -> None:
    assert len(GERMAN) > 20
    assert differing(GERMAN) == []


@NEEDED
@pytest.mark.slow
def test_catalogs_of_every_language_are_the_same_without_translations() -> None:
    assert len(CATALOGS) > 2000
    assert differing(CATALOGS) == []


@NEEDED
@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs gettext")
def test_msgfmt_accepts_german_catalogs_that_are_translated_anew(tmp_path: Path) -> None:
    """By a translation that keeps every placeholder, in all units; where msgfmt accepts the original."""
    checked = 0
    for number, path in enumerate(GERMAN):
        try:
            document = open_document(path, languages=Languages("en", "de"))
        except KnnmtError:
            continue
        for unit in document.units:
            unit.set(unit.source, state=State.TRANSLATED)
        written = tmp_path / f"{number}.po"
        document.write(written)
        if accepted(path):
            checked += 1
            assert accepted(written), path
    assert checked > 20
