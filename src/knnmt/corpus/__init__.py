"""Parallel corpora: reading, cleaning, statistics, writing. Knows nothing about models.

`read` and `read_all` stream the segments of any known format, `files_of` lists the files they would open, `clean`
drops and counts bad pairs (`unfit` is its length rule, for callers that count tokens themselves), `statistics`
describes a corpus as the paper's Table 1 does.
segment.py the data · readers.py all formats · line_formats.py, tmx.py, catalog.py one format each · files.py opening ·
naming.py corpora on a command line · identify.py languages · clean.py, punctuation.py, stats.py · writers.py export.
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
