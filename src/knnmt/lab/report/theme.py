"""Colours for light and dark that people with any colour vision can tell apart, and how a plot becomes files."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knnmt import optional

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 160
MARKERS = ("s", "o", "^", "v", "D", "P", "X", "p")


@dataclass(frozen=True)
class Theme:
    """Colours: text, quiet text, grid, background, and those of series, which also have a marker each."""

    ink: str
    quiet: str
    grid: str
    paper: str
    series: tuple[str, ...]

    @property
    def colours(self) -> dict[str, str]:
        """All of them by name."""
        single = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "series"}
        return single | {f"series-{number}": colour for number, colour in enumerate(self.series)}


# after Okabe and Ito, darker or lighter where the background asks for it; the first is base MT
LIGHT = Theme("#1c2126", "#59626c", "#dfe3e7", "#ffffff", (
    "#5f6a75", "#0064a8", "#00815e", "#3d9fd6", "#c94f00", "#b3568c", "#9c7400", "#3a3a98",
))  # fmt: skip
DARK = Theme("#e8eaed", "#a3adb8", "#363d45", "#15191d", (
    "#aab4be", "#5aaeff", "#2fce9d", "#9adcff", "#ff9148", "#f2a3cd", "#f0c419", "#a8a6ff",
))  # fmt: skip
# stands for both in an SVG: each colour is a mark that a variable of CSS takes the place of
MARKED = Theme("#010a01", "#010a02", "#010a03", "#010a04", tuple(f"#010b{n:02x}" for n in range(len(LIGHT.series))))

Draw = Callable[[Theme], "Figure"]


def require() -> None:
    """Refuse to draw without matplotlib."""
    optional.require("matplotlib", extra="plot")


def variables() -> str:
    """The colours as CSS variables, for both schemes; meant to stand inside a rule."""
    light, dark = (" ".join(f"--{k}: {v};" for k, v in theme.colours.items()) for theme in (LIGHT, DARK))
    return f":root {{ {light} }} @media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}"


def save(draw: Draw, folder: Path, name: str) -> str:
    """Write NAME.svg, which follows the viewer's scheme, NAME.png and NAME-dark.png; gives the SVG for a page."""
    import matplotlib

    for theme, ending in ((LIGHT, ".png"), (DARK, "-dark.png")):
        with matplotlib.rc_context(_style(theme)):
            draw(theme).savefig(folder / f"{name}{ending}", dpi=DPI, format="png")
    written = io.StringIO()
    with matplotlib.rc_context(_style(MARKED) | {"svg.fonttype": "none", "svg.hashsalt": name}):
        draw(MARKED).savefig(written, format="svg", metadata={"Date": None})
    inline = _inline(written.getvalue())
    whole = inline.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    whole = whole.replace(">", f"><style>{variables()}</style>", 1)
    (folder / f"{name}.svg").write_text(whole, encoding="utf-8")
    return inline


def _inline(svg: str) -> str:
    """An SVG as it can stand in a page, several of them too: no names of its own but those it refers to."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\s(?:xmlns(?::\w+)?|version)="[^"]*"', "", svg).replace("xlink:href", "href")
    svg = re.sub(r'\swidth="[\d.]+pt" height="[\d.]+pt"', "", svg, count=1)
    referred = set(re.findall(r"(?:href=\"#|url\(#)([\w.-]+)", svg))
    svg = re.sub(r'\sid="([\w.-]+)"', lambda found: found[0] if found[1] in referred else "", svg)
    for key, mark in MARKED.colours.items():
        svg = svg.replace(mark, f"var(--{key})")
    return svg.strip()


def _style(theme: Theme) -> dict[Any, Any]:
    return {
        "figure.facecolor": theme.paper, "savefig.facecolor": theme.paper, "axes.facecolor": theme.paper,
        "text.color": theme.ink, "axes.labelcolor": theme.ink, "axes.titlecolor": theme.ink,
        "axes.edgecolor": theme.quiet, "xtick.color": theme.quiet, "ytick.color": theme.quiet,
        "xtick.labelcolor": theme.ink, "ytick.labelcolor": theme.ink,
        "axes.grid": True, "grid.color": theme.grid, "grid.linewidth": 0.8, "axes.axisbelow": True,
        "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 11, "axes.titleweight": "bold",
        "axes.titlelocation": "left", "font.size": 10, "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"], "lines.linewidth": 1.8, "lines.markersize": 7,
        "legend.frameon": False, "figure.constrained_layout.use": True, "figure.constrained_layout.h_pad": 0.09,
        "figure.constrained_layout.w_pad": 0.09,
    }  # fmt: skip
