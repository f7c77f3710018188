"""What a store of N segments is worth: base MT, a classic translation memory, and systems, on samples of one text."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from knnmt.lab.report.paper import parent
from knnmt.lab.report.plots import Plot, log_axis, look
from knnmt.lab.report.tables import Rows, Table, model_name
from knnmt.lab.report.theme import Theme
from knnmt.lab.reproduce.config import BASE, REFERENCE, TM
from knnmt.lab.reproduce.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = {
    BASE: "the model alone", TM: "with a translation memory", REFERENCE: "with kNN-MT, exact",
    "similar": "with knnmt (similar)",
}  # fmt: skip
MAIN = "similar"  # whose gain is told in numbers


class Point(NamedTuple):
    """BLEU of a system with a store of so many segments."""

    segments: int
    system: str
    bleu: float


Worth = dict[str, list[Point]]  # by the title of the domain


def found(results: Sequence[Results]) -> dict[str, Worth]:
    """By model: the domains with samples of their train text, and the whole of it."""
    worth: dict[str, dict[str, list[Point]]] = {}
    titles, sampled = {}, set()
    for one in results:
        train = {each["name"]: each.get("train") for each in one.config.get("domains", [])}
        known = {name: some for other in results for name, some in _train(other).items()}
        for domain in one.domains:
            place = parent(one, domain)
            if place != domain.name and train.get(domain.name) == known.get(place, train.get(domain.name)):
                continue  # another build of the same texts
            mine = [name for name in domain.systems if name in SHOWN]
            if mine == [BASE]:
                continue  # other texts, for other systems
            if place == domain.name:
                titles[place] = domain.title
            else:
                sampled.add((model_name(one), place))
            worth.setdefault(model_name(one), {}).setdefault(place, []).extend(
                Point(domain.built.kept, name, domain.systems[name].value("BLEU")) for name in mine
            )
    return {
        model: {titles.get(place, place): some for place, some in places.items() if (model, place) in sampled}
        for model, places in worth.items()
        if any(owner == model for owner, _ in sampled)
    }


def _train(results: Results) -> Mapping[str, object]:
    return {each["name"]: each.get("train") for each in results.config.get("domains", [])}


def plots(results: Sequence[Results]) -> Iterator[Plot]:
    """The picture for each model."""
    for model, worth in found(results).items():
        yield Plot(
            "worth",
            "What a store of N segments is worth",
            f"BLEU on test that {model} gains by a store of so many segments: random samples of the train text, and "
            "all of it. Settings, and the threshold of the translation memory, are tuned on dev for each.",
            partial(_figure, worth),
        )


def tables(results: Sequence[Results]) -> dict[str, list[Table]]:
    """The figures of the picture."""
    return {
        f"Stores of N segments, {model}": [Table(f"{title}: BLEU", _rows(points)) for title, points in worth.items()]
        for model, worth in found(results).items()
    }


def _rows(points: Sequence[Point]) -> Rows:
    sizes = sorted({point.segments for point in points})
    rows: Rows = [["segments", *(f"{size:,}" for size in sizes)]]
    values = {(point.system, point.segments): point.bleu for point in points}
    for system in SHOWN:
        cells = [values.get((system, size)) for size in sizes]
        rows.append([system, *("–" if value is None else f"{value:.1f}" for value in cells)])
    return rows


def _figure(worth: Worth, theme: Theme) -> "Figure":
    """A panel for each domain, side by side: what is gained over the model alone."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2.75 * len(worth) + 0.4, 3.7))
    grid = figure.subplots(1, len(worth), squeeze=False, sharey=True).ravel()
    for axes, (title, points) in zip(grid, worth.items(), strict=True):
        base = next(point.bleu for point in points if point.system == BASE)
        _panel(axes, points, base, theme)
        axes.set_title(f"{title}\n{SHOWN[BASE]}: {base:.1f}", fontsize=10)
        axes.set_xlabel("segments in the store")
    grid[0].set_ylabel("BLEU gained")
    grid[0].set_ylim(top=1.08 * grid[0].get_ylim()[1])  # room for the number above the highest point
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), handletextpad=0.5)
    return figure


def _panel(axes: "Axes", points: list[Point], base: float, theme: Theme) -> None:
    axes.axhline(0.0, color=look(BASE, BASE, theme)["color"], linestyle="--", linewidth=1.6, label=SHOWN[BASE])
    for system, label in SHOWN.items():
        mine = sorted(point for point in points if point.system == system and system != BASE)
        if mine:
            xs, ys = [point.segments for point in mine], [point.bleu - base for point in mine]
            axes.plot(xs, ys, label=label, **look(system, system, theme) | {"markersize": 5})
    last = max((point for point in points if point.system == MAIN), key=lambda point: point.segments, default=None)
    if last is not None:
        top = max(point.bleu for point in points if point.segments == last.segments) - base
        axes.annotate(
            f"+{last.bleu - base:.1f}", (last.segments, top), (-4, 7), textcoords="offset points", ha="right",
            color=look(MAIN, MAIN, theme)["color"],
        )  # fmt: skip
    log_axis(axes, [point.segments for point in points])
