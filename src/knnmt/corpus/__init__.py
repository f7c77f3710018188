"""Segments in and out, and nothing about models.

`read` and `read_all` stream the segments of any known format, `files_of` names the files they come from,
`clean` drops and counts what is no good translation pair (`unfit` is its rule of lengths, for callers with
their own counts), `statistics` describes a corpus as the paper's Table 1 does.
segment.py the data · readers.py the door · lined.py, tmx.py, catalog.py the formats · files.py opening ·
clean.py, punctuation.py, stats.py what is done with segments.
"""

from knnmt.corpus.clean import CleanReport, CleanSettings, Reason, clean, cleaned, count_words, unfit
from knnmt.corpus.punctuation import normalize_punctuation
from knnmt.corpus.readers import files_of, read, read_all
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
    "cleaned",
    "count_words",
    "files_of",
    "normalize_punctuation",
    "read",
    "read_all",
    "statistics",
    "unfit",
]
