"""What the paper claims, beside what was measured here: a line for each claim, with its verdict.

A verdict is by rule: a claim of quality holds if at least `NEARLY` of what it says is there, one of speed if the ratio
is within `CLOSE` of the paper's. It is «in part» if it holds for one model, or in one benchmark, and not for another.
What cannot be told from the results at hand is «not tested».
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from knnmt.lab.report.bench import Bench
from knnmt.lab.report.paper import DOMAINS, STAND_IN, TIMES, WMT, parent, scores, share
from knnmt.lab.report.tables import ALPHA, Rows, Table, model_name
from knnmt.lab.reproduce.config import BASE, REFERENCE
from knnmt.lab.reproduce.results import Decomposition, Results

NEARLY = 0.8  # of a gain, from which it counts as kept
CLOSE = 0.25  # of a ratio of times
LITTLE = 0.5  # of BLEU
FLAT = 1.15  # growth of a time that is said not to grow
HELD, PARTLY, MISSED, OPEN = "reproduced", "reproduced in part", "not reproduced", "not tested here"
KINDS = ("GPU", "CPU")
ALONG = {
    "k": "the number k of neighbours", "c": "the number c of tokens a source token sees",
    "length": "the length of the source",
}  # fmt: skip


class Claim(NamedTuple):
    """A claim, the paper's figure for it, ours, and the verdict."""

    text: str
    paper: str
    here: str
    verdict: str


def section(results: Sequence[Results], benches: Sequence[Bench]) -> dict[str, list[Table]]:
    """All claims as a table; nothing without a whole experiment."""
    found = [*_quality(results), *_choice(results), *_speed(benches), *_space(results, benches), *_untestable()]
    if all(claim.verdict == OPEN for claim in found):
        return {}
    rows: Rows = [["the paper's claim", "paper", "here", "verdict"]]
    rule = (
        f"A gain counts as kept from {NEARLY:.0%} on, a ratio of times as the paper's within {CLOSE:.0%}, a time as "
        f"flat below {FLAT} times. Figures by model, over the domains that were run; ratios of times on one machine."
    )
    return {"The paper's claims": [Table("Claim by claim", [*rows, *map(list, found)], rule)]}


# --------------------------------------------------------------------------------------------------------- quality


def _quality(results: Sequence[Results]) -> Iterator[Claim]:
    ours = scores(results)
    names = list(DOMAINS[BASE])
    for system, told in (("fast", "Fast kNN-MT is as good as kNN-MT"), ("faster", "Faster preserves kNN-MT's quality")):
        theirs = share(DOMAINS, system, names)
        here = {model: _kept(found, system) for model, found in ours.items()}
        yield _by_model(f"{told}: share of the mean gain kept (Table 3)", f"{theirs:.0%}", here, _enough)
    yield _significant(results)
    published = {model: _kept(found, "faster-published") for model, found in ours.items()}
    yield _by_model(
        "The same with every published choice (constant λ, FastAlign's links, m = 2048, quantized keys)",
        f"{share(DOMAINS, 'faster', names):.0%}", published, _enough,
    )  # fmt: skip
    for one, other, told in (
        ("fast-clustered", "fast", "Fast with clustered source is lower than Fast (Table 2)"),
        ("faster-exact", "faster", "Cached distances cost little: Faster against Faster without them (Table 2)"),
    ):
        told_there = f"{WMT[one][0] - WMT[other][0]:+.1f}, {WMT[one][1] - WMT[other][1]:+.1f} BLEU"
        gaps = {model: _gap(found, one, other) for model, found in ours.items()}
        yield _by_model(told, told_there, gaps, _lower if other == "fast" else _little, "{:+.1f} BLEU")


def _significant(results: Sequence[Results]) -> Claim:
    """Whether Faster is above base MT in every domain."""
    shown, holds = [], []
    for one in results:
        gains = [
            next(metric for metric in domain.systems["faster"].metrics if metric.metric == "BLEU")
            for domain in one.domains
            if "faster" in domain.systems and parent(one, domain) == domain.name
        ]
        if gains:
            better = sum(gain.p.get(BASE, 1.0) < ALPHA for gain in gains)
            shown.append(f"{model_name(one)} {better} of {len(gains)}")
            holds.append(better == len(gains))
    text = f"Faster improves on base MT in every domain (Table 3; here: p < {ALPHA})"
    return Claim(text, "4 of 4", "; ".join(shown) or "–", _verdict(holds))


def _enough(kept: float) -> bool:
    return kept >= NEARLY


def _lower(gap: float) -> bool:
    return gap < 0


def _little(gap: float) -> bool:
    return gap < LITTLE


def _kept(found: Mapping[str, Mapping[str, float]], system: str) -> float | None:
    """The share of kNN-MT's mean gain, over the domains of a system."""
    return share(found, system, list(found.get(system, {}))) if system in found else None


def _gap(found: Mapping[str, Mapping[str, float]], one: str, other: str) -> float | None:
    both = [name for name in found.get(one, {}) if name in found.get(other, {})]
    return fmean(found[one][name] - found[other][name] for name in both) if both else None


def _choice(results: Sequence[Results]) -> Iterator[Claim]:
    """The assumptions behind the approximation."""
    lost: dict[str, list[Decomposition]] = {}
    for one in results:
        for domain in one.domains:
            if domain.decomposition is not None:
                lost.setdefault(model_name(one), []).append(domain.decomposition)
    chosen = {model: fmean(d.choices.chosen / d.choices.any for d in some) for model, some in lost.items()}
    yield _by_model(
        "Neighbours come from the nearest cluster: of the right tokens that the sentence's clusters hold, the chosen "
        "one holds (section 3.2)", "«works well»", chosen, _enough,
    )  # fmt: skip
    single: dict[str, list[float]] = {}
    for one in results:
        for domain in one.domains:
            if "faster-published" in domain.systems:
                types = domain.built.statistics["types"]
                single.setdefault(model_name(one), []).append(types / domain.built.counts["clusters"])
    few = {model: fmean(values) for model, values in single.items()}
    shown = "; ".join(f"{model} {1 / value:.2f}" for model, value in few.items())
    yield Claim(
        "Types are clustered: clusters a type with m = 2048", "g = f/m", shown or "–",
        OPEN if not few else HELD if max(few.values()) < 0.5 else f"{MISSED}: nearly every type has one",
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- speed


def _speed(benches: Sequence[Bench]) -> Iterator[Claim]:
    usual = [found for bench in benches if not bench.axes or "k" in bench.axes if (found := _usual(bench))]
    faster, fast, knn = ({kind: some for kind in KINDS if (some := _of(usual, name, kind))} for name in TIMES)
    yield _ratio("Faster takes 1.2 times base MT's time", TIMES["faster"], faster)
    yield _ratio("Fast takes twice base MT's time", TIMES["fast"], fast)
    yield _ratio("kNN-MT is two orders of magnitude slower than base MT", TIMES[REFERENCE], knn)
    yield _ratio(
        "Fast is two orders of magnitude faster than kNN-MT", TIMES[REFERENCE],
        {kind: some for kind in KINDS if (some := _of(usual, REFERENCE, kind, "fast"))},
    )  # fmt: skip
    orders = [found for found in usual if {"faster", "faster-exact", "fast"} <= found.times.keys()]
    yield Claim(
        "Faster is faster than Faster without cached distances, and that than Fast (figure 2)", "order",
        "; ".join(
            f"{found.name} " + ", ".join(f"{found.times[one]:.2f}" for one in ("faster", "faster-exact", "fast"))
            for found in orders
        ) or "–",
        _verdict([found.times["faster"] < found.times["faster-exact"] < found.times["fast"] for found in orders]),
    )  # fmt: skip
    yield _ratio(
        "Fast with clustered source takes as long as Fast", 1.0,
        {kind: some for kind in KINDS if (some := _of(usual, "fast-clustered", kind, "fast"))}, "«almost equal»",
    )  # fmt: skip
    yield from _growing("k", benches, {"fast": False, "faster-exact": False, "faster": True})
    yield from _growing("c", benches, {"fast": False})
    yield from _growing("length", benches, {"fast": False, "faster": True})


class Usual(NamedTuple):
    """A benchmark at its usual settings: times base MT's time by system."""

    name: str
    kind: str
    times: dict[str, float]


def _usual(bench: Bench) -> Usual | None:
    times = {row["system"]: float(row["ratio"]["mean"]) for row in bench.usual() if row["ratio"] is not None}
    return Usual(bench.name, _kind(bench), times) if times else None


def _kind(bench: Bench) -> str:
    return "GPU" if str(bench.machine.get("device", "")).startswith("cuda") else "CPU"


def _of(usual: Sequence[Usual], system: str, kind: str, over: str = BASE) -> list[float]:
    """The times of a system over those of another, one of each benchmark that has both."""
    return [
        found.times[system] / (1.0 if over == BASE else found.times[over])
        for found in usual
        if found.kind == kind and system in found.times and (over == BASE or over in found.times)
    ]


def _ratio(text: str, paper: float, here: Mapping[str, Sequence[float]], told: str = "") -> Claim:
    """A ratio of times, judged by the mean of all benchmarks on a kind of machine."""
    shown = []
    for kind, values in here.items():
        low, high = min(values), max(values)
        several = f"{low:.2f} to {high:.2f} in {len(values)} benchmarks" if len(values) > 1 else f"{low:.2f}"
        shown.append(f"{kind} {several}")
    holds = [abs(fmean(values) / paper - 1) <= CLOSE for values in here.values()]
    return Claim(text, told or f"{paper:g}", "; ".join(shown) or "–", _verdict(holds))


def _growing(axis: str, benches: Sequence[Bench], flat: Mapping[str, bool]) -> Iterator[Claim]:
    """Whether the times of systems grow along an axis, beside base MT's, in each benchmark."""
    for system, stays in flat.items():
        called = {"faster-exact": "Faster without cached distances"}.get(system, system.title())
        text = f"{called} {'does not slow' if stays else 'slows'} down with {ALONG[axis]}"
        shown, holds = [], []
        for bench in benches:
            rows = [row for row in bench.along(axis) if row["system"] == system and row["ratio"] is not None]
            times = {float(row[axis]): float(row["ratio"]["mean"]) for row in rows}
            if len(times) > 1:
                first, last = times[min(times)], times[max(times)]
                shown.append(f"{_kind(bench)} {first:.2f} at {min(times):.0f}, {last:.2f} at {max(times):.0f}")
                holds.append((last / first < FLAT) == stays)
        yield Claim(text, "figure 2", "; ".join(shown) or "–", _verdict(holds))


# ----------------------------------------------------------------------------------------------------------- space


def _space(results: Sequence[Results], benches: Sequence[Bench]) -> Iterator[Claim]:
    shares = [
        domain.systems["faster"].bytes / domain.systems["fast"].bytes
        for one in results
        for domain in one.domains
        if {"faster", "fast"} <= domain.systems.keys() and parent(one, domain) == domain.name
    ]
    text = "Faster needs a much smaller store than Fast: bytes opened"
    if shares:
        yield Claim(text, "«much smaller»", f"{fmean(shares):.1%}", HELD if fmean(shares) < 0.1 else MISSED)
    entries = [
        domain.built.counts["clusters"] / domain.built.counts["entries"]
        for one in results
        for domain in one.domains
        if "faster" in domain.systems and parent(one, domain) == domain.name
    ]
    text = "Clusters are far fewer than entries of the store"
    if entries:
        yield Claim(text, "«significantly smaller»", f"{fmean(entries):.1%}", HELD if fmean(entries) < 0.1 else MISSED)
    shown, holds = [], []
    for bench in benches:
        sizes = {row["system"]: row["batch_size"] for row in bench.batches}
        if {"faster", "fast"} <= sizes.keys():
            told = ", ".join(f"{name} {sizes[name]}" for name in (BASE, "faster", "fast") if name in sizes)
            shown.append(f"{_kind(bench)} {told}")
            holds.append(sizes["faster"] > sizes["fast"])
    yield Claim("So it allows a larger batch in the same memory", "«larger»", "; ".join(shown) or "–", _verdict(holds))


def _untestable() -> Iterator[Claim]:
    wmt = ", ".join(f"{WMT['faster'][place] - WMT[BASE][place]:+.1f}" for place in (0, 1))
    lacking = ", ".join(sorted({*DOMAINS[BASE]} & {*STAND_IN.values()}))
    gains = "Faster gains on WMT'19 De-En and WMT'14 En-Fr (Table 2)"
    yield Claim(gains, f"{wmt} BLEU", "the texts were not to be had", OPEN)
    yield Claim(f"Absolute BLEU of Tables 2 and 3; {lacking}", "Tables 2, 3", "another model, other texts", OPEN)


def _by_model(
    text: str, paper: str, here: Mapping[str, float | None], holds: Callable[[float], bool], form: str = "{:.0%}"
) -> Claim:
    """A claim that is judged for each model; it holds if it does for all."""
    known = {model: value for model, value in here.items() if value is not None}
    shown = "; ".join(f"{model} {form.format(value)}" for model, value in known.items())
    return Claim(text, paper, shown or "–", _verdict([holds(value) for value in known.values()]))


def _verdict(holds: Sequence[bool]) -> str:
    return OPEN if not holds else HELD if all(holds) else PARTLY if any(holds) else MISSED
