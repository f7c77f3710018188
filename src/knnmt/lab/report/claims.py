"""What the paper claims, beside what was measured here: a line for each claim, with its verdict.

A verdict is by rule: a claim of quality holds if at least `NEARLY` of what it says is there, one of speed if the ratio
is within `CLOSE` of the paper's. What cannot be told from the results at hand is «not tested».
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from knnmt.lab.report.bench import Bench
from knnmt.lab.report.paper import DOMAINS, STAND_IN, STEPS, TIMES, WMT, parent, scores, share
from knnmt.lab.report.tables import Rows, Table, model_name
from knnmt.lab.reproduce.config import BASE, REFERENCE
from knnmt.lab.reproduce.results import Decomposition, Results
from knnmt.systems.table import SYSTEMS

NEARLY = 0.8  # of a gain, from which it counts as kept
CLOSE = 0.25  # of a ratio of times
LITTLE = 0.5  # of BLEU
FLAT = 1.15  # growth of a time that is said not to grow
HELD, MISSED, OPEN = "reproduced", "not reproduced", "not tested here"

Ratios = dict[str, dict[float, float]]  # times base MT's time, by system and by the value of an axis


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
    by_k, by_length = (_ratios(benches, axis) for axis in ("k", "length"))
    yield _ratio("Faster takes 1.2 times base MT's time", TIMES["faster"], _usual(benches, "faster"))
    yield _ratio("Fast takes twice base MT's time", TIMES["fast"], _usual(benches, "fast"))
    yield _ratio("kNN-MT is two orders of magnitude slower than base MT", TIMES[REFERENCE], _usual(benches, REFERENCE))
    timed = [bench for bench in benches if {*STEPS[1:]} <= {row["system"] for row in bench.usual()}]
    usual = {name: fmean(some.values()) for name in SYSTEMS if (some := _usual(timed, name))}
    if {"faster", "faster-exact", "fast"} <= usual.keys():
        order = usual["faster"] < usual["faster-exact"] < usual["fast"]
        shown = ", ".join(f"{name} {usual[name]:.2f}" for name in ("faster", "faster-exact", "fast"))
        yield Claim(
            "Faster is faster than Faster without cached distances, and that than Fast (figure 2)", "order",
            f"{shown}, times base", HELD if order else MISSED,
        )  # fmt: skip
    if {"fast", "fast-clustered"} <= usual.keys():
        found = usual["fast-clustered"] / usual["fast"]
        yield Claim(
            "Fast with clustered source takes as long as Fast", "«almost equal»", f"{found:.2f} times",
            HELD if abs(found - 1) <= CLOSE else MISSED,
        )  # fmt: skip
    yield from _growing("k", by_k, {"fast": False, "faster": True})
    yield from _growing("length", by_length, {"fast": False, "faster": True})


def _usual(benches: Sequence[Bench], system: str) -> dict[str, float]:
    """Times base MT's time at a benchmark's usual settings, by the name of the benchmark; of those along k or none."""
    found = {}
    for bench in benches:
        if not bench.axes or "k" in bench.axes:
            for row in bench.usual():
                if row["system"] == system and row["ratio"] is not None:
                    found[bench.name] = float(row["ratio"]["mean"])
    return found


def _ratios(benches: Sequence[Bench], axis: str) -> Ratios:
    found: Ratios = {}
    for bench in benches:
        if axis in bench.axes:
            for row in bench.along(axis):
                if row["ratio"] is not None:
                    found.setdefault(row["system"], {})[float(row[axis])] = float(row["ratio"]["mean"])
    return found


def _ratio(text: str, paper: float, here: Mapping[str, float]) -> Claim:
    """A ratio of times, judged by the mean of all benchmarks."""
    if not here:
        return Claim(text, f"{paper:g}", "–", OPEN)
    shown = "; ".join(f"{name} {value:.2f}" for name, value in here.items())
    return Claim(text, f"{paper:g}", shown, HELD if abs(fmean(here.values()) / paper - 1) <= CLOSE else MISSED)


def _growing(axis: str, ratios: Ratios, flat: dict[str, bool]) -> Iterator[Claim]:
    """Whether the times of systems grow along an axis, beside base MT's."""
    named = {"k": "the number of neighbours", "length": "the length of the source"}[axis]
    for system, stays in flat.items():
        text = f"{system.title()} {'does not slow' if stays else 'slows'} down with {named}"
        values = ratios.get(system, {})
        if len(values) < 2:
            yield Claim(text, "figure 2", "–", OPEN)
            continue
        first, last = values[min(values)], values[max(values)]
        shown = f"{first:.2f} at {min(values):.0f}, {last:.2f} at {max(values):.0f}"
        yield Claim(text, "figure 2", shown, HELD if (last / first < FLAT) == stays else MISSED)


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
    sizes = {row["system"]: row["batch_size"] for bench in benches for row in bench.batches}
    text = "So it allows a larger batch in the same memory"
    if {"faster", "fast"} <= sizes.keys():
        shown = ", ".join(f"{name} {sizes[name]}" for name in (BASE, "faster", "fast") if name in sizes)
        yield Claim(text, "«larger»", shown, HELD if sizes["faster"] > sizes["fast"] else MISSED)
    else:
        yield Claim(text, "«larger»", "–", OPEN)


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
    verdicts = [holds(value) for value in known.values()]
    return Claim(text, paper, shown or "–", OPEN if not verdicts else HELD if all(verdicts) else MISSED)
