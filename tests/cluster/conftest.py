"""The small corpus of the tests of builds, and its store."""

from ..build.conftest import built, corpus

__all__ = ["built", "corpus"]
