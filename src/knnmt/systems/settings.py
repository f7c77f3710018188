"""The settings of retrieval, as a command, a settings file or a caller gives them."""

from typing import Literal

from pydantic import AliasChoices, Field, field_validator

from knnmt.settings import ALL, Settings

# λ where tuning found nothing better than base MT: too small to change a word, and not the 0 by which one asks for
# base MT and which silences what was taught, too
SILENT = 1e-9

Adapt = Literal["constant", "distance", "learned"]


class RetrievalSettings(Settings):
    """How a store is searched, and how much its neighbours count. Distances are in the store's metric."""

    system: str = Field(default="auto", description="retrieval system; auto: the best that the store has")
    # None, or "all" where a file cannot say that: a whole cluster (faster)
    k: int | None = Field(default=16, ge=1, le=4096, description="neighbours per step")
    c: int | None = Field(
        default=None, ge=1, description="training tokens (or prototypes) per source token; default: by the system"
    )
    segments: int = Field(default=8, ge=0, description="similar training segments used whole (similar)")
    temperature: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="softmax temperature (T); default: by the store"
    )
    weight: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="maximum share of p_kNN (λ); default: by the system",
        validation_alias=AliasChoices("lambda", "weight"),  # `lambda` is a word of Python
        serialization_alias="lambda",
    )
    adapt: Adapt = Field(default="distance", description="how λ is set; learned needs tuned settings")
    reach: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="distance at which λ is 0 (τ); default: by the store"
    )
    length_penalty: float | None = Field(
        default=None,
        ge=-10,
        le=10,
        allow_inf_nan=False,
        description="divide scores by length to this power; default: by the system",
    )
    probe: int = Field(default=1, ge=1, description="nearest clusters to rank together")
    nprobe: int = Field(default=32, ge=1, description="lists to search, in a FAISS index or type of many clusters")
    index: bool = Field(default=False, description="search the store's FAISS index")

    @field_validator("k", mode="before")
    @classmethod
    def _all(cls, given: object) -> object:
        return None if given == ALL else given

    def of(self, system: str) -> "RetrievalSettings":
        """The settings for a system; where they were found for another one, what only that one takes is left out."""
        k = RetrievalSettings().k if self.k is None and system != self.system else self.k
        other = self if system == self.system else self.without_gate()
        return other.model_copy(update={"system": system, "k": k})

    def weighing(self, weight: float) -> "RetrievalSettings":
        """The settings with another λ, or maximum of it: an explicit weight disables the gate."""
        return self.without_gate().model_copy(update={"weight": weight})

    def without_gate(self) -> "RetrievalSettings":
        """The settings with λ by distance where it was learned."""
        return self if self.adapt != "learned" else self.model_copy(update={"adapt": "distance"})

    @property
    def silent(self) -> bool:
        """Whether the parts have no say: base MT, but for what was taught where λ is not 0."""
        return self.weight is not None and self.weight <= SILENT
