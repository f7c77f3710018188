"""Quality against a setting of the build: what variants of a domain, built in other ways, make of the same texts."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from knnmt.build.settings import BuildSettings
from knnmt.lab.report.plots import MEGABYTE, Plot, log_axis, look
from knnmt.lab.report.tables import model_name
from knnmt.lab.report.theme import Theme
from knnmt.lab.reproduce.config import BASE, REFERENCE
from knnmt.lab.reproduce.results import Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# what m is to a system: the setting of a build that says how many tokens or entries are put together
M = {"proto": "prototype_size", "faster": "cluster_size", "faster-exact": "cluster_size"}


class Point(NamedTuple):
    """A system of a store: what it scored, what it opened, and the m of its build."""

    name: str
    system: str
    bleu: float
    interval: float
    bytes: int
    m: int


Panels = dict[str, list[Point]]  # by the title of the domain


def of_variants(results: Sequence[Results]) -> Iterator[Plot]:
    """The pictures of those domains that have variants, in whichever of the experiments these stand."""
    panels = found(results)
    by_m = {title: some for title, some in panels.items() if _varied(some)}
    if by_m:
        yield Plot(
            "quality-m",
            "Quality against m",
            "BLEU on test with its 95% interval, against m: the tokens of a cluster of Faster, or the entries of a "
            "prototype, on average. A store is built, and tuned, for each m. Dashed: base MT and exact kNN-MT.",
            partial(_figure, by_m, _m_panel, "m"),
        )
    sized = {title: some for title, some in panels.items() if _resized(some)}
    if sized:
        yield Plot(
            "quality-built-size",
            "Quality against the size of the store, built smaller and larger",
            "BLEU on test, against the bytes of the arrays that a system opens. A line joins stores of one system, "
            "built of the same texts for other sizes. The dashed line is base MT.",
            partial(_figure, sized, _size_panel, "store opened, MB"),
        )


def _varied(points: list[Point]) -> list[str]:
    """The systems with several m."""
    return [name for name in M if len({point.m for point in points if point.name == name}) > 1]


def _resized(points: list[Point]) -> bool:
    """Whether a system has stores of several sizes."""
    return len({(point.name, point.bytes) for point in points}) > len({point.name for point in points})


def only_variants(results: Results) -> bool:
    """Whether an experiment has nothing but variants of others' domains."""
    domains = results.config.get("domains", [])
    return bool(domains) and all(domain.get("variant_of") for domain in domains)


def found(results: Sequence[Results]) -> Panels:
    """All systems of the domains that have variants, by the title of the domain. A variant with other train texts is
    another matter."""
    models = list(dict.fromkeys(model_name(one) for one in results))
    points: dict[tuple[str, str], list[Point]] = {}
    titles: dict[tuple[str, str], str] = {}
    varied = set()
    train = {each["name"]: each.get("train") for one in results for each in one.config.get("domains", [])}
    for one in results:
        domains = {each["name"]: each for each in one.config.get("domains", [])}
        usual = one.config.get("build", {})
        for domain in one.domains:
            asked = domains.get(domain.name, {})
            name = asked.get("variant_of") or domain.name
            place = model_name(one), name
            if name != domain.name:
                if asked.get("train") != train.get(name, asked.get("train")):
                    continue
                varied.add(place)
            elif place not in titles:
                titles[place] = domain.title
            built = usual | asked.get("build", {})
            for called, system in domain.systems.items():
                metric = next(metric for metric in system.metrics if metric.metric == "BLEU")
                field = M.get(system.system, "prototype_size")
                m = built.get(field, BuildSettings.model_fields[field].default)
                points.setdefault(place, []).append(
                    Point(called, system.system, metric.value, metric.interval, system.bytes, m)
                )
    return {
        titles.get(place, place[1]) + (f", {place[0]}" if len(models) > 1 else ""): some
        for place, some in points.items()
        if place in varied
    }


def _figure(panels: Panels, panel: "Callable[[Axes, list[Point], Theme], None]", label: str, theme: Theme) -> "Figure":
    """A panel for each domain, side by side, and one legend below."""
    from matplotlib.figure import Figure

    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(8.6, 3.2 * lines + 0.9))
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    shown: dict[str, Any] = {}
    for axes, (title, points) in zip(grid, panels.items(), strict=False):
        panel(axes, points, theme)
        axes.set_title(title)
        axes.set_xlabel(label)
        axes.set_ylabel("BLEU")
        shown |= {text: handle for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)}
    for axes in grid[len(panels) :]:
        axes.remove()
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=5, handletextpad=0.5)
    return figure


def _m_panel(axes: "Axes", points: list[Point], theme: Theme) -> None:
    for reference in (BASE, REFERENCE):
        if same := next((point for point in points if point.name == reference), None):
            colour = look(reference, reference, theme)["color"]
            axes.axhline(same.bleu, color=colour, linestyle="--", linewidth=1.4, label=reference)
    every = set()
    for name in _varied(points):
        mine = sorted({point.m: point for point in points if point.name == name}.values(), key=lambda point: point.m)
        values = [point.m for point in mine]
        every |= set(values)
        axes.errorbar(
            values, [point.bleu for point in mine], [point.interval for point in mine], label=name, elinewidth=1,
            capsize=2, **look(name, name, theme),
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(every), [f"{value:,}" for value in sorted(every)])
    axes.minorticks_off()


def _size_panel(axes: "Axes", points: list[Point], theme: Theme) -> None:
    base = next(point for point in points if point.system == BASE)
    axes.axhline(base.bleu, color=look(BASE, BASE, theme)["color"], linestyle="--", linewidth=1.4, label=BASE)
    sized = [point for point in points if point.bytes]
    for name in dict.fromkeys(point.name for point in sized):
        mine = sorted((point for point in sized if point.name == name), key=lambda point: point.bytes)
        xs, ys = [point.bytes / MEGABYTE for point in mine], [point.bleu for point in mine]
        axes.plot(xs, ys, label=name, **look(mine[0].system, name, theme))
    log_axis(axes, [point.bytes / MEGABYTE for point in sized])
