"""The demo: catalogs of installed packages, no segment of which stands twice, with and without a memory."""

import json
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from knnmt.corpus import Segment
from knnmt.datastore import Datastore
from knnmt.errors import UsageError
from knnmt.lab import demo
from knnmt.model.checkpoint import Model, load
from knnmt.tune import grid
from knnmt.tune.search import Trial
from knnmt.tune.tune import tune

from ..build.examples import ENGLISH, GERMAN
from ..cli.process import fine, knnmt

HEADER = 'msgid ""\nmsgstr "Language: de\\nContent-Type: text/plain; charset=UTF-8\\n"\n\n'


def test_catalogs_are_distinct_and_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shop_under_test" / "locale" / "de" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    (tmp_path / "shop_under_test" / "__init__.py").write_text("raise RuntimeError('only its files are read')")
    words = [chr(97 + i) + chr(97 + j) for i in range(20) for j in range(20)]
    entries = [(f"The word {word}", f"Das Wort {word}") for word in words]
    entries += [("the word AA!", "Ein anderes Wort"), ("Another word", "das wort: %(n)s aa"), ("%s", "%s")]
    text = HEADER + "".join(f'msgid "{english}"\nmsgstr "{german}"\n\n' for english, german in entries)
    (folder / "django.po").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(demo, "PACKAGES", ("shop_under_test",))

    found, unknown = demo.catalogs()
    assert len(found.held_out) == demo.HELD_OUT
    assert len(found.memory) == 400 - demo.HELD_OUT  # nothing but case, marks and placeholders tells the others apart
    assert not {s.source for s in found.held_out} & {s.source for s in found.memory}
    assert found.held_out[0].source.startswith("Das Wort")
    assert demo.catalogs() == (found, unknown)  # the same split every time
    assert not unknown.memory
    assert len(unknown.held_out) == demo.HELD_OUT


def test_nothing_of_a_project_that_is_unknown_is_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, words in (("shop_one", "abcd"), ("shop_two", "cdefgh")):
        folder = tmp_path / name / "locale" / "de" / "LC_MESSAGES"
        folder.mkdir(parents=True)
        (tmp_path / name / "__init__.py").write_text("")
        text = HEADER + "".join(f'msgid "The word {word}"\nmsgstr "Das Wort {word}"\n\n' for word in words)
        (folder / "django.po").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(demo, "PACKAGES", ("shop_one", "shop_two"))
    _, unknown = demo.catalogs()
    assert {segment.source[-1] for segment in unknown.memory} == set("abcd")
    assert {segment.source[-1] for segment in unknown.held_out} == set("efgh")  # what both have is known


def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "PACKAGES", ("no_such_shop",))
    with pytest.raises(UsageError, match=r"no_such_shop, which is not installed: run `make demo`"):
        demo.catalogs()


def test_systems_are_tuned_without_what_they_are_tuned_on(
    model_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(3)
    places = [rng.choices(range(len(GERMAN)), k=rng.randint(3, 8)) for _ in range(60)]
    segments = [
        Segment(" ".join(GERMAN[i] for i in some), " ".join(ENGLISH[i] for i in some), f"x.po:{number}")
        for number, some in enumerate(places)
    ]
    marked = Segment("ein %s", "a %s", "x.po:60")
    tuned = []

    def watched(model: Model, store: Datastore, dev: Sequence[Segment], system: str, **options: Any) -> list[Trial]:
        left_out = {store.segment(number).source for number in options["left_out"]}
        assert left_out >= {segment.source for segment in dev}
        assert len(store) == 50
        tuned.append(system)
        return tune(model, store, dev, system, **options)

    monkeypatch.setattr(demo, "tune", watched)
    monkeypatch.setattr(demo, "DEV", 8)
    monkeypatch.setattr(grid, "TEMPERATURES", (1 / 40,))  # a grid that is fast to go through
    monkeypatch.setattr(grid, "K", (8, 64))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    stages: dict[str, int] = {}

    def progress(stage: str, done: int, total: int | None) -> None:
        stages[stage] = stages.get(stage, 0) + done

    model = load(model_folder("marian"), langs="de-en", device="cpu")
    unknown = demo.Catalogs(segments[30:], [*segments[:4], marked])
    found = demo.compare(model, demo.Catalogs(segments[10:], [*segments[:10], marked]), unknown, progress)
    assert {name: len(result.translations) for name, result in found.unknown.items()} == {"base": 5, "similar": 5}
    assert tuned == list(demo.SYSTEMS)
    assert list(found.results) == ["base", *demo.SYSTEMS]
    for name, result in found.results.items():
        assert len(result.translations) == 11
        assert (result.settings.system if result.settings is not None else "base") == name
        assert stages[f"translate, {name}"] == 11
    assert 0 < len(found.corrections) <= demo.CORRECTIONS
    assert all(one.before != one.segment.target and one.seconds > 0 for one in found.corrections)
    assert list(tmp_path.glob("knnmt-*")) == []  # nothing is left behind


@pytest.mark.slow
def test_a_memory_helps() -> None:
    found = json.loads(fine(knnmt("demo", "--json")))
    score = {name: result["bleu"]["value"] for name, result in found["systems"].items()}
    assert len(found["segments"]) == 300
    assert score["knn"] > score["base"] + 5
    assert score["fast"] > score["base"] + 5
    assert score["faster"] >= score["base"]
    unknown = {name: result["bleu"]["value"] for name, result in found["unknown_project"].items()}
    assert unknown["similar"] > unknown["base"] + 2
    right = [one["after"] == one["taught"] for one in found["corrections"]]
    assert sum(right) >= 0.9 * len(right)
