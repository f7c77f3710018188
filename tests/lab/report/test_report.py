"""The report says every figure that it was given, and asks nothing of a network."""

import json
import re
import struct
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from knnmt.errors import DataError, MissingExtraError, UsageError
from knnmt.lab.report import Bench, curves, report, tables, theme
from knnmt.lab.report.plots import ORDER, look
from knnmt.lab.reproduce import Results

from .examples import FIGURES, SLOPES, growth, results, speed

BENCHES = [speed("k", [1, 8, 64]), speed("length", [8, 32]), growth()]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report on everything."""
    folder = tmp_path_factory.mktemp("report")
    assert report([results()], BENCHES, folder / "new") == folder / "new" / "report.html"
    return folder / "new"


def test_every_figure_is_told(made: Path) -> None:
    for text in ((made / name).read_text(encoding="utf-8") for name in ("report.html", "tables.md")):
        for title, systems in FIGURES.items():
            assert title in text
            for name, (bleu, seconds, megabytes) in systems.items():
                assert name in text
                for told in (
                    f"{bleu:.1f}",
                    f"{bleu:.2f} ±0.61",
                    f"{22.4 + bleu:.2f} ±0.48",
                    f"{91.7 - bleu:.2f} ±0.93",
                ):
                    assert told in text
                assert f"{bleu - 0.53:.2f}" in text  # on what the store has nothing of
                assert f"{2000 / seconds:.1f}" in text
                assert f"{seconds / systems['base'][1]:.2f}" in text
                assert f"{megabytes:.1f} MB" in text or f"{megabytes / 1000:.1f} GB" in text or not megabytes
        for told in ("17,560", "623,411", "3,214", "238.7", "62.9", "≤ 0.60", "406.2", "0.210", "tok:13a", "63 nearly"):
            assert told in text
        assert "11.3 (+3.1)*†" in text  # other than base MT and other than kNN-MT
        assert "8.4 (+2.6)†" in text  # not surely other than base MT
        assert "Stands in for Medical." in text
    assert tables.quality(results())[1] == ["base", "5.8", "11.3", "17.6", "8.1", "10.7", ""]
    assert tables.differences(results().domains[0])[0][1:3] == ["BLEU: base", "chrF2: base"]


def test_the_page_stands_alone(made: Path) -> None:
    text = (made / "report.html").read_text(encoding="utf-8")
    assert "http" not in text
    assert "<script" not in text
    assert re.findall(r'(?:src|href)="(?!#|data:)', text) == []
    assert re.findall(r"url\((?!#)", text) == []
    assert "prefers-color-scheme: dark" in text
    names = re.findall(r'\bid="([^"]+)"', text)
    assert len(names) == len(set(names)) > 0
    assert set(re.findall(r'(?:href="#|url\(#)([\w.-]+)', text)) <= set(names)  # nothing refers to what is not there
    assert not any(mark in text for mark in theme.MARKED.colours.values())
    assert set(re.findall(r"var\(--([\w-]+)\)", text)) <= set(theme.LIGHT.colours) == set(theme.DARK.colours)


def test_plots_are_pictures_of_both_schemes(made: Path) -> None:
    pictures = {path.stem for path in made.glob("*.svg")}
    assert pictures == {
        "quality-speed", "quality-size", "build-time", "speed-k", "speed-length", "growth", "stages",
    }  # fmt: skip
    for name in pictures:
        light, dark = ((made / f"{name}{end}.png").read_bytes() for end in ("", "-dark"))
        for content in (light, dark):
            assert content[:8] == b"\x89PNG\r\n\x1a\n"
            assert struct.unpack(">I", content[16:20])[0] > 1000  # pixels wide
            assert len(content) > 10_000
        assert light != dark
        svg = (made / f"{name}.svg").read_text(encoding="utf-8")
        assert svg.startswith('<svg xmlns="http://www.w3.org/2000/svg" ')
        assert theme.DARK.paper in svg
    text = (made / "speed-k.svg").read_text(encoding="utf-8")
    assert [system for system in SLOPES if f">{system}<" in text] == list(SLOPES)


@pytest.mark.usefixtures("vectors_alone")
def test_what_is_not_there_is_not_drawn(tmp_path: Path) -> None:
    report([results(1)], [], tmp_path)
    assert {path.stem for path in tmp_path.glob("*.svg")} == {"quality-speed", "quality-size", "build-time"}
    assert "mean" not in tables.quality(results(1))[0]


def test_gains_are_told_as_shares_of_the_exact_search() -> None:
    heads, *rows = tables.quality(results())
    kept = {name: cells[-1] for name, *cells in rows}
    assert heads[-1] == "gain kept"
    gain = {name: sum(found[name][0] - found["base"][0] for found in FIGURES.values()) for name in ("knn", "proto")}
    assert kept["knn"] == "100%"
    assert kept["proto"] == f"{gain['proto'] / gain['knn']:.0%}"
    assert "gain kept" not in tables.quality(results(1))[0]


@pytest.mark.usefixtures("vectors_alone")
def test_variants_of_a_domain_make_curves(tmp_path: Path) -> None:
    usual = results(2)
    domains = []
    for m in (4, 64):
        content = usual.domains[0].model_dump()
        content["name"] = f"koran-m{m}"
        content["systems"] = {name: content["systems"][name] for name in ("base", "proto")}
        content["systems"]["proto"]["bytes"] *= 16 // m if m < 16 else 1
        domains.append(content)
    asked = [{"name": f"koran-m{m}", "variant_of": "koran", "build": {"prototype_size": m}} for m in (4, 64)]
    other = Results.model_validate(
        usual.model_dump() | {"domains": domains, "config": usual.config | {"domains": asked}}
    )
    assert [point.m for point in curves.found([usual, other])["Koran"] if point.name == "proto"] == [16, 4, 64]
    assert list(curves.found([usual, other])) == ["Koran"]  # IT has no variants
    report([usual, other], [], tmp_path)
    assert {"quality-m", "quality-built-size", "quality-speed"} <= {path.stem for path in tmp_path.glob("*.svg")}
    assert not (tmp_path / "quality-speed-2.svg").exists()  # a picture of its own would show variants side by side
    text = (tmp_path / "quality-m.svg").read_text(encoding="utf-8")
    assert [m for m in (4, 16, 64) if f">{m}<" in text] == [4, 16, 64]


@pytest.mark.usefixtures("vectors_alone")
def test_two_experiments_of_one_title(tmp_path: Path) -> None:
    report([results(1), results(2)], [], tmp_path)
    assert (tmp_path / "quality-speed-2.svg").exists()
    text = (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert "(1)" in text
    assert "(2)" in text


def test_systems_are_told_apart() -> None:
    for scheme in (theme.LIGHT, theme.DARK):
        looks = [look(system, system, scheme) for system in ORDER]
        assert len({one["color"] for one in looks}) == len({one["marker"] for one in looks}) == len(ORDER)
        for one in looks:
            assert _contrast(one["color"], scheme.paper) >= 2.9
        assert _contrast(scheme.ink, scheme.paper) > 10
        assert _contrast(scheme.quiet, scheme.paper) > 4.5
        assert look("knn", "knn-constant", scheme)["fillstyle"] != "full"


def _contrast(one: str, other: str) -> float:
    """As the accessibility guidelines of the web define it."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_systems_with_settings_of_their_own_are_no_sweep() -> None:
    rows = [dict(row) for row in speed("k", [16]).speed]
    for row in rows:
        row["c"] = {"fast": 64, "proto": 16}.get(row["system"])
    bench = Bench("once", rows, [], {})
    assert bench.axes == []
    assert [row["system"] for row in bench.usual()] == ["base", *SLOPES]


def test_what_bench_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "k.json"
    for content in ({"rows": BENCHES[0].speed, "machine": BENCHES[0].machine}, BENCHES[0].speed):
        path.write_text(json.dumps(content))
        found = Bench.load(path)
        assert found.speed == BENCHES[0].speed
        assert found.axes == ["k"]
    path.write_text(json.dumps(asdict(growth())))
    assert Bench.load(path).growth == growth().growth
    assert Bench.load(path).axes == []
    assert BENCHES[1].axes == ["length"]
    assert speed("k", [16]).axes == []


def test_several_sweeps_of_one_file_are_kept_apart() -> None:
    both = Bench("both", speed("k", [1, 8, 16, 64]).speed + speed("length", [8, 32, 64]).speed, [], {})
    assert both.axes == ["k", "length"]
    for axis, values in (("k", {1, 8, 16, 64}), ("length", {8, 32, 64})):
        rows = [row for row in both.along(axis) if row["system"] == "fast"]
        assert {row[axis] for row in rows} >= values
        assert len(rows) == len({row[axis] for row in rows}) <= len(values) + 1  # the other's usual point is one too
    assert [row["system"] for row in both.usual()] == ["base", *SLOPES]
    (fast,) = (row for row in both.usual() if row["system"] == "fast")
    assert (fast["k"], fast["length"]) == (16, 24.6)


@pytest.mark.parametrize(
    ("content", "message"), [("{", "is not JSON"), ("{}", "no benchmark figures"), ("[1]", "no benchmark")]
)
def test_what_is_no_benchmark_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "bench.json"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        Bench.load(path)
    with pytest.raises(UsageError, match="cannot read"):
        Bench.load(tmp_path / "none.json")


def test_without_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken: Any = None
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", broken)
    with pytest.raises(MissingExtraError, match=r"pip install 'knnmt\[plot\]'"):
        report([results(1)], [], tmp_path / "new")
    assert not (tmp_path / "new").exists()
