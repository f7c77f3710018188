"""Tables as rows of text: Markdown for the README, HTML for the page, columns for the terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from statistics import fmean

from knnmt.lab.report.bench import AXES, Bench
from knnmt.lab.reproduce.config import BASE, COMPARED, REFERENCE, TM
from knnmt.lab.reproduce.results import DomainResults, Metric, Results, SystemResults, TunedResult
from knnmt.terminal import size

Rows = list[list[str]]  # the first are the heads, the first column is names
ALPHA = 0.05
BUSY = 4.0  # load of a machine from which its times mean nothing
LOWER = ("TER",)  # metrics of which less is better
MARKS = dict(zip((BASE, *COMPARED), "*†‡", strict=True))  # of what differs from a system


@dataclass(frozen=True)
class Table:
    """A table with its title and what has to be said of it."""

    title: str
    rows: Rows
    note: str = ""


def sections(results: Sequence[Results], benches: Sequence[Bench]) -> dict[str, list[Table]]:
    """All tables, by the title of their section."""
    found: dict[str, list[Table]] = {}
    for title, one in zip(titles(results), results, strict=True):
        found[title] = [
            Table("BLEU on test, and what it gains over base MT", quality(one), _signature(one)),
            Table("Bytes that a system opens", bytes_opened(one)),
            *(table for domain in one.domains for table in _of_domain(domain, timed(one))),
            Table("Settings, found on dev", settings(one), _dev(one)),
            Table("Stores: what they hold, and how long they took to build", stores(one)),
            Table("Train text, source side, in the model's tokens (the paper's Table 1)", texts(one)),
        ]
    for bench in benches:
        found[f"Benchmark {bench.name}"] = [
            *([Table("Time of a system, times base MT", speed(bench))] if bench.speed else []),
            *([Table("Growth with the store (synthetic)", growth(bench))] if bench.growth else []),
            *([Table("Largest batch of the longest texts", largest(bench))] if bench.batches else []),
        ]
    return found


def markdown(found: dict[str, list[Table]]) -> str:
    """All tables in Markdown."""
    parts: list[str] = []
    for title, tables in found.items():
        parts.append(f"## {title}\n")
        for table in tables:
            heads, *rows = table.rows
            parts += [f"**{table.title}**\n", _line(heads), "|---|" + "---:|" * (len(heads) - 1)]
            parts += [_line(row) for row in rows]
            parts.append(f"\n{table.note}\n" if table.note else "")
    return "\n".join(parts)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# -------------------------------------------------------------------------------------------------- of an experiment


def titles(results: Sequence[Results]) -> list[str]:
    """What experiments are called: with their model, or a number, where a title is not enough."""
    models = {one.title: {model_name(other) for other in results if other.title == one.title} for one in results}
    named = [f"{one.title}, {model_name(one)}" if len(models[one.title]) > 1 else one.title for one in results]
    return [
        f"{name} ({named[: place + 1].count(name)})" if named.count(name) > 1 else name
        for place, name in enumerate(named)
    ]


def model_name(results: Results) -> str:
    """The name of the model, without the folder it was in."""
    return PurePath(str(results.config.get("model", ""))).name


def names(results: Results) -> list[str]:
    """All systems of an experiment, base first."""
    return list(dict.fromkeys(name for domain in results.domains for name in domain.systems))


def quality(results: Results) -> Rows:
    """BLEU by system and domain, as the paper's Table 3: the gain over base MT, and what stands out."""
    several = len(results.domains) > 1
    kept = _kept(results) if several else {}
    heads = [*(domain.title for domain in results.domains), *(["mean"] if several else [])]
    rows: Rows = [["system", *heads, *(["gain kept"] if kept else [])]]
    for name in names(results):
        cells, pairs = [], []
        for domain in results.domains:
            if name not in domain.systems:
                cells.append("–")
                continue
            found, base = (_metric(domain.systems[which], "BLEU") for which in (name, BASE))
            pairs.append((found.value, base.value))
            cells.append(_gain(found.value, base.value, name) + ("" if name == BASE else _marks(found)))
        if several:
            whole = len(pairs) == len(results.domains)
            mine, theirs = (fmean(values) for values in zip(*pairs, strict=True)) if whole else (0.0, 0.0)
            cells.append(_gain(mine, theirs, name) if whole else "–")
        if kept:
            cells.append(f"{kept[name]:.0%}" if name in kept else "–" if name != BASE else "")
        rows.append([name, *cells])
    return rows


def _kept(results: Results) -> dict[str, float]:
    """The mean gain over base MT as a share of kNN-MT's, of the systems that are in all domains."""
    gains = {
        name: fmean(d.systems[name].value("BLEU") - d.systems[BASE].value("BLEU") for d in results.domains)
        for name in names(results)
        if name != BASE and all(name in domain.systems for domain in results.domains)
    }
    return {name: gain / gains[REFERENCE] for name, gain in gains.items()} if gains.get(REFERENCE, 0.0) > 0 else {}


def _gain(value: float, base: float, name: str) -> str:
    return f"{value:.1f}" if name == BASE else f"{value:.1f} ({value - base:+.1f})"


def _marks(found: Metric) -> str:
    """A mark for each system that it differs from."""
    return "".join(mark for against, mark in MARKS.items() if found.p.get(against, 1.0) < ALPHA)


def _signature(results: Results) -> str:
    metric = _metric(results.domains[0].systems[BASE], "BLEU")
    compared = {key for d in results.domains for one in d.systems.values() for key in one.metrics[0].p}
    others = "".join(f"; {mark} from {name}" for name, mark in MARKS.items() if name != BASE and name in compared)
    kept = f" Gain kept: the mean gain, of {REFERENCE}'s." if len(results.domains) > 1 and _kept(results) else ""
    return (
        f"Marked * differs from base MT{others}, p < {ALPHA}, paired bootstrap.{kept} "
        f"{metric.metric}: `{metric.signature}`"
    )


def timed(results: Results) -> bool:
    """Whether its seconds mean something: those of a machine that did other work at the same time do not."""
    return float(str(results.machine.get("load", 0.0))) < BUSY


def _of_domain(domain: DomainResults, timed: bool) -> Iterator[Table]:
    yield Table(f"{domain.title}: scores, {'speed, ' if timed else ''}size", scores(domain, timed), _about(domain))
    if compared := differences(domain):
        yield Table(f"{domain.title}: p-values by paired bootstrap, metric: against which system", compared)


def scores(domain: DomainResults, timed: bool = True) -> Rows:
    """Every metric with its interval; speed, where it was timed; and size."""
    first = domain.systems[BASE]
    metrics = [f"{found.metric} {'↓' if found.metric in LOWER else '↑'}" for found in first.metrics]
    unseen = ["BLEU, new"] if first.unseen is not None else []
    speed = ["segments/s", "time, × base"] if timed else []
    rows: Rows = [["system", *metrics, *unseen, *speed, "opens"]]
    for name, one in domain.systems.items():
        cells = [f"{found.value:.2f} ±{found.interval:.2f}" for found in one.metrics]
        cells += [f"{one.unseen:.2f}"] if one.unseen is not None else []
        if timed:
            seconds = one.translated.seconds
            cells += [f"{one.translated.segments / seconds:.1f}", f"{seconds / first.translated.seconds:.2f}"]
        rows.append([name, *cells, _bytes(one)])
    return rows


def differences(domain: DomainResults) -> Rows:
    """The p-values of every metric; nothing where there is nothing to compare."""
    against = list(dict.fromkeys(key for one in domain.systems.values() for found in one.metrics for key in found.p))
    against.sort(key=lambda name: name != BASE)
    metrics = [found.metric for found in domain.systems[BASE].metrics]
    rows: Rows = [["system", *(f"{metric}: {other}" for other in against for metric in metrics)]]
    for name, one in domain.systems.items():
        if name != BASE:
            rows.append([name, *(_p(found.p.get(other)) for other in against for found in one.metrics)])
    return rows if against else []


def _p(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if value >= 0.001 else "<0.001"


def _about(domain: DomainResults) -> str:
    test = domain.overlaps["test"]
    stand = (
        f"{test['segments']:,} segments; the store has {test['exact']:,} of their sources word for word and "
        f"{test['near']:,} nearly («new» is the others alone)."
    )
    signatures = "; ".join(f"{found.metric} `{found.signature}`" for found in domain.systems[BASE].metrics)
    return " ".join(part for part in (domain.note, stand, signatures) if part)


def bytes_opened(results: Results) -> Rows:
    """Store sizes by system and domain."""
    rows: Rows = [["system", *(domain.title for domain in results.domains)]]
    for name in names(results):
        if name != BASE:
            rows.append(
                [name, *(_bytes(d.systems[name]) if name in d.systems else "–" for d in results.domains)]
            )  # fmt: skip
    return [*rows, ["whole store", *(size(domain.built.bytes) for domain in results.domains)]]


def _bytes(one: SystemResults) -> str:
    return size(one.bytes) if one.bytes else "–"


def settings(results: Results) -> Rows:
    """The settings that each system translated test with."""
    rows: Rows = [["domain: system", "k", "c", "T", "λ", "τ", "length", "dev BLEU", "base MT", "tuning, s"]]
    for domain in results.domains:
        for name, one in domain.systems.items():
            if one.tuned is None:
                continue
            chosen = one.tuned.settings
            if one.system == TM:
                least = chosen["threshold"]
                cells = ["", "", "", "none" if least is None else f"match ≥ {least:.0%}", "", ""]
                rows.append([f"{domain.title}: {name}", *cells, *_found(one.tuned)])
                continue
            distant = chosen["adapt"] == "distance" and bool(chosen["lambda"])
            weight = chosen["lambda"]
            cells = [
                "all" if chosen["k"] is None else str(chosen["k"]),
                "" if chosen["c"] is None else str(chosen["c"]),
                f"{chosen['temperature']:.4g}" if chosen["temperature"] else "by the store",
                "learned" if chosen["adapt"] == "learned"
                else ("≤ " if distant else "") + (f"{weight:.2f}" if weight is not None else "by the system"),
                f"{chosen['reach']:.4g}" if distant and chosen["reach"] else "",
                f"{penalty:.3g}" if (penalty := chosen.get("length_penalty")) is not None else "",
                *_found(one.tuned),
            ]  # fmt: skip
            rows.append([f"{domain.title}: {name}", *cells])
    return rows


def _found(tuned: TunedResult) -> list[str]:
    return [f"{tuned.bleu:.2f}", f"{tuned.base_bleu:.2f}", f"{tuned.seconds:.0f}"]


def _dev(results: Results) -> str:
    found = {d.title: next((s.tuned for s in d.systems.values() if s.tuned is not None), None) for d in results.domains}
    sizes = ", ".join(f"{title} {tuned.segments:,}" for title, tuned in found.items() if tuned is not None)
    ends = [
        f"{domain.title}: {name} ({', '.join(one.tuned.ends)})"
        for domain in results.domains
        for name, one in domain.systems.items()
        if one.tuned is not None and one.tuned.ends
    ]
    told = f" At the end of what was searched: {'; '.join(ends)}." if ends else ""
    return f"Segments of dev: {sizes}. What the store has of them was not used. λ = 0 is base MT.{told}"


def stores(results: Results) -> Rows:
    """A store of each domain: counts, sizes, seconds of each stage."""
    stages = list(dict.fromkeys(stage for domain in results.domains for stage in domain.built.seconds))
    rows: Rows = [["", *(domain.title for domain in results.domains)]]
    lines = {
        "segments kept": [f"{d.built.kept:,}" for d in results.domains],
        "dropped": [f"{sum(d.built.dropped.values()):,}" for d in results.domains],
        "target tokens (entries)": [f"{d.built.counts['entries']:,}" for d in results.domains],
        "linked source tokens": [f"{d.built.counts['tokens']:,}" for d in results.domains],
        "clusters": [f"{d.built.counts['clusters']:,}" for d in results.domains],
        "bytes, all arrays": [size(d.built.bytes) for d in results.domains],
        **{f"{stage}, s": [_seconds(d.built.seconds.get(stage)) for d in results.domains] for stage in stages},
        "whole build, s": [
            _seconds(sum(d.built.seconds.values()) if len(d.built.seconds) == len(stages) else None)
            for d in results.domains
        ],
    }
    return [*rows, *([name, *cells] for name, cells in lines.items())]


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def texts(results: Results) -> Rows:
    """Table 1 of the paper."""
    lines = {
        "sentence pairs": ("pairs", ",.0f"), "longest source segment": ("longest", ",.0f"),
        "mean source segment": ("mean_length", ".1f"), "source tokens": ("tokens", ",.0f"),
        "token types": ("types", ",.0f"), "highest type frequency": ("highest_frequency", ",.0f"),
        "mean type frequency": ("mean_frequency", ".1f"),
    }  # fmt: skip
    rows: Rows = [["", *(domain.title for domain in results.domains)]]
    return rows + [
        [label, *(format(domain.built.statistics[key], how) for domain in results.domains)]
        for label, (key, how) in lines.items()
    ]


def _metric(one: SystemResults, name: str) -> Metric:
    return next(found for found in one.metrics if found.metric == name)


# -------------------------------------------------------------------------------------------------- of a benchmark


def speed(bench: Bench) -> Rows:
    """Times of systems beside base MT."""
    axes = [axis for axis in AXES if len({row.get(axis) for row in bench.speed} - {None}) > 1]
    rows: Rows = [["system", *(axis.replace("_", " ") for axis in axes), "time, × base", "95%", "segments/s"]]
    for row in bench.speed:
        found = row["ratio"]
        ratio = [f"{found['mean']:.3f}", f"{found['low']:.3f} to {found['high']:.3f}"] if found else ["1", ""]
        speed = f"{row['segments'] / row['seconds']['median']:.1f}"
        rows.append([row["system"], *(_number(row.get(axis)) for axis in axes), *ratio, speed])
    return rows


def growth(bench: Bench) -> Rows:
    """Times and bytes on synthetic stores."""
    rows: Rows = [["system", "tokens", "select and lookup of a batch, ms", "opens"]]
    return rows + [
        [row["system"], f"{row['tokens']:,}", f"{1000 * row['batch']:.2f}", size(row["opened"])] for row in bench.growth
    ]


def largest(bench: Bench) -> Rows:
    """The largest batches in a fixed memory, of powers of two."""
    rows: Rows = [["system", "memory", "segments", "its peak", "segments/s", "peak of twice as many"]]
    for row in bench.batches:
        speed = f"{row['per_second']:.1f}" if row["per_second"] else ""
        peaks = ["" if row[key] is None else size(row[key]) for key in ("peak", "next_peak")]
        rows.append([row["system"], size(row["memory"]), str(row["batch_size"]), peaks[0], speed, peaks[1]])
    return rows


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def facts(machine: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """What is known of a machine, in words."""
    for name, value in machine.items():
        yield name, size(value) if name == "memory" and isinstance(value, int) else str(value)
