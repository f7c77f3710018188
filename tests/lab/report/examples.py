"""Made-up results of the size and shape of real ones."""

from typing import Any

from knnmt.lab.report import Bench
from knnmt.lab.reproduce.results import (
    Built,
    DomainResults,
    Metric,
    Results,
    SystemResults,
    Translated,
    TunedResult,
)

# BLEU, seconds for 2,000 segments, megabytes opened
FIGURES: dict[str, dict[str, tuple[float, float, float]]] = {
    "Koran": {
        "base": (5.81, 41.3, 0), "knn": (14.22, 118.4, 716.9), "knn-constant": (13.53, 117.9, 716.9),
        "fast": (13.67, 61.7, 1402.3), "fast-clustered": (11.91, 74.9, 731.2), "faster": (8.43, 43.9, 21.4),
        "faster-constant": (6.34, 43.7, 21.4), "faster-exact": (7.64, 55.1, 735.5),
        "proto": (12.48, 50.3, 141.7),
    },
    "IT": {
        "base": (11.32, 22.1, 0), "knn": (18.52, 131.2, 2105.4), "knn-constant": (17.61, 130.8, 2105.4),
        "fast": (17.94, 31.9, 4178.1), "fast-clustered": (16.27, 39.8, 2151.0), "faster": (12.23, 23.4, 58.6),
        "faster-constant": (11.98, 23.3, 58.6), "faster-exact": (13.87, 29.7, 2163.9),
        "proto": (16.61, 26.8, 402.5),
    },
    "Subtitles": {
        "base": (17.62, 14.9, 0), "knn": (18.71, 33.0, 312.7), "knn-constant": (18.44, 32.8, 312.7),
        "fast": (18.63, 20.6, 611.3), "fast-clustered": (18.21, 24.1, 320.4), "faster": (17.83, 15.7, 9.8),
        "faster-constant": (17.71, 15.8, 9.8), "faster-exact": (17.94, 19.0, 323.6),
        "proto": (18.34, 17.7, 58.9),
    },
    "Bible (for Medical)": {
        "base": (8.14, 30.2, 0), "knn": (21.37, 108.6, 905.2), "knn-constant": (20.16, 107.3, 905.2),
        "fast": (20.88, 46.0, 1781.6), "fast-clustered": (17.41, 55.3, 922.8), "faster": (11.26, 32.0, 26.9),
        "faster-constant": (9.37, 31.9, 26.9), "faster-exact": (12.75, 40.4, 928.4),
        "proto": (19.02, 37.1, 190.4),
    },
}  # fmt: skip
BLEU = "nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


def results(domains: int = 4) -> Results:
    """All systems in so many domains."""
    found = [_domain(title, list(FIGURES).index(title), figures) for title, figures in FIGURES.items()]
    return Results(
        title="Four domains, German to English",
        note="mini-de-en is a small model: compare systems with each other. Bible stands in for Medical.",
        digest="0" * 32,
        config={"model": "mini-de-en"},
        machine={"processor": "Made-up 9000 @ 2.50GHz", "cores": 16, "memory": 128 << 30, "device": "cuda"},
        versions={"python": "3.11.9", "torch": "2.13.0"},
        domains=found[:domains],
    )


def _domain(title: str, number: int, figures: dict[str, tuple[float, float, float]]) -> DomainResults:
    size = 1.0 + 0.7 * number
    return DomainResults(
        name=title.split()[0].lower(),
        title=title,
        note="Stands in for Medical." if "(" in title else "",
        built=Built(
            digest="1", kept=17560 + number, dropped={"duplicate": 300, "length ratio": 78}, scale=812.4,
            seconds={"read": 4.1 * size, "align": 31.7 * size, "represent": 62.9 * size, "cluster": 18.2 * size,
                     "keys": 3.3 * size, "index": 0.01, "seal": 2.2 * size},
            counts={"segments": 17560, "entries": 623411, "tokens": 571022, "links": 801733, "clusters": 3214,
                    "ranked": 99120},
            bytes=round(1.43e9 * size),
            statistics={"pairs": 17560, "longest": 452, "mean_length": 38.21, "tokens": 685462, "types": 2872,
                        "highest_frequency": 31644, "mean_frequency": 238.67},
        ),
        overlaps={"dev": {"segments": 500, "exact": 3, "near": 19},
                  "test": {"segments": 2000, "exact": 17, "near": 63}},
        systems={name: _system(name, *found) for name, found in figures.items()},
    )  # fmt: skip


def _system(name: str, bleu: float, seconds: float, megabytes: float) -> SystemResults:
    system = name.removesuffix("-constant")
    adapt = "constant" if name != system else "distance"
    chosen = {"k": 16, "c": 64, "temperature": 20.31, "lambda": 0.6, "adapt": adapt, "reach": 406.2}
    p = {} if name == "base" else {"base": 0.001 if bleu > 8.5 else 0.21}
    p |= {} if name == "knn" else {"knn": 0.0009}
    metrics = [
        Metric(metric="BLEU", value=bleu, signature=BLEU, mean=bleu, interval=0.61, p=p),
        Metric(metric="chrF2", value=22.4 + bleu, signature="chrF", mean=22.4 + bleu, interval=0.48, p=p),
        Metric(metric="TER", value=91.7 - bleu, signature="TER", mean=91.7 - bleu, interval=0.93, p=p),
    ]
    tuned = TunedResult(
        digest="2", settings=chosen, bleu=bleu + 0.42, base_bleu=5.6, segments=500, trials=13, seconds=88.8
    )  # fmt: skip
    return SystemResults(
        system=system,
        tuned=None if name == "base" else tuned,
        translated=Translated(digest="3", segments=2000, tokens=61234, seconds=seconds),
        bytes=round(megabytes * 1e6),
        metrics=metrics,
        unseen=bleu - 0.53,
    )


# times of each system as a multiple of base MT's: at k = 1, and what each doubling of k adds
SLOPES = {"knn": (11.6, 0.06), "fast": (1.43, 0.022), "fast-clustered": (1.71, 0.025), "faster": (1.05, 0.004),
          "faster-exact": (1.27, 0.02), "proto": (1.19, 0.008)}  # fmt: skip
SPLIT = {"text": 0.31, "encode": 1.1, "select": 0.0, "decode": 9.3, "lookup": 0.0, "combine": 0.0}


def speed(axis: str, values: list[int]) -> Bench:
    """Times along an axis, as `knnmt bench` writes them."""
    rows: list[dict[str, Any]] = []
    for value in values:
        rows.append(_row("base", 1.0, {axis: value if axis not in ("k", "entries") else None}))
        for system, (start, slope) in SLOPES.items():
            rows.append(_row(system, start + slope * value.bit_length(), {axis: value}))
    return Bench(axis, rows, [], {"processor": "Made-up 9000 @ 2.50GHz", "threads": 2})


def _row(system: str, ratio: float, at: dict[str, int | None]) -> dict[str, Any]:
    base = system == "base"
    extra = 10.7 * (ratio - 1)
    split = SPLIT | {"select": 0.3 * extra, "lookup": 0.55 * extra, "combine": 0.15 * extra}
    row = {
        "system": system, "k": None if base else 16, "c": 64 if system == "fast" else None, "beam": 5, "batch_size": 32,
        "length": 24.6, "entries": None if base else 623411,
        "ratio": None if base else {"mean": ratio, "low": 0.985 * ratio, "high": 1.015 * ratio, "pairs": 10},
        "seconds": {"median": 10.7 * ratio, "low": 10.6 * ratio, "high": 10.9 * ratio}, "segments": 1000,
        "split": split,
    }  # fmt: skip
    return row | at


def growth() -> Bench:
    """Times and bytes on stores of many sizes."""
    rows = [
        {"system": system, "tokens": tokens, "batch": seconds * (tokens / 1e5) ** power, "opened": size * tokens}
        for tokens in (10**5, 10**6, 10**7, 10**8)
        for system, seconds, power, size in (
            ("knn", 0.09, 1.0, 1030), ("fast", 0.05, 0.31, 2071), ("fast-clustered", 0.07, 0.22, 1060),
            ("faster", 0.008, 0.04, 9), ("faster-exact", 0.03, 0.06, 1062), ("proto", 0.014, 0.09, 230),
        )
    ]  # fmt: skip
    return Bench("growth", [], rows, {})
