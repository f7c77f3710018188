"""The settings of a build."""

from typing import Literal

from pydantic import Field

from knnmt.align import AlignSettings
from knnmt.corpus import CleanSettings
from knnmt.search.metric import Metric
from knnmt.settings import Settings


class BuildSettings(Settings):
    """What a store is made of: another value makes another store."""

    systems: tuple[str, ...] = Field(default=(), description="the systems that the store must serve; none named: all")
    key: Literal["ffn_input", "output"] = Field(default="ffn_input", description="which decoder state is the key")
    metric: Metric = Field(default="squared", description="how states are compared")
    keys: Literal["float16", "pq"] = Field(default="float16", description="keys as they are, or product-quantized")
    cluster_size: int = Field(default=512, ge=1, description="m: source tokens a cluster, on average")
    prototype_size: int = Field(default=16, ge=1, description="entries a prototype, at most on average")
    budget: int | None = Field(
        default=None, ge=1, description="bytes that `similar` may open, text aside; default: a quarter of the keys"
    )
    k_max: int | None = Field(default=128, ge=1, description="ranked entries of a cluster; null for all")
    index: bool = Field(default=False, description="a FAISS index (IVF-PQ) for the system knn")
    # a team's own translations are no web crawl: at the paper's 1.5 a fifth of a free translation's pairs would be lost
    clean: CleanSettings | None = Field(
        default=CleanSettings(max_ratio=3.0), description="null takes every segment that fits"
    )
    align: AlignSettings = AlignSettings()
    batch_tokens: int | None = Field(
        default=None, ge=64, description="tokens of one batch of the model; default: by the device"
    )
    part_tokens: int = Field(
        default=1 << 23, ge=1, description="target tokens of a part, at most; a larger corpus is cut into several"
    )
    memory: int = Field(default=1 << 29, ge=1 << 24, description="bytes of states that clustering holds at once")
    seed: int = 1
