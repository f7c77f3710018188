"""The settings of word alignment."""

from pydantic import Field

from knnmt.settings import Settings


class AlignSettings(Settings):
    """Settings of the aligner. The defaults are FastAlign's."""

    iterations: int = Field(default=5, ge=2, description="passes over the corpus; the last one aligns")
    p0: float = Field(default=0.08, ge=0, lt=1, description="probability of the null word")
    alpha: float = Field(default=0.01, gt=0, description="concentration of the symmetric Dirichlet prior")
    sample: int = Field(default=1 << 18, ge=1, description="maximum segments that the parameters are fitted on")
    cover: bool = Field(default=True, description="link unaligned target tokens like their neighbours")
