"""Word alignment: which source token each target token translates.

bitext.py the data · fastalign.py the model: train, align, save · links.py two directions into one, and
links for every target token · pharaoh.py links made elsewhere · kernels.py the compiled loops.
Importing this needs only NumPy; numba is loaded by training and aligning.
"""

from typing import TYPE_CHECKING, Any

from knnmt.align.bitext import Bitext, Links
from knnmt.align.links import cover, symmetrise
from knnmt.align.pharaoh import pharaoh_lines, read_pharaoh, write_pharaoh

if TYPE_CHECKING:
    from knnmt.align.fastalign import Aligner, AlignSettings, train

__all__ = [
    "AlignSettings",
    "Aligner",
    "Bitext",
    "Links",
    "cover",
    "pharaoh_lines",
    "read_pharaoh",
    "symmetrise",
    "train",
    "write_pharaoh",
]


def __getattr__(name: str) -> Any:
    """Import pydantic and safetensors only when the model is asked for."""
    if name in ("AlignSettings", "Aligner", "train"):
        from knnmt.align import fastalign

        return getattr(fastalign, name)
    raise AttributeError(f"module 'knnmt.align' has no attribute {name!r}")
