"""Word alignment: which source token each target token translates.

bitext.py the data · fastalign.py the model: train, align, save · links.py symmetrise both directions, and cover every
target token · pharaoh.py links from other tools · kernels.py the compiled loops.
"""

from knnmt.align.bitext import Bitext, Links
from knnmt.align.fastalign import Aligner, AlignSettings, train
from knnmt.align.links import cover, symmetrise
from knnmt.align.pharaoh import pharaoh_lines, read_pharaoh, write_pharaoh

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
