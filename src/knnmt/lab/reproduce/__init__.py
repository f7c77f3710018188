"""A whole experiment from one file: stores, tuned settings, translations, scores, sizes and times.

config.py what is asked for · run.py the steps, each kept as soon as it is done · score.py metrics and paired bootstrap
· results.py what comes out. Needs torch, numpy, transformers, pydantic, sacrebleu; numba too, unless links are given.
"""

from knnmt.lab.reproduce.config import Config
from knnmt.lab.reproduce.results import Results
from knnmt.lab.reproduce.run import reproduce

__all__ = ["Config", "Results", "reproduce"]
