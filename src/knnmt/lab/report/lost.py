"""Where Faster loses what kNN-MT gains, and quality against one setting at a time, as pictures."""

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from knnmt.lab.report.paper import STEPS, certainty_shares, kept, kept_order
from knnmt.lab.report.plots import Plot, look
from knnmt.lab.report.tables import model_name
from knnmt.lab.report.theme import Theme
from knnmt.lab.reproduce.config import BASE
from knnmt.lab.reproduce.results import Decomposition, DomainResults, Results, Varied
from knnmt.systems.table import SYSTEMS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

QUESTIONS = {  # of the right token, and how strongly it is drawn
    "any": ("in any cluster of the sentence", 0.3), "chosen": ("in the chosen, nearest cluster", 0.6),
    "richest_first": ("the cluster richest in it is chosen", 1.0),
}  # fmt: skip
SETTINGS = {
    "k": "neighbours k", "c": "tokens a source token sees, c", "temperature": "T, times the tuned one",
    "weight": "λ, or its maximum",
}  # fmt: skip
Losses = dict[str, Decomposition]  # by the title of the domain


def plots(results: Sequence[Results]) -> Iterator[Plot]:
    """The pictures of those experiments that have them."""
    for one in results:
        lost = {domain.title: domain.decomposition for domain in one.domains if domain.decomposition is not None}
        if lost:
            yield Plot(
                "lost",
                f"Where Faster loses, {model_name(one)}",
                "Left: whether the right token of dev references stands in the cluster that is chosen, in any cluster "
                "of the sentence, and whether the cluster richest in it is the nearest. Middle: what each step from "
                "kNN-MT to Faster keeps of kNN-MT's gain in likelihood, and other ways to choose among Faster's own "
                "clusters (mean of the domains; dots: each). Right: the share kept by p_MT of the right token.",
                partial(_lost, lost),
            )
    for one in results:
        varied = [domain for domain in one.domains if domain.varied]
        if varied:
            yield Plot(
                "settings",
                f"Quality against each setting, {model_name(one)}",
                "BLEU on dev, greedy, with the tuned settings but for one: the mean of the domains. The dashed line is "
                "base MT.",
                partial(_settings, varied),
            )


def _lost(lost: Losses, theme: Theme) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.4, 4.6))
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.0, 1.25, 1.0))
    _held(left, lost, theme)
    _steps(middle, lost, theme)
    _certainty(right, lost, theme)
    return figure


def _held(axes: "Axes", lost: Losses, theme: Theme) -> None:
    """Grouped bars: a group for each domain."""
    height = 0.8 / len(QUESTIONS)
    colour = look("faster", "faster", theme)["color"]
    for number, (field, (label, strength)) in enumerate(QUESTIONS.items()):
        values = [100 * getattr(one.choices, field) for one in lost.values()]
        places = [place + (number - 1) * height for place in range(len(lost))]
        bars = axes.barh(places, values, height, color=colour, alpha=strength, label=label)
        axes.bar_label(bars, fmt="%.0f", padding=2, fontsize=8)
    axes.set_yticks(range(len(lost)), list(lost))
    axes.invert_yaxis()
    axes.set_xlim(0, 112)
    axes.set_xlabel("% of reference tokens")
    axes.grid(axis="y", visible=False)
    axes.set_title("What the clusters hold")
    axes.legend(loc="upper center", bbox_to_anchor=(0.35, -0.14), fontsize=8, ncols=1)


def _steps(axes: "Axes", lost: Losses, theme: Theme) -> None:
    """A bar for each choice, and a dot for each domain."""
    names = kept_order(lost.values())
    shares = {name: [100 * kept(one, name) for one in lost.values() if name in one.kept] for name in names}
    for place, name in enumerate(names):
        colour = look(name, name, theme)["color"] if name in STEPS else theme.series[0]
        mean = fmean(shares[name])
        axes.barh(place, mean, 0.7, color=colour, alpha=1.0 if name in STEPS else 0.55)
        axes.plot(shares[name], [place] * len(shares[name]), "o", color=theme.ink, markersize=3)
        axes.annotate(
            f"{mean:.0f}", (1.0, place), xycoords=("axes fraction", "data"), va="center", ha="right", fontweight="bold"
        )
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(min(0.0, *(min(some) for some in shares.values())) - 2, 1.2 * max(max(s) for s in shares.values()))
    axes.set_xlabel("% of kNN-MT's gain in likelihood")
    axes.grid(axis="y", visible=False)
    axes.set_title("What each choice keeps")


def _certainty(axes: "Axes", lost: Losses, theme: Theme) -> None:
    """A line for each system over the bins of p_MT."""
    every = list(lost.values())
    bounds = every[0].bounds
    for name in (name for name in STEPS[1:] if all(name in one.kept for one in every)):
        shares = certainty_shares(every, name)
        known = [(place, 100 * value) for place, value in enumerate(shares) if value is not None]
        axes.plot(*zip(*known, strict=True), label=name, **look(name, name, theme) | {"markersize": 5})
    labels = [f"≤ {bounds[0]:g}", *(f"≤ {bound:g}" for bound in bounds[1:]), "above"]
    axes.set_xticks(range(len(labels)), labels, fontsize=8)
    axes.set_xlabel("p_MT of the right token")
    axes.set_ylabel("% of kNN-MT's gain kept")
    axes.set_title("By the model's certainty")
    axes.legend(fontsize=8)


def _settings(domains: Sequence[DomainResults], theme: Theme) -> "Figure":
    from matplotlib.figure import Figure

    points = [(domain.name, point) for domain in domains for point in domain.varied]
    shown = [name for name in SETTINGS if any(point.setting == name for _, point in points)]
    figure = Figure(figsize=(2.9 * len(shown) + 0.4, 3.6))
    grid = figure.subplots(1, len(shown), squeeze=False, sharey=True).ravel()
    handles: dict[str, Any] = {}
    base = _base(domains)
    for axes, setting in zip(grid, shown, strict=True):
        mine = [(domain, point) for domain, point in points if point.setting == setting]
        if base is not None:
            axes.axhline(base, color=look(BASE, BASE, theme)["color"], linestyle="--", linewidth=1.4, label=BASE)
        _setting_panel(axes, mine, theme)
        axes.set_xlabel(SETTINGS[setting])
        if setting != "weight":
            values = sorted({point.value for _, point in mine})
            axes.set_xscale("log", base=2)
            axes.set_xticks(values, [f"{value:g}" for value in values], fontsize=8)
            axes.minorticks_off()
        handles |= {text: handle for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    grid[0].set_ylabel("BLEU on dev, mean")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles))
    return figure


def _base(domains: Sequence[DomainResults]) -> float | None:
    """BLEU of base MT on dev as the systems were tuned on it, the mean of the domains."""
    found = [
        [one.tuned.base_bleu for one in domain.systems.values() if one.system in SYSTEMS and one.tuned is not None]
        for domain in domains
    ]
    return fmean(some[0] for some in found) if found and all(found) else None


def _setting_panel(axes: "Axes", points: Sequence[tuple[str, Varied]], theme: Theme) -> None:
    for system in dict.fromkeys(point.system for _, point in points):
        by_value: dict[float, list[float]] = {}
        for _, point in points:
            if point.system == system:
                by_value.setdefault(point.value, []).append(point.bleu)
        most = max(map(len, by_value.values()))
        values = sorted(value for value, some in by_value.items() if len(some) == most)
        axes.plot(values, [fmean(by_value[value]) for value in values], label=system, **look(system, system, theme))
