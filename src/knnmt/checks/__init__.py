"""What a reviewer wants to know of translations: placeholders, tags, numbers, punctuation, terms and the like.

`check` compares a text with its translation, `review` the units of whole files. Nothing is changed.
"""

from knnmt.checks.pair import Finding
from knnmt.checks.table import KINDS, check

__all__ = ["KINDS", "Finding", "check"]
