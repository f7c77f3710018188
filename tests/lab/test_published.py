"""The published choices as settings of a config, a translation memory as yardstick, and where Faster loses."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt.build.settings import BuildSettings
from knnmt.corpus import Segment
from knnmt.datastore import Datastore
from knnmt.errors import UsageError
from knnmt.evaluate import bleu
from knnmt.lab.reproduce import Config, Results, memory, reproduce
from knnmt.lab.reproduce.results import joined, updated
from knnmt.model.checkpoint import load
from knnmt.retrieval.session import Retriever
from knnmt.retrieval.tuned import Tuned
from knnmt.systems.faster import near_clusters
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Source
from knnmt.systems.view import Arrays
from knnmt.tune.references import show

from ..build.examples import parallel_text
from .experiments import quick

CONFIG = """
title = "Tiny"
model = "{model}"
languages = "de-en"
systems = [
    "tm", "knn", "faster",
    {{ name = "faster-whole", system = "faster", adapt = ["constant"], retrieval = {{ k = "all" }} }},
]
metrics = ["BLEU"]
resamples = 10
decompose = 4

[build]
cluster_size = 3
split_clusters = false
k_max = "all"
clean = {{ check_language = false }}
align = {{ cover = false }}

[tune]
segments = 4
decoded = 1
adapt = ["distance"]

[translate]
segments = 4
beam = 1

[vary]
systems = ["faster"]
k = [1, 100000]
temperature = [1, 4]
weight = [0.2]

[[variants]]
name = "plain"

[[variants]]
name = "small"
title = "a sample"
train = "{{domain}}/sample.tsv"
systems = ["knn"]
build = {{ systems = ["knn"] }}

[[domains]]
name = "one"
title = "The first"
train = "one/train.tsv"
dev = "one/dev.tsv"
test = "one/test.tsv"
"""


@pytest.fixture(autouse=True, scope="module")
def fast_enough() -> Iterator[None]:
    with quick(TEMPERATURES=(1 / 40,), MAX_WEIGHTS=(0.5,), CONSTANT_WEIGHTS=(0.5,), K=(1, 8)):
        yield


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A domain; a test segment stands in train, another one nearly."""
    folder = tmp_path_factory.mktemp("data") / "one"
    folder.mkdir()
    for seed, (part, count) in enumerate((("train", 50), ("dev", 10), ("test", 8), ("sample", 12))):
        parallel_text(folder / f"{part}.tsv", count, seed=seed)
    train = (folder / "train.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    long = max(train, key=lambda line: len(line.split("\t")[0].split()))
    source, target = long.split("\t")[:2]
    for part in ("dev", "test"):
        lines = (folder / f"{part}.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
        near = f"{' '.join(source.split()[:-1])} anders\t{target}\n"
        (folder / f"{part}.tsv").write_text("".join([long, near, *lines[2:]]), encoding="utf-8")
    return folder.parent


@pytest.fixture(scope="module")
def config(model_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Config:
    path = tmp_path_factory.mktemp("config") / "tiny.toml"
    path.write_text(CONFIG.format(model=model_folder("marian")), encoding="utf-8")
    return Config.load(path)


@pytest.fixture(scope="module")
def done(config: Config, data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Results]:
    """The variant with everything; its folder and its results."""
    out = tmp_path_factory.mktemp("done")
    return out, reproduce(config, data, out, device="cpu", only=["one-plain"], jobs=1)


def test_every_domain_has_every_variant(config: Config) -> None:
    plain, small = config.domains
    assert (plain.name, plain.title, plain.variant_of) == ("one-plain", "The first, plain", "one")
    assert (small.name, small.title, small.train) == ("one-small", "The first, a sample", ("one/sample.tsv",))
    assert config.building(plain).split_clusters is False
    assert config.building(small).systems == ("knn",)
    assert [run.name for run in config.runs(small)] == ["knn"]


def test_all_is_how_a_file_says_that_there_is_no_limit() -> None:
    assert RetrievalSettings(k="all").k is None  # type: ignore[arg-type]
    assert BuildSettings(k_max="all").k_max is None  # type: ignore[arg-type]


def test_a_type_has_as_many_clusters_as_the_paper_gives_it(done: tuple[Path, Results]) -> None:
    store = Datastore.open(done[0] / "one-plain" / "store")
    (part,) = store.parts
    sizes, clusters = np.diff(part["type_offsets"]), np.diff(part["cluster_offsets"])
    wanted = -(-sizes // 3)
    assert (clusters <= wanted).all()  # fewer only where states are equal
    assert clusters.sum() > 0.9 * wanted.sum()
    assert np.diff(part["cluster_starts"]).max() > 6  # of which some would be split again


def test_the_whole_cluster_is_one_more_k(done: tuple[Path, Results]) -> None:
    out, results = done
    settings = {name: one.tuned.settings for name, one in results.domains[0].systems.items() if one.tuned is not None}
    assert settings["faster-whole"]["k"] is None
    assert settings["faster"]["k"] in (1, 8)
    assert Tuned.load(out / "one-plain" / "settings" / "faster-whole.json").settings.k is None


def test_a_memory_gives_the_best_match_or_base_mt(done: tuple[Path, Results], data: Path) -> None:
    out, results = done
    domain = results.domains[0]
    folder = out / "one-plain"
    base = (folder / "translations" / "base.txt").read_text("utf-8").splitlines()
    found = memory.Matches.model_validate_json((folder / "matches.json").read_bytes())
    tuned = domain.systems["tm"].tuned
    assert tuned is not None
    exact, near, *_ = found.test
    assert exact is not None
    assert exact.score == 1.0
    assert near is not None
    assert 0.7 < near.score < 1.0
    lines = [line.split("\t") for line in (data / "one" / "test.tsv").read_text("utf-8").splitlines()]
    assert exact.target == near.target == lines[0][1].strip()
    assert memory.filled(base, found.test, None) == base
    assert memory.filled(base, found.test, 1.0) == [exact.target, *base[1:]]
    assert memory.filled(base, found.test, 0.7)[:2] == [exact.target, near.target]
    # dev has the same two: what they say is what the references say, so that a threshold below both is best
    assert tuned.settings["threshold"] <= near.score
    assert tuned.bleu > tuned.base_bleu
    texts = memory.filled(base, found.test, tuned.settings["threshold"])
    references = [line[1].strip() for line in lines[:4]]
    assert domain.systems["tm"].value("BLEU") == pytest.approx(bleu(texts, references).value)
    assert domain.systems["tm"].bytes == 0


def test_a_memory_of_segments_is_searched_as_a_store_is(done: tuple[Path, Results]) -> None:
    segments = [Segment("Ein  Haus", "A house"), Segment("Ein Hund", "A dog"), Segment("Ein Hund", "One dog")]
    found = memory.Memory(segments)
    assert [each.segment.target for each in found.matches("Ein Hund")] == ["A dog", "One dog"]
    assert [each.segment.target for each in found.matches("Ein Haus")] == ["A house"]
    assert not found.matches("Eine Katze")


def test_settings_are_varied_one_by_one(done: tuple[Path, Results]) -> None:
    points = done[1].domains[0].varied
    assert [(point.setting, point.value) for point in points] == [
        ("k", 1.0), ("temperature", 1.0), ("temperature", 4.0), ("weight", 0.2),
    ]  # fmt: skip
    tuned = done[1].domains[0].systems["faster"].tuned
    assert tuned is not None
    assert points[1].bleu == pytest.approx(tuned.bleu)  # the tuned temperature itself


def test_what_clusters_hold_is_what_counting_says(done: tuple[Path, Results], config: Config, data: Path) -> None:
    out, results = done
    found = results.domains[0].decomposition
    assert found is not None
    store = Datastore.open(out / "one-plain" / "store")
    model = load(config.model, device="cpu", langs="de-en")
    lines = (data / "one" / "dev.tsv").read_text("utf-8").splitlines()[4:8]
    dev = [Segment(*line.split("\t")[:2]) for line in lines]
    tuned = Tuned.load(out / "one-plain" / "settings" / "faster.json")
    (part,) = store.parts
    retriever = Retriever(store, torch.device("cpu"), tuned.settings)
    chosen, any_, first, total, right = 0, 0, 0, 0, 0.0
    with torch.inference_mode():
        for some in show(model, retriever, dev):
            clusters = near_clusters(retriever.live.view, Source(*some.source), "ranking")
            near = some.look.lookup.neighbours(some.query)
            for b, t in some.there.nonzero().tolist():
                gold, state = int(some.wanted[b, t]), some.query[b, t].numpy()
                own = [int(cluster) for cluster in clusters[b] if cluster >= 0]
                holds = [_members(part, cluster) for cluster in own]
                squares = [np.square(part["cluster_target"][c].astype(np.float64) - state).sum() for c in own]
                shares = [float(np.mean([token == gold for token in tokens])) for tokens in holds]
                nearest = int(np.argmin(squares))
                total += 1
                chosen += shares[nearest] > 0
                any_ += max(shares) > 0
                first += max(shares) > 0 and shares[nearest] == max(shares)
                p = {int(v): math.exp(float(x)) for v, x in zip(near.tokens[b, t], near.log_p[b, t], strict=True)}
                right += p.get(gold, 0.0)
    assert found.tokens == total
    assert found.choices.chosen == pytest.approx(chosen / total)
    assert found.choices.any == pytest.approx(any_ / total)
    assert found.choices.richest_first == pytest.approx(first / total)
    assert found.choices.richest_among["1"] == pytest.approx(found.choices.richest_first)
    assert {"knn", "faster", "best cluster", "by p_MT", "all clusters", "all clusters and p_MT"} <= set(found.kept)
    for one in found.kept.values():
        assert sum(one.by_certainty) == pytest.approx(one.gain, abs=1e-4)
    assert found.kept["best cluster"].right >= found.kept["faster"].right


def _members(part: Arrays, cluster: int) -> list[int]:
    """The target tokens of a cluster's entries, each entry once."""
    array = part.__getitem__
    rows = array("cluster_members")[slice(*array("cluster_starts")[cluster : cluster + 2])]
    bounds = [array("link_offsets")[row : row + 2] for row in rows]
    entries = {int(entry) for begin, end in bounds for entry in array("link_entries")[begin:end]}
    return [int(array("target_ids")[entry]) for entry in entries]


def test_pieces_of_an_experiment_are_put_together(
    done: tuple[Path, Results], config: Config, data: Path, tmp_path: Path
) -> None:
    other = reproduce(config, data, tmp_path, device="cpu", only=["one-small"], jobs=1)
    (whole,) = joined([other, done[1]])
    assert [domain.name for domain in whole.domains] == ["one-plain", "one-small"]
    assert len(joined([other.model_copy(update={"config": {}}), done[1]])) == 2  # of another experiment
    assert len(joined([done[1], done[1]])) == 2
    with pytest.raises(UsageError, match="no domain 'two'"):
        reproduce(config, data, tmp_path, device="cpu", only=["two"])


def test_where_faster_loses_can_be_asked_again_for_faster_alone(
    done: tuple[Path, Results], config: Config, data: Path, tmp_path: Path
) -> None:
    alone = reproduce(
        config, data, tmp_path, device="cpu", only=["one-plain"], systems=["faster"], varied=False, jobs=1
    )
    found, before = alone.domains[0].decomposition, done[1].domains[0].decomposition
    assert found is not None
    assert before is not None
    assert alone.domains[0].varied == []
    assert found.choices == before.choices
    assert "knn" not in found.kept
    both = updated(done[1], alone).domains[0]
    assert both.varied == done[1].domains[0].varied
    assert both.decomposition is not None
    assert both.decomposition.kept.keys() == before.kept.keys()
    assert both.decomposition.kept["faster"].gain == pytest.approx(before.kept["faster"].gain)
