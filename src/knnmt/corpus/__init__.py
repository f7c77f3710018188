"""Segments in and out, and nothing about models.

`read` and `read_all` stream the segments of any known format, `clean` drops and counts what is no good
translation pair, `statistics` describes a corpus as the paper's Table 1 does.
segment.py the data · readers.py the door · lined.py, tmx.py, catalog.py the formats · files.py opening ·
clean.py, punctuation.py, stats.py what is done with segments.
"""

from knnmt.corpus.clean import CleanReport, CleanSettings, Reason, clean, count_words
from knnmt.corpus.punctuation import normalize_punctuation
from knnmt.corpus.readers import read, read_all
from knnmt.corpus.segment import Segment
from knnmt.corpus.stats import Statistics, statistics
from knnmt.languages import Languages

__all__ = [
    "CleanReport",
    "CleanSettings",
    "Languages",
    "Reason",
    "Segment",
    "Statistics",
    "clean",
    "count_words",
    "normalize_punctuation",
    "read",
    "read_all",
    "statistics",
]
