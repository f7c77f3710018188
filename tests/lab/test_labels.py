"""The benchmark of labels: what it samples, and what it counts as a placeholder lost."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from knnmt import Segment

PATH = Path(__file__).parent.parent.parent / "benchmarks" / "labels.py"
WORDS = {"Speichern": "Save", "Datei öffnen": "Open file", "Name": "Name", "Eintrag 1": "Entry 1", "sichern": "save"}


@pytest.fixture(scope="module")
def labels() -> ModuleType:
    spec = importlib.util.spec_from_file_location("labels_benchmark", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Dictionary:
    """Stands in for a translator: knows some words."""

    def __init__(self, known: dict[str, str]) -> None:
        self.known = known

    def translate(self, texts: list[str], settings: Any = None) -> list[SimpleNamespace]:
        return [SimpleNamespace(text=self.known.get(text, "?")) for text in texts]


def test_both_directions_sample_the_same_labels_and_no_side_twice(labels: ModuleType) -> None:
    segments = [Segment(source, target) for source, target in WORDS.items()]
    there = labels.labels(segments)
    back = labels.labels([labels.swapped(segment) for segment in segments])
    assert [replace(s, source=s.target, target=s.source) for s in back] == there
    assert {s.target.lower() for s in there} == {"save", "open file", "name"}
    assert len(there) == 3  # no digits, and one of the two that are saved


def test_labels_seen_in_training_are_counted_apart(labels: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "seen.tsv").write_text("datei öffnen\topen file\tpypi:x\n", encoding="utf-8")
    sample = [Segment("Datei öffnen", "Open file"), Segment("Name", "Name"), Segment("Ende", "End")]
    translator = Dictionary({"Datei öffnen": "Open File", "Name": "Name"})
    rows = list(labels.label_rows(translator, sample, labels.pairs(tmp_path / "seen.tsv")))
    assert rows == [
        ("labels, exact", "3", "33.3%"),
        ("labels, ignoring case", "3", "66.7%"),
        ("labels in training, exact", "1", "0.0%"),
        ("labels in training, ignoring case", "1", "100.0%"),
        ("labels not in training, exact", "2", "50.0%"),
        ("labels not in training, ignoring case", "2", "50.0%"),
    ]


def test_a_placeholder_may_move_but_not_change(labels: ModuleType) -> None:
    sources = {
        "%(n)s Seiten in <b>%s</b>": "<b>%s</b> has %(n)s pages",
        "{count} Einträge": "{counts} entries",
        "<a href='x'>hier</a>": "<a href='x'>here",
        "ohne": "without",
    }
    row = labels.placeholder_row(Dictionary(sources), [Segment(source, "") for source in sources])
    assert row[1:] == ("3", "66.7%")
