"""The paper's tables and claims beside results, and the pictures of them, from made-up figures."""

from pathlib import Path
from typing import Any

import pytest

from knnmt.lab.report import Bench, claims, lost, paper, report, tables, worth
from knnmt.lab.reproduce.results import Choices, Decomposition, Kept, Results, Varied

from .examples import results, speed

KEPT = {"knn": 1.0, "fast": 0.9, "fast-clustered": 0.8, "faster-exact": 0.4, "faster": 0.1, "best cluster": 1.2}


def lost_by(factor: float) -> Decomposition:
    """A decomposition in which kNN-MT gains `factor` nats a token."""
    kept = {
        name: Kept(weight=0.5, gain=factor * share, by_certainty=[factor * share, 0.0, 0.0, 0.0, 0.0], right=share / 2)
        for name, share in KEPT.items()
    }
    choices = Choices(chosen=0.57, any=0.95, richest_first=0.34, richest_among={"1": 0.34, "2": 0.45, "4": 0.6})
    bounds = (0.001, 0.01, 0.1, 0.5)
    return Decomposition(digest="1", segments=9, tokens=1234, choices=choices, bounds=bounds, kept=kept)


def whole() -> Results:
    """Four domains with everything."""
    found = results()
    varied = [Varied(system="fast", setting=s, value=v, bleu=12.0 + v) for s in ("k", "weight") for v in (0.25, 0.5)]
    domains = [
        domain.model_copy(update={"decomposition": lost_by(1.0 + place), "varied": varied})
        for place, domain in enumerate(found.domains)
    ]
    asked = [{"name": domain.name, "train": [f"{domain.name}/train"]} for domain in domains]
    return found.model_copy(update={"domains": domains, "config": found.config | {"domains": asked}})


def variant(of: Results, name: str, systems: dict[str, str], **asked: Any) -> Results:
    """An experiment with another store for each domain, and systems under other names."""
    domains, configs = [], []
    for domain in of.domains:
        own = {new: domain.systems[old] for new, old in systems.items()}
        built = domain.built.model_copy(update={"kept": 100})
        changed = {"name": f"{domain.name}-{name}", "systems": own, "built": built, "decomposition": None, "varied": []}
        domains.append(domain.model_copy(update=changed))
        configs.append({"name": f"{domain.name}-{name}", "variant_of": domain.name, **asked})
    config = of.config | {"domains": configs}
    return of.model_copy(update={"title": name, "config": config, "domains": domains})


def test_the_papers_tables_stand_beside_ours() -> None:
    one = whole()
    published = variant(one, "m2048", {"base": "base", "faster-published": "faster"}, train=["koran/train"])
    found = paper.sections([one, published])["The paper's tables"]
    texts, by_domain, ablations = (table.rows for table in found)
    assert texts[0][:2] == ["", "Medical, paper"]
    assert "17,560" in texts[1]
    lines = {row[0]: row[1:] for row in by_domain}
    assert lines["paper: faster"][:2] == ["20.4 (+4.1)", "44.9 (+6.9)"]
    assert lines["paper: faster"][-1] == "89%"
    assert lines["mini-de-en: knn"][-1] == "100%"
    assert lines["mini-de-en: faster-published"] == lines["mini-de-en: faster"]
    assert {row[0]: row[1] for row in ablations}["faster-exact"] == "+1.9"


def test_a_claim_is_judged_by_what_was_measured() -> None:
    one = whole()
    memory = Bench("memory", [], [], {}, [
        {"system": name, "memory": 1, "batch_size": size, "peak": 1, "per_second": 1.0, "next_peak": None}
        for name, size in (("base", 64), ("faster", 32), ("fast", 8))
    ])  # fmt: skip
    rows = claims.section([one], [speed("k", [8, 64, 512]), memory])["The paper's claims"][0].rows
    verdicts = {row[0]: row[1:] for row in rows}
    kept = verdicts["Faster preserves kNN-MT's quality: share of the mean gain kept (Table 3)"]
    assert kept[0] == "89%"
    assert kept[2] == claims.MISSED
    assert verdicts["Fast kNN-MT is as good as kNN-MT: share of the mean gain kept (Table 3)"][2] == claims.HELD
    chosen = next(row for text, row in verdicts.items() if text.startswith("Neighbours come from"))
    assert chosen[1:] == ["mini-de-en 60%", claims.MISSED]
    assert verdicts["So it allows a larger batch in the same memory"][1:] == [
        "CPU base 64, faster 32, fast 8", claims.HELD,
    ]  # fmt: skip
    length = verdicts["Faster does not slow down with the length of the source"]
    assert length[1:] == ["–", claims.OPEN]
    assert verdicts["kNN-MT is two orders of magnitude slower than base MT"][2] == claims.MISSED


def test_a_claim_that_holds_on_one_machine_alone_holds_in_part() -> None:
    here, there = speed("k", [8, 64, 512]), speed("k", [8, 64, 512])
    slow = [row | {"ratio": row["ratio"] and dict.fromkeys(row["ratio"], 9.0)} for row in there.speed]
    other = Bench("slow", slow, [], {"device": "cuda:0"})
    one, both = ({row[0]: row[1:] for row in claims.section([whole()], some)["The paper's claims"][0].rows}
                 for some in ([here], [here, other]))  # fmt: skip
    text = "Faster takes 1.2 times base MT's time"
    assert one[text][1].startswith("CPU")
    assert both[text][1].startswith("GPU 9.00; CPU")
    assert (one[text][2], both[text][2]) == (claims.HELD, claims.PARTLY)


def test_losses_are_shares_of_what_knn_gains() -> None:
    held, kept, certain = (table.rows for table in paper.losses(whole()))
    assert held[1][1:] == ["57%"] * 4
    assert {row[0]: row[-1] for row in kept}["faster"] == "10%"
    assert {row[0]: row[1:] for row in certain}["faster-exact"] == ["40%", "–", "–", "–", "–"]


def test_samples_of_a_text_make_a_curve() -> None:
    one = whole()
    sample = variant(one, "100", {"base": "base", "knn": "knn"}, train=["a/sample"])
    other = variant(one, "m8", {"base": "base", "knn": "knn"})  # of the same texts
    other = other.model_copy(
        update={"config": other.config | {"domains": [
            {"name": d.name, "variant_of": d.name.removesuffix("-m8"), "train": [f"{d.name.removesuffix('-m8')}/train"]}
            for d in other.domains
        ]}}
    )  # fmt: skip
    found = worth.found([one, sample, other])["mini-de-en"]
    assert sorted({point.segments for point in found["Koran"]}) == [100, 17560]
    cleaned = variant(one, "cleaned", {"base": "base", "faster-cleaned": "faster"}, train=["a/clean"])
    assert list(worth.found([cleaned, one, sample])["mini-de-en"].items()) == list(found.items())
    rows = worth.tables([one, sample])["Stores of N segments, mini-de-en"][0].rows
    assert rows[0] == ["segments", "100", "17,560"]
    assert not worth.found([one])


@pytest.mark.usefixtures("vectors_alone")
@pytest.mark.parametrize("models", [1, 2])
def test_the_pictures_are_drawn(models: int, tmp_path: Path) -> None:
    one = whole()
    every = [one, variant(one, "100", {"base": "base", "knn": "knn", "similar": "proto"}, train=["a/sample"])]
    if models == 2:
        every.append(one.model_copy(update={"config": one.config | {"model": "/somewhere/base-de-en"}}))
    report(every, [], tmp_path)
    names = {path.stem for path in tmp_path.glob("*.svg")}
    assert {"lost", "settings", "worth"} <= names
    assert ("lost-2" in names) == (models == 2)
    text = (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert "The paper's claims" in text
    assert "/somewhere" not in text
    if models == 2:
        assert tables.titles(every)[0] == "Four domains, German to English, mini-de-en"
    assert lost.plots([results()])


@pytest.mark.usefixtures("vectors_alone")
def test_times_of_a_busy_machine_are_not_told(tmp_path: Path) -> None:
    one = results()
    busy = one.model_copy(update={"machine": one.machine | {"load": 11.3}})
    assert "time, × base" in tables.markdown(tables.sections([one], []))
    assert "time, × base" not in tables.markdown(tables.sections([busy], []))
    report([busy], [], tmp_path)
    assert not {"quality-speed", "build-time"} & {path.stem for path in tmp_path.glob("*.svg")}
