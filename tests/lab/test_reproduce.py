"""A whole experiment on a tiny model: everything is made, kept, and not made again."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from knnmt.build import build as building
from knnmt.build.settings import BuildSettings
from knnmt.corpus import Languages, read
from knnmt.datastore import Datastore
from knnmt.errors import DataError, UsageError
from knnmt.evaluate import bleu, evaluate
from knnmt.lab.reproduce import Config, Results, reproduce, run
from knnmt.lab.reproduce.results import updated
from knnmt.lab.reproduce.score import compare
from knnmt.model.checkpoint import load
from knnmt.overlap import overlaps
from knnmt.retrieval.tuned import Tuned
from knnmt.store.manifest import read_manifest
from knnmt.systems.table import SYSTEMS
from knnmt.translate import TranslateSettings, Translator
from knnmt.translate.search import BatchSearch
from knnmt.tune.tune import tune

from ..build.examples import parallel_text
from ..cli.process import fine, knnmt, refused
from .experiments import quick

RUNS = ["knn", "faster", "faster-constant"]
CONFIG = """
title = "Tiny"
model = "{model}"
languages = "de-en"
systems = ["knn", "faster", {{ name = "faster-constant", system = "faster", adapt = ["constant"] }}]
resamples = 20

[build]
cluster_size = 16
clean = {{ check_language = false }}

[tune]
segments = 6
decoded = 1

[translate]
segments = 8
beam = 2

[[domains]]
name = "one"
title = "The first"
train = "one/train.tsv"
dev = "one/dev.tsv"
test = "one/test.tsv"

[[domains]]
name = "two"
systems = ["faster"]
train = ["two/train.tsv", "one/dev.tsv"]
dev = "two/dev.tsv"
test = "two/test.tsv"
note = "a domain without kNN-MT"
"""


@pytest.fixture(autouse=True, scope="module")
def fast_enough() -> Iterator[None]:
    with quick(TEMPERATURES=(1 / 40,), MAX_WEIGHTS=(0.5, 0.99)):
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of two domains; of the first, two test segments also stand in train."""
    folder = tmp_path_factory.mktemp("data")
    for number, name in enumerate(("one", "two")):
        (folder / name).mkdir()
        for seed, (part, count) in enumerate((("train", 60), ("dev", 10), ("test", 12))):
            parallel_text(folder / name / f"{part}.tsv", count, seed=10 * number + seed)
    train = (folder / "one" / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    test = folder / "one" / "test.tsv"
    lines = test.read_text(encoding="utf-8").splitlines(keepends=True)
    long = [line for line in train if len(line.split("\t")[0].split()) > 6][:2]
    test.write_text("".join([*long, *lines[2:]]), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def written(model_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The config's file."""
    path = tmp_path_factory.mktemp("config") / "tiny.toml"
    path.write_text(CONFIG.format(model=model_folder("marian")), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def done(written: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    """The experiment, done once; its folder and its results."""
    out = tmp_path_factory.mktemp("done") / "results"
    return out, reproduce(Config.load(written), data, out, device="cpu", jobs=1)


def changed(written: Path, **updates: Any) -> Config:
    """The config with other values, `build__cluster_size` for those of a table."""
    content = Config.load(written).model_dump(mode="json", exclude_unset=True)
    for key, value in updates.items():
        table, _, name = key.partition("__")
        content[table] = content.get(table, {}) | {name: value} if name else value
    return Config.model_validate(content)


def test_everything_is_made_and_told(done: tuple[Path, Results], data: Path, written: Path) -> None:
    out, results = done
    assert Results.load(out) == Results.load(out / "results.json") == results
    assert [domain.title for domain in results.domains] == ["The first", "two"]
    assert [list(domain.systems) for domain in results.domains] == [["base", *RUNS], ["base", "faster"]]
    assert results.machine["device"] == "cpu"
    assert results.machine["precision"] == "float32"
    assert {"python", "torch", "transformers", "sacrebleu"} <= set(results.versions)

    config = Config.load(written)
    model = load(config.model, device="cpu", langs="de-en")
    segments = list(read(data / "one" / "test.tsv", Languages("de", "en")))[:8]
    references = [segment.target for segment in segments]
    folder, first = out / "one", results.domains[0]
    store = Datastore.open(folder / "store")
    texts = {name: (folder / "translations" / f"{name}.txt").read_text("utf-8").splitlines() for name in first.systems}
    scores = evaluate(texts, references, resamples=20)
    for name, one in first.systems.items():
        tuned = Tuned.load(folder / "settings" / f"{name}.json") if name != "base" else None
        translator = Translator(model, store, retrieval=tuned) if tuned is not None else Translator(model)
        plain = TranslateSettings(beam=2, exact=False, spans=False, sentences=False)  # the engine, on lines as they are
        found = translator.translate([segment.source for segment in segments], plain)
        assert texts[name] == [each.text for each in found]
        assert one.translated.tokens == sum(len(each.tokens) for each in found)
        assert one.translated.seconds > 0
        assert [(s.metric, s.value, s.signature, s.p.get("base")) for s in one.metrics] == [
            (s.metric, s.value, s.signature, s.p) for s in scores[name]
        ]
        assert list(one.metrics[0].p) == [other for other in ("base", "knn", "faster") if other != name]
        if tuned is not None and one.tuned is not None:
            assert tuned.settings.system == one.system == name.removesuffix("-constant")
            assert one.tuned.settings == tuned.settings.model_dump(mode="json", by_alias=True)
            assert one.tuned.bleu >= one.tuned.base_bleu
            files = [f"{array}.npy" for array in SYSTEMS[one.system].arrays]
            assert one.bytes == sum((store.parts[0].folder / name).stat().st_size for name in files)
    assert first.systems["base"].bytes == 0
    assert first.systems["faster-constant"].tuned.settings["adapt"] == "constant"  # type: ignore[union-attr]
    assert first.systems["faster"].bytes < first.systems["knn"].bytes
    assert list(results.domains[1].systems["faster"].metrics[0].p) == ["base"]

    built = first.built
    assert {"read", "align", "represent", "cluster", "seal"} <= set(built.seconds)
    assert built.kept == len(store) == built.statistics["pairs"]
    assert built.bytes == store.manifest.size
    assert store.manifest.settings["cluster_size"] == 16
    assert first.overlaps["test"]["segments"] == 8
    assert first.overlaps["test"]["exact"] >= 2
    seen = overlaps(store, [segment.source for segment in segments])
    new = [number for number in range(8) if number not in {*seen.exact, *seen.near}]
    alone = bleu([texts["knn"][n] for n in new], [references[n] for n in new]).value
    assert first.systems["knn"].unseen == pytest.approx(alone)


def test_a_second_run_makes_nothing_again(
    done: tuple[Path, Results], data: Path, written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, results = done

    def forbidden(*given: object, **named: object) -> None:
        raise AssertionError("made again")

    with monkeypatch.context() as patch:
        for owner, name in ((run, "tune"), (run, "compare"), (run, "overlaps"), (building, "build")):
            patch.setattr(owner, name, forbidden)
        patch.setattr(BatchSearch, "run", forbidden)
        again = reproduce(Config.load(written), data, out, device="cpu", jobs=1)
    assert again.domains == results.domains

    gone = out / "one" / "translations" / "knn.txt"
    before = gone.read_bytes()
    gone.unlink()
    made: list[Translator] = []
    original = Translator.stream

    def counted(self: Translator, *given: Any, **named: Any) -> Any:
        made.append(self)
        return original(self, *given, **named)

    monkeypatch.setattr(Translator, "stream", counted)
    monkeypatch.setattr(run, "tune", forbidden)
    reproduce(Config.load(written), data, out, device="cpu", jobs=1)
    assert len(made) == 1
    assert gone.read_bytes() == before


def test_an_interrupted_run_goes_on(
    done: tuple[Path, Results], data: Path, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = changed(written, domains=[Config.load(written).domains[0].model_dump(mode="json")])
    made: list[str] = []

    def stopped(model: Any, store: Any, dev: Any, system: str, **options: Any) -> Any:
        if len(made) == 1:
            raise KeyboardInterrupt
        made.append(system)
        return tune(model, store, dev, system, **options)

    with monkeypatch.context() as patch:
        patch.setattr(run, "tune", stopped)
        with pytest.raises(KeyboardInterrupt):
            reproduce(config, data, tmp_path / "new", device="cpu", jobs=1)
    assert not (tmp_path / "new" / "results.json").exists()
    assert (tmp_path / "new" / "one" / "translations" / "knn.txt").exists()

    def counted(model: Any, store: Any, dev: Any, system: str, **options: Any) -> Any:
        made.append(system)
        return tune(model, store, dev, system, **options)

    monkeypatch.setattr(run, "tune", counted)
    stages: dict[str, int] = {}
    found = reproduce(
        config, data, tmp_path / "new", device="cpu", jobs=2,
        progress=lambda stage, done, total: stages.update({stage: stages.get(stage, 0) + done}),
    )  # fmt: skip
    assert made == ["knn", "faster", "faster"]
    assert stages["one: translate faster"] == 8
    assert "one: translate knn" not in stages
    whole, alone = done[1].domains[0], found.domains[0]
    for name, one in whole.systems.items():  # as if it had never been stopped
        assert alone.systems[name].metrics == one.metrics
    assert alone.built.counts == whole.built.counts


def test_another_config_makes_what_depends_on_it(
    done: tuple[Path, Results], data: Path, written: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "copy"
    shutil.copytree(done[0], out)
    with pytest.raises(UsageError, match=r"one/store was made of other texts.*other settings: choose another folder"):
        reproduce(changed(written, build__cluster_size=8), data, out, device="cpu", jobs=1)
    with pytest.raises(UsageError, match="was made of other texts"):
        reproduce(changed(written, seed=2), data, out, device="cpu", jobs=1)
    monkeypatch.setattr(run, "tune", lambda *given, **named: pytest.fail("tuned again"))
    found = reproduce(changed(written, translate__segments=5), data, out, device="cpu", jobs=1)
    assert found.domains[0].systems["knn"].translated.segments == 5
    assert found.digest != done[1].digest
    (out / "one" / "scores.json").write_text("{")
    with pytest.raises(DataError, match=r"scores.json is corrupt.*remove it"):
        reproduce(changed(written, translate__segments=5), data, out, device="cpu", jobs=1)


def test_quantized_keys_count_as_they_are_kept(data: Path, written: Path, tmp_path: Path) -> None:
    config = changed(written, build__keys="pq", build__systems=["knn", "faster"], resamples=2,
                     domains=[Config.load(written).domains[0].model_dump(mode="json")])  # fmt: skip
    found = reproduce(config, data, tmp_path / "new", device="cpu", jobs=1).domains[0]
    files = read_manifest(tmp_path / "new" / "one" / "store").parts[0].files
    kept = ("target_ids", "target_codes", "target_codebooks", "target_norms")
    assert found.systems["knn"].bytes == sum(files[f"{name}.npy"].size for name in kept)


BARE = """
import sys
from importlib.machinery import PathFinder

there, missing = PathFinder.find_spec, "typer rich numba matplotlib faiss polib py3langid sacremoses".split()

def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in missing else there(name, path, target)

PathFinder.find_spec = find_spec
from pathlib import Path
import torch
from knnmt.lab.reproduce import Config, reproduce
torch.set_num_threads(1)
found = reproduce(Config.load(Path(sys.argv[1])), Path(sys.argv[2]), Path(sys.argv[3]), device="cpu", jobs=1)
assert found.domains[0].built.dropped == {}
"""


def test_torch_and_little_else_is_enough_where_links_are_given(data: Path, written: Path, tmp_path: Path) -> None:
    count = len((data / "one" / "train.tsv").read_text(encoding="utf-8").splitlines())
    (tmp_path / "links").write_text("0-0\n" * count)
    first = CONFIG[: CONFIG.rindex("[[domains]]")].replace(
        'train = "one', f'alignments = "{tmp_path}/links"\ntrain = "one'
    )
    (tmp_path / "bare.toml").write_text(first.format(model=Config.load(written).model), encoding="utf-8")
    arguments = [str(path) for path in (tmp_path / "bare.toml", data, tmp_path / "out")]
    subprocess.run([sys.executable, "-c", BARE, *arguments], check=True, timeout=120)
    assert list(Results.load(tmp_path / "out").domains[0].systems) == ["base", *RUNS]


def test_missing_texts_are_refused_before_any_work(data: Path, written: Path, tmp_path: Path) -> None:
    domain = Config.load(written).domains[0].model_dump(mode="json", exclude_unset=True)
    for part in ("train", "dev", "test"):
        with pytest.raises(UsageError, match=r"one: .*none\.tsv: no such file"):
            reproduce(changed(written, domains=[domain | {part: "none.tsv"}]), data, tmp_path / "new", device="cpu")
    with pytest.raises(UsageError, match="links: no such file"):
        reproduce(changed(written, domains=[domain | {"alignments": "links"}]), data, tmp_path / "new", device="cpu")
    assert not (tmp_path / "new").exists()
    (tmp_path / "empty.tsv").write_text("")
    with pytest.raises(DataError, match="nothing to translate"):
        reproduce(
            changed(written, domains=[domain | {"test": str(tmp_path / "empty.tsv")}]), data, tmp_path, device="cpu"
        )


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("[tune]", "[tunes]", ["tunes", "is no setting"]),
        ("decoded = 1", "decodes = 1", ["tune.decodes", "is no setting: there are segments, decoded"]),
        ("cluster_size = 16", "cluster_size = 0", ["build.cluster_size", "greater than or equal to 1"]),
        ("cluster_size = 16", "cluster_size = 16\nseed = 3", ["build.seed", "at the top"]),
        ("cluster_size = 16", 'systems = ["knn"]', ["without what faster needs", "build.systems"]),
        ('"knn", "faster", ', '"knn", "quickest", ', ["systems.1", "no system 'quickest'", "faster"]),
        ('"knn", "faster", ', '"base", "faster", ', ["systems.0", "base is always included"]),
        ('"knn", "faster", ', '"faster", "faster", ', ["the system 'faster' is named twice"]),
        ('systems = ["faster"]', 'systems = ["fast"]', ["the domain two asks for 'fast'"]),
        ('name = "two"', 'name = "two"\nbuild = { cluster_size = 0 }', ["domains.1.build", "cluster_size", "greater"]),
        ('name = "two"', 'name = "two"\nbuild = { seed = 2 }', ["build.seed", "at the top"]),
        ('name = "two"', 'name = "two"\nbuild = { systems = ["knn"] }', ["store of two", "without what faster needs"]),
        ('name = "two"', 'name = "../two"', ["domains.1.name", "pattern"]),
        ('name = "two"', 'name = "one"', ["the domain 'one' is named twice"]),
        ('"de-en"', '"german"', ["languages", "no language pair"]),
        ('dev = "two/dev.tsv"', "", ["domains.1.dev", "is needed"]),
        ('title = "Tiny"', "title =", ["is not TOML"]),
    ],
)  # fmt: skip
def test_a_wrong_config_is_refused_by_name(written: Path, tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    text = written.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "wrong.toml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        Config.load(path)
    for word in (str(path), *words):
        assert word in str(caught.value)


def test_a_domain_can_be_built_in_another_way(written: Path) -> None:
    one, two = Config.load(written).domains
    config = changed(written, domains=[one.model_dump(), two.model_dump() | {"build": {"prototype_size": 3}}])
    assert [config.building(domain).prototype_size for domain in config.domains] == [16, 3]
    assert {config.building(domain).cluster_size for domain in config.domains} == {16}  # all else is as for the others


def test_committed_configs_are_sound() -> None:
    folder = Path(__file__).parents[2] / "configs"
    domains, paper = (Config.load(folder / f"{name}.toml") for name in ("domains", "paper"))
    assert [domain.name for domain in domains.domains] == ["koran", "it", "subtitles", "bible"]
    assert {run.system for run in domains.systems} == set(SYSTEMS)
    assert "stands in for Medical" in domains.note
    assert list(dict.fromkeys(d.variant_of for d in paper.domains)) == ["medical", "it", "koran", "subtitles", "wmt19"]
    faster = {domain.name: domain for domain in paper.domains}["wmt19-m2048"]
    built = paper.building(faster)
    assert (built.cluster_size, built.split_clusters, built.keys, built.align.cover) == (2048, False, "pq", False)
    assert built.k_max is None
    assert built.metric == "euclidean"
    assert built.clean is not None
    assert (built.clean.max_tokens, built.clean.max_ratio, built.clean.ratio_from) == (250, 1.5, 1)
    assert [run.retrieval.k for run in paper.runs(faster)][:2] == [16, None]
    for path in folder.glob("*.toml"):
        assert Config.load(path).domains
    assert BuildSettings().seed == 1


def test_scores_are_those_of_the_plain_test() -> None:
    references = [f"the dog number {n} runs home and sleeps" for n in range(130)]
    systems = {
        "a": [text.replace("dog", "cat") for text in references],
        "b": [text if n % 3 else "a cat" for n, text in enumerate(references)],
        "c": [text.replace("dog", "cat") for text in references],
    }
    for jobs in (1, 2):
        found = compare(systems, references, ["a", "b"], resamples=50, jobs=jobs)
        plain = {first: evaluate({first: systems[first]} | systems, references, resamples=50) for first in "ab"}
        for first, other in (("a", "b"), ("a", "c"), ("b", "a"), ("b", "c")):
            assert [s.p[first] for s in found[other]] == [s.p for s in plain[first][other]]
            assert [s.value for s in found[other]] == [s.value for s in plain[first][other]]
        assert [s.p["a"] for s in found["c"]] == [1.0] * 3
        assert "a" not in found["a"][0].p
    with pytest.raises(DataError, match="d has 1 lines and the references have 130"):
        compare({"d": ["one"]}, references, ["d"])


def test_the_commands(done: tuple[Path, Results], data: Path, written: Path, tmp_path: Path) -> None:
    out = done[0]
    options = ("--data", data, "--out", out, "--device", "cpu")
    shown = fine(knnmt("reproduce", written, *options))
    base, knn = (done[1].domains[0].systems[name].value("BLEU") for name in ("base", "knn"))
    assert f"{base:.1f}" in shown
    assert f"{knn:.1f} ({knn - base:+.1f})" in shown
    assert (out / "report" / "report.html").exists()
    assert json.loads(fine(knnmt("reproduce", written, *options, "--no-report", "--json")))["title"] == "Tiny"
    told = json.loads(fine(knnmt("report", out, "--out", tmp_path / "again", "--json")))
    assert {"report.html", "tables.md", "quality-size.png"} <= set(told["files"])
    refused(knnmt("reproduce", tmp_path / "none.toml", *options), 2, "none.toml", "No such file")
    refused(knnmt("reproduce", written, "-d", tmp_path / "none", "-o", out), 2, "none is not a folder", "--data")
    refused(knnmt("report", tmp_path, "-o", tmp_path / "x"), 2, "results.json", "knnmt reproduce")
    (tmp_path / "results.json").write_text("{}")
    refused(knnmt("report", tmp_path, "-o", tmp_path / "x"), 1, "is not a results file of `knnmt reproduce`")


def test_a_system_is_run_with_settings_that_are_not_searched_for(written: Path, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    run_ = {"name": "knn-index", "system": "knn", "retrieval": {"index": True, "nprobe": 3}}
    content = Config.load(written).model_dump(mode="json") | {"systems": [run_]}
    content["domains"] = [content["domains"][0]]
    content["build"] = {"cluster_size": 16, "clean": {"check_language": False}}
    with pytest.raises(ValueError, match=r"built without the index that knn-index needs: set build\.index"):
        Config.model_validate(content)
    content["build"]["index"] = True
    found = reproduce(Config.model_validate(content), data, tmp_path / "out", device="cpu", jobs=1)
    tuned = found.domains[0].systems["knn-index"].tuned
    assert tuned is not None
    assert (tuned.settings["index"], tuned.settings["nprobe"]) == (True, 3)


def test_a_system_run_alone_is_what_it_is_among_others(
    done: tuple[Path, Results], data: Path, written: Path, tmp_path: Path
) -> None:
    _, whole = done
    alone = reproduce(Config.load(written), data, tmp_path, device="cpu", jobs=1, only=["one"], systems=["faster"])
    assert alone.config == whole.config
    assert list(alone.domains[0].systems) == ["base", "faster"]
    assert set(Datastore.open(tmp_path / "one" / "store").manifest.settings["systems"]) == {"faster"}
    found, known = alone.domains[0].systems["faster"], whole.domains[0].systems["faster"]
    assert [score.value for score in found.metrics] == [score.value for score in known.metrics]
    assert found.bytes == known.bytes
    with pytest.raises(UsageError, match="no system 'fast' among knn, faster, faster-constant"):
        reproduce(Config.load(written), data, tmp_path, device="cpu", systems=["fast"])

    newer = found.model_copy(update={"bytes": 1})
    domain = alone.domains[0].model_copy(update={"systems": {"faster": newer}})
    both = updated(whole, alone.model_copy(update={"domains": [domain]}))
    assert [one.name for one in both.domains] == ["one", "two"]
    assert list(both.domains[0].systems) == ["base", *RUNS]
    assert both.domains[0].systems["faster"].bytes == 1
    assert both.domains[0].systems["knn"] == whole.domains[0].systems["knn"]
    assert both.domains[1] == whole.domains[1]
