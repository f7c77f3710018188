"""Reports whose drawings are not looked at."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def vectors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures are drawn once, as SVG. Of each there are two more, of the same drawing in pixels."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    save = figure.savefig

    def savefig(self: Any, place: Any, **options: Any) -> None:
        if options["format"] == "png":
            Path(place).touch()
        else:
            save(self, place, **options)

    monkeypatch.setattr(figure, "savefig", savefig)
