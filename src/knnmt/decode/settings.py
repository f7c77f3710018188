"""The settings of a translation: of the search, and of text that the model cannot take whole."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from knnmt.settings import Settings
from knnmt.text.spans import ON, RULES


class TranslateSettings(Settings):
    """How to search, and what to do with text that the model cannot take whole."""

    beam: int = Field(default=5, ge=1, le=64, description="beam size; 1 is greedy search")
    n_best: int = Field(default=1, ge=1, description="translations per text, at most the beam size")
    length_penalty: float | None = Field(
        default=None,
        ge=-10,
        le=10,
        allow_inf_nan=False,
        description="divide scores by length to this power; default: the store's, or the model's",
    )
    max_length: int | None = Field(
        default=None, ge=2, description="maximum tokens per translation; default: by source length"
    )
    batch_size: int | None = Field(
        default=None, ge=1, le=16384, description="texts per batch; default: by the device, 32 on a CPU"
    )
    long: Literal["split", "refuse"] = Field(default="split", description="split overlong text, or refuse it")
    exact: bool = Field(
        default=True,
        description="use the store's translation of a text it contains verbatim",  # and no other text so
    )
    sentences: bool = Field(default=True, description="translate a text sentence by sentence")
    spans: bool = Field(default=True, description="protect placeholders, tags, numbers and the like")
    protect: tuple[str, ...] = Field(
        default=(),
        description="kinds of spans to protect; default: all but colon",  # for :name
    )
    stop_loops: bool = Field(default=False, description="stop a translation that repeats itself")
    evidence: bool = Field(default=False, description="record the evidence behind each token")

    @property
    def protected(self) -> frozenset[str]:
        """The kinds of spans to protect."""
        return frozenset(self.protect) or ON

    @field_validator("protect")
    @classmethod
    def _known(cls, kinds: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [kind for kind in kinds if kind not in RULES]:
            raise ValueError(f"there are no spans {unknown[0]!r}: use {', '.join(RULES)}")
        return kinds

    @model_validator(mode="after")
    def _fits(self) -> "TranslateSettings":
        if self.n_best > self.beam:
            raise ValueError(f"{self.n_best} translations per text need a beam of that size, not {self.beam}")
        return self
