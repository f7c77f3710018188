"""The pages: the files of this repository that they name are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
FOLDERS = (ROOT, ROOT / "src" / "knnmt", ROOT / "docs")  # where a path in a text begins
PATH = re.compile(r"(?<![\w/.-])(?:[\w-]+/)+[\w-]+\.(?:py|toml|js)\b(?!on)|src/knnmt/[\w/]+(?:\.\w+)?")
MAP = re.compile(r"^  (\w+(?:/|\.py))", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_that_a_page_names_exist(page: Path) -> None:
    named = set(PATH.findall(page.read_text(encoding="utf-8")))
    assert {path for path in named if not any((folder / path).exists() for folder in FOLDERS)} == set()


def test_the_map_of_the_code_has_all_packages() -> None:
    whole = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Map of the code")[2]
    source = ROOT / "src" / "knnmt"
    listed = set(MAP.findall(whole))
    assert {name for name in listed if not (source / name).exists()} == set()
    assert {f"{path.parent.name}/" for path in source.glob("*/__init__.py")} <= listed
