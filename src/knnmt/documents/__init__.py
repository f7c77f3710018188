"""Files that people translate, whole in and whole out: everything but the translated texts stays to the byte."""

from knnmt.documents.document import Document, open_document
from knnmt.documents.unit import Entry, State, Unit

__all__ = ["Document", "Entry", "State", "Unit", "open_document"]
