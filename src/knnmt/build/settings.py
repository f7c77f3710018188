"""The settings of a build."""

from typing import Literal

from pydantic import Field, field_validator

from knnmt.align.settings import AlignSettings
from knnmt.corpus import CleanSettings
from knnmt.settings import ALL, Metric, Settings


class BuildSettings(Settings):
    """What a store is made of: another value makes another store. Sizes are in bytes."""

    systems: tuple[str, ...] = Field(default=(), description="system to build for; repeatable; default: all")
    key: Literal["ffn_input", "output"] = Field(default="ffn_input", description="decoder state used as key")
    metric: Metric = Field(default="squared", description="distance between states")
    keys: Literal["float16", "pq"] = Field(
        default="float16", description="precision of the keys; pq: product-quantized"
    )
    cluster_size: int = Field(default=512, ge=1, description="mean source tokens per cluster (m)")
    split_clusters: bool = Field(default=True, description="split clusters of more than 2m tokens again")
    prototype_size: int = Field(default=16, ge=1, description="maximum mean entries per prototype")
    budget: int | None = Field(
        default=None,
        ge=1,
        json_schema_extra={"unit": "MB"},
        description="size limit of narrow keys, text aside; default: a quarter of 16-bit keys",
    )
    k_max: int | None = Field(default=128, ge=1, description='ranked entries per cluster; null or "all": all')
    index: bool = Field(default=False, description="add a FAISS index")
    # a team's own translations are no web crawl: at the paper's 1.5 a fifth of a free translation's pairs would be lost
    clean: CleanSettings | None = Field(
        default=CleanSettings(max_ratio=3.0), description="filters; null keeps every segment that fits"
    )
    align: AlignSettings = AlignSettings()
    batch_tokens: int | None = Field(
        default=None, ge=64, description="tokens per batch of the model; default: by the device"
    )
    part_tokens: int = Field(default=1 << 23, ge=1, description="maximum target tokens per part")
    memory: int = Field(
        default=1 << 29, ge=1 << 24, json_schema_extra={"unit": "MiB"}, description="memory for clustering"
    )
    seed: int = Field(default=1, description="random seed of clustering")

    @field_validator("k_max", mode="before")
    @classmethod
    def _all(cls, given: object) -> object:
        return None if given == ALL else given
