"""The pictures: each is drawn only where there are figures for it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from knnmt.lab.bench.clock import STAGES
from knnmt.lab.report.bench import AXES, Bench
from knnmt.lab.report.paper import TIMES
from knnmt.lab.report.tables import timed
from knnmt.lab.report.theme import MARKERS, Draw, Theme
from knnmt.lab.reproduce.config import BASE, TM
from knnmt.lab.reproduce.results import DomainResults, Results
from knnmt.systems.table import SYSTEMS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ORDER = (BASE, *SYSTEMS)  # a system has the same colour and marker in every picture
HOLLOW = ("none", "left", "bottom", "right")  # how much of a marker is filled
MEGABYTE = 1e6
OF_PAPER = ("k", "length")  # the axes of the paper's figure 2
Stacks = dict[str, dict[str, float]]  # by bar, then by stage


@dataclass(frozen=True)
class Plot:
    """A picture: the name of its files, its title, what it shows in a sentence, and how it is drawn."""

    name: str
    title: str
    caption: str
    draw: Draw


def of_results(results: Results) -> Iterator[Plot]:
    """The pictures of an experiment."""
    if timed(results):
        yield Plot(
            "quality-speed",
            "Quality against speed",
            "BLEU on test with its 95% interval, against speed as a multiple of base MT's (one pass over test each, "
            "after a batch to warm up). Up and to the right is better; a marker that is not filled is a system tuned "
            "under another name.",
            partial(_domains, results, _speed_panel, "speed, times base MT"),
        )
    if any(one.bytes for domain in results.domains for one in domain.systems.values()):
        yield Plot(
            "quality-size",
            "Quality against store size",
            "BLEU on test, against the bytes of the arrays that a system opens. Up and to the left is better; "
            "the dashed line is base MT, which needs no store.",
            partial(_domains, results, _size_panel, "store opened, MB"),
        )
    if timed(results) and any(sum(domain.built.seconds.values()) > 0 for domain in results.domains):
        stacks = {domain.title: domain.built.seconds for domain in results.domains if domain.built.seconds}
        yield Plot(
            "build-time", "Where the time of a build goes", "Seconds of each stage of building a store.",
            partial(_bars, stacks, "seconds"),
        )  # fmt: skip


def of_benches(benches: Sequence[Bench]) -> Iterator[Plot]:
    """The pictures of benchmarks: sweeps, growth, and the stages of the first that is not a sweep, or of the first."""
    for bench in benches:
        for axis in bench.axes:
            told = ", dotted are the times that the paper tells" if axis in OF_PAPER else ""
            yield Plot(
                f"speed-{axis.replace('_', '-')}",
                f"Time against {AXES[axis]} ({bench.name})",
                f"Time of a system as a multiple of base MT's in the same run, with its 95% interval, on "
                f"{bench.device}. Lower is better; the dashed line is base MT{told}.",
                partial(_sweep, bench, axis),
            )
    for bench in benches:
        if len({row["tokens"] for row in bench.growth}) > 1:
            yield Plot(
                "growth",
                "Growth with the store",
                "Selection and lookup for a batch of sentences, without the model, and the bytes of the arrays that "
                "are opened, on synthetic stores. Both axes are logarithmic: a straight line is a power law.",
                partial(_growth, bench),
            )
    timed = [bench for bench in benches if bench.speed]
    if timed:
        shown = next((one for one in timed if not one.axes), timed[0])
        stacks = _stages(shown)
        if stacks:
            yield Plot(
                "stages",
                f"Where the time of a translation goes ({shown.name})",
                f"Milliseconds a segment in each stage, on {shown.device}; timed in a pass of its own, which waits for "
                "the device after each stage and so takes longer.",
                partial(_bars, stacks, "ms a segment"),
            )


# ------------------------------------------------------------------------------------------------- of an experiment


def look(system: str, name: str, theme: Theme) -> dict[str, Any]:
    """The colour and the marker of a system; hollow, or half so, where it goes by another name or is none of ours."""
    if system == TM:
        return {"color": theme.quiet, "marker": "d", "linestyle": ":"}
    place = ORDER.index(system) if system in ORDER else len(ORDER) + sum(name.encode())  # some other, always the same
    colour = theme.series[place % len(theme.series)]
    filled = name == system and system in ORDER
    return {
        "color": colour, "marker": MARKERS[place % len(MARKERS)], "markeredgecolor": colour,
        "markerfacecolor": colour, "markerfacecoloralt": "none", "linestyle": "-" if filled else "--",
        "fillstyle": "full" if filled else HOLLOW[sum(name.encode()) % len(HOLLOW)],
    }  # fmt: skip


def _domains(
    results: Results, panel: "Callable[[Axes, DomainResults, Theme], None]", label: str, theme: Theme
) -> "Figure":
    """A panel for each domain, and one legend below."""
    from matplotlib.figure import Figure

    count = len(results.domains)
    columns = 1 if count == 1 else 2
    lines = -(-count // columns)
    figure = Figure(figsize=(8.6, 3.0 * lines + 0.9))
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    shown: dict[str, Any] = {}
    for axes, domain in zip(grid, results.domains, strict=False):
        panel(axes, domain, theme)
        axes.set_title(domain.title)
        axes.set_ylabel("BLEU")
        shown |= {text: handle for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    for axes in grid[count:]:
        axes.remove()
    for axes in grid[max(0, count - columns) : count]:
        axes.set_xlabel(label)
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=5, handletextpad=0.5)
    return figure


def _speed_panel(axes: "Axes", domain: DomainResults, theme: Theme) -> None:
    base = domain.systems[BASE].translated
    for name, one in domain.systems.items():
        quality = _bleu(domain, name)
        speed = (one.translated.segments / one.translated.seconds) / (base.segments / base.seconds)
        span = quality.interval if name == one.system else None  # two tunings are as fast: one bar would hide the other
        axes.errorbar(
            speed, quality.value, span, label=name, elinewidth=1, capsize=2,
            **look(one.system, name, theme) | {"linestyle": "none"},
        )  # fmt: skip
    axes.set_xlim(left=0, right=max(1.08, 1.05 * axes.get_xlim()[1]))


def _size_panel(axes: "Axes", domain: DomainResults, theme: Theme) -> None:
    base = _bleu(domain, BASE)
    axes.axhline(base.value, color=look(BASE, BASE, theme)["color"], linestyle="--", linewidth=1.4, label=BASE)
    for name, one in domain.systems.items():
        if one.bytes:
            style = look(one.system, name, theme) | {"linestyle": "none"}
            axes.plot(one.bytes / MEGABYTE, _bleu(domain, name).value, label=name, **style)
    log_axis(axes, [one.bytes / MEGABYTE for one in domain.systems.values() if one.bytes])


def _bleu(domain: DomainResults, name: str) -> Any:
    return next(found for found in domain.systems[name].metrics if found.metric == "BLEU")


def _bars(stacks: Stacks, label: str, theme: Theme) -> "Figure":
    """A bar for each thing, made of its stages."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 0.42 * len(stacks) + 1.7))
    axes = figure.subplots()
    names, left = list(stacks), [0.0] * len(stacks)
    whole = max(sum(stack.values()) for stack in stacks.values())
    fullest = sorted(stacks.values(), key=len, reverse=True)  # which has all stages in their order
    stages = list(dict.fromkeys(stage for stack in fullest for stage in stack))
    shown = [stage for stage in stages if max(stack.get(stage, 0.0) for stack in stacks.values()) > whole / 1000]
    for number, stage in enumerate(shown):
        values = [stacks[name].get(stage, 0.0) for name in names]
        colour = theme.series[number % len(theme.series)]
        # bars of neighbouring colours are parted by a line, for those who cannot tell the colours
        axes.barh(names, values, left=left, color=colour, edgecolor=theme.paper, linewidth=1, label=stage, height=0.66)
        left = [before + value for before, value in zip(left, values, strict=True)]
    for place, total in enumerate(left):
        axes.annotate(
            f"{total:,.1f}" if total < 100 else f"{total:,.0f}",
            (total, place),
            (5, 0),
            textcoords="offset points",
            va="center",
        )
    axes.set_xlim(0, 1.1 * whole)
    axes.invert_yaxis()
    axes.set_xlabel(label)
    axes.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=len(shown), handletextpad=0.5, columnspacing=1.2, handlelength=1.2)
    return figure


# -------------------------------------------------------------------------------------------------- of a benchmark


def _sweep(bench: Bench, axis: str, theme: Theme) -> "Figure":
    """Ratios to base MT along an axis."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 4.4))
    axes = figure.subplots()
    rows = [row for row in bench.along(axis) if row["ratio"] is not None]
    for system in dict.fromkeys(row["system"] for row in rows):
        mine = sorted((row for row in rows if row["system"] == system), key=lambda row: float(row[axis]))
        low, mean, high = ([row["ratio"][part] for row in mine] for part in ("low", "mean", "high"))
        spans = [[m - lo for m, lo in zip(mean, low, strict=True)], [hi - m for m, hi in zip(mean, high, strict=True)]]
        axes.errorbar(
            [row[axis] for row in mine], mean, spans, label=system, elinewidth=1, capsize=2,
            **look(system, system, theme),
        )  # fmt: skip
    axes.axhline(1.0, color=look(BASE, BASE, theme)["color"], linestyle="--", linewidth=1.4, label=BASE)
    for system in ("fast", "faster") if axis in OF_PAPER else ():
        style = {"color": look(system, system, theme)["color"], "linestyle": ":", "linewidth": 1.4}
        axes.axhline(TIMES[system], label=f"{system}, paper: {TIMES[system]:g}", **style)
    values = sorted({float(row[axis]) for row in rows})
    if axis == "entries":
        log_axis(axes, values)
    else:
        axes.set_xscale("log", base=2)
        axes.set_xticks(values, [f"{value:,.0f}" for value in values])
        axes.minorticks_off()
    most = max(row["ratio"]["high"] for row in rows)
    if most > 8:  # a system that takes many times as long would flatten the others
        log_axis(axes, [0.9, most], "y")
    else:
        axes.set_ylim(bottom=0, top=1.08 * max(most, 1.1))
    axes.set_xlabel(AXES[axis])
    axes.set_ylabel("time, times base MT")
    figure.legend(loc="outside lower center", ncols=4, handletextpad=0.5)
    return figure


def _growth(bench: Bench, theme: Theme) -> "Figure":
    """Time and bytes against tokens."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 3.9))
    panels = (("batch", 1000.0, "select and lookup, ms a batch"), ("opened", 1 / MEGABYTE, "arrays opened, MB"))
    grid = figure.subplots(1, 2)
    for axes, (key, factor, label) in zip(grid, panels, strict=True):
        for system in dict.fromkeys(row["system"] for row in bench.growth):
            mine = sorted((row for row in bench.growth if row["system"] == system), key=lambda row: int(row["tokens"]))
            points = [row["tokens"] for row in mine], [factor * row[key] for row in mine]
            axes.plot(*points, label=system, **look(system, system, theme))
        log_axis(axes, [row["tokens"] for row in bench.growth])
        log_axis(axes, [factor * row[key] for row in bench.growth], "y")
        axes.set_xlabel("source tokens in the store")
        axes.set_ylabel(label)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, handletextpad=0.5)
    return figure


def _stages(bench: Bench) -> Stacks:
    """Milliseconds a segment by system and stage."""
    return {
        row["system"]: {
            stage: 1000 * row["split"][stage] / row["segments"] for stage in STAGES if stage in row["split"]
        }
        for row in bench.usual()
        if row["split"]
    }


def log_axis(axes: "Axes", values: Sequence[float], which: str = "x") -> None:
    """A logarithmic axis with round numbers, at least a few of them, and room at the ends."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    low, high = min(values) / 1.25, max(values) * 1.25
    scale, ticks = (axes.set_xscale, axes.xaxis) if which == "x" else (axes.set_yscale, axes.yaxis)
    scale("log")
    (axes.set_xlim if which == "x" else axes.set_ylim)(low, high)
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 4, 5, 6, 8)):
        found = [step * 10.0**power for power in range(-6, 14) for step in steps]
        found = [value for value in found if low <= value <= high]
        if len(found) >= 3:
            break
    ticks.set_major_locator(FixedLocator(found))
    ticks.set_minor_locator(NullLocator())
    ticks.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))


def _short(value: float) -> str:
    """A number in few characters: 1,500 or 2M."""
    for unit, name in ((1e9, "B"), (1e6, "M"), (1e4, "")):
        if value >= unit:
            return f"{value / unit:g}{name}" if name else f"{value / 1e3:g}k"
    return f"{value:,.0f}" if value >= 100 else f"{value:g}"
