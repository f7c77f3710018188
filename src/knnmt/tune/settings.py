"""The settings of `knnmt tune`."""

from typing import Literal

from pydantic import Field

from knnmt.decode.settings import TranslateSettings
from knnmt.settings import Settings
from knnmt.systems.settings import Adapt

ADAPT: dict[str, tuple[Adapt, ...]] = {
    "constant": ("constant",),
    "distance": ("distance",),
    "both": ("constant", "distance"),
    "learned": ("distance", "learned"),  # which it is built on
    "all": ("constant", "distance", "learned"),
}


class TuneSettings(Settings):
    """What is searched, and what it is judged by."""

    system: str = Field(default="auto", description="system to tune; auto: the best of the store")
    limit: int | None = Field(default=None, ge=1, description="use the first N segments only")
    decoded: int = Field(
        default=6, ge=1, le=100, description="settings to decode with, best likelihood first, and as many near the best"
    )
    beam: int = Field(default=5, ge=1, le=64, description="beam size; 1 is greedy search")
    adapt: Literal["constant", "distance", "both", "learned", "all"] = Field(
        default="all", description="how λ is set: constant, by distance, both, learned by a gate, or all three"
    )
    exclude_overlaps: bool = Field(default=True, description="ignore segments of the store that overlap dev")

    @property
    def kinds(self) -> tuple[Adapt, ...]:
        """The kinds of λ to try."""
        return ADAPT[self.adapt]

    @property
    def translate(self) -> TranslateSettings:
        """How the dev set is translated."""
        return TranslateSettings(beam=self.beam, batch_size=64, spans=False, sentences=False)
