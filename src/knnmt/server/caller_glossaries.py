"""Glossaries that callers make over the API. Each caller sees their own; with a state folder they survive a restart."""

import csv
import io
import json
import logging
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import HTTPException
from pydantic import ValidationError

from knnmt.files import write_whole
from knnmt.languages import normal_tag
from knnmt.server.glossaries import MAX_LENGTH, TermIn
from knnmt.server.people import Caller

_log = logging.getLogger(__name__)
MOST = 1000  # glossaries of a caller
MOST_TERMS = 5000  # of a dictionary
CHARACTERS = 4 << 20  # of all terms of a caller
MAX_NAME = 1024

Languages = tuple[str, str]
Entries = tuple[TermIn, ...]


@dataclass(frozen=True)
class CallerGlossary:
    """A glossary: dictionaries by their languages, base tags in lower case as DeepL has them, such as ("de", "en")."""

    id: str
    name: str
    created: str  # ISO 8601, UTC
    dictionaries: Mapping[Languages, Entries]

    @classmethod
    def new(cls, name: str, dictionaries: Mapping[Languages, Entries]) -> "CallerGlossary":
        """A new glossary, with an id of its own."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return cls(str(uuid.uuid4()), name, now, dictionaries)

    @property
    def size(self) -> int:
        """Characters of all terms."""
        every = (term for entries in self.dictionaries.values() for term in entries)
        return sum(len(term.source) + len(term.target) for term in every)


class CallerGlossaries:
    """The glossaries of all callers, by owner and id."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._kept: dict[str, dict[str, CallerGlossary]] = {}
        if folder is not None:
            folder.mkdir(exist_ok=True, mode=0o700)
            for path in sorted(folder.glob("*.json")):
                self._load(path)

    def listed(self, caller: Caller) -> list[CallerGlossary]:
        """The glossaries of a caller, the oldest first."""
        return sorted(self._kept.get(_owner(caller), {}).values(), key=lambda one: one.created)

    def find(self, caller: Caller, id: str) -> CallerGlossary:
        """A glossary; 404 if there is none, or if it is another caller's."""
        found = self._kept.get(_owner(caller), {}).get(id)
        if found is None:
            raise HTTPException(404, "Glossary not found")
        return found

    def put(self, caller: Caller, glossary: CallerGlossary) -> CallerGlossary:
        """Add or replace a glossary; on disk when this returns, if the server has a state folder. 409 if the
        caller has too many already."""
        with self._lock:
            mine = self._kept.setdefault(_owner(caller), {})
            others = [one for one in mine.values() if one.id != glossary.id]
            if len(others) >= MOST:
                raise HTTPException(409, f"Too many glossaries: delete one of {MOST} first")
            if sum(one.size for one in others) + glossary.size > CHARACTERS:
                raise HTTPException(409, f"Glossaries too large: all of yours may have {CHARACTERS} characters")
            if self._folder is not None:
                write_whole(self._folder / f"{glossary.id}.json", _to_json(_owner(caller), glossary))
            mine[glossary.id] = glossary
        return glossary

    def remove(self, caller: Caller, id: str) -> None:
        """Delete a glossary."""
        with self._lock:
            self.find(caller, id)
            if self._folder is not None:
                (self._folder / f"{id}.json").unlink(missing_ok=True)
            del self._kept[_owner(caller)][id]

    def _load(self, path: Path) -> None:
        try:
            owner, glossary = _from_json(path.read_bytes())
        except (ValueError, KeyError, TypeError):
            _log.warning("%s is corrupt: this glossary is ignored", path)
            return
        self._kept.setdefault(owner, {})[glossary.id] = glossary


def merged(glossary: CallerGlossary, languages: Languages, entries: Entries) -> CallerGlossary:
    """The glossary with entries added to a dictionary, or put into the place of those with the same source."""
    old = {term.source: term for term in glossary.dictionaries.get(languages, ())}
    every = tuple((old | {term.source: term for term in entries}).values())
    check_count(len(every))
    return replace(glossary, dictionaries={**glossary.dictionaries, languages: every})


def base(tag: str) -> str:
    """A language as glossaries have it: `en` for `EN-US`."""
    return normal_tag(tag).partition("-")[0].lower()


def _owner(caller: Caller) -> str:
    return caller.id or ""


# ------------------------------------------------------------------------------------------------------------ entries


def parse_entries(text: str, kind: str) -> Entries:
    """The entries of a dictionary from TSV or CSV; 400 for what is no term, with its line."""
    rows = _tsv(text) if kind == "tsv" else list(csv.reader(io.StringIO(text)))
    found: dict[str, TermIn] = {}
    for number, row in enumerate(rows, start=1):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) not in (2, 4):  # CSV may name the languages in two more columns
            raise _invalid(number, "has no target" if len(row) < 2 else "has too many columns")
        try:
            term = TermIn(source=row[0], target=row[1])
        except ValidationError:
            raise _invalid(number, f"has an empty term, or one longer than {MAX_LENGTH} characters") from None
        if term.source in found:
            raise _invalid(number, "repeats a source term")
        found[term.source] = term
    if not found:
        raise HTTPException(400, "Missing or invalid argument: entries")
    check_count(len(found))
    return tuple(found.values())


def _tsv(text: str) -> list[list[str]]:
    return [line.split("\t") for line in text.split("\n")]


def _invalid(line: int, what: str) -> HTTPException:
    return HTTPException(400, f"Invalid glossary entries provided: line {line} {what}")


def check_count(terms: int) -> None:
    """Refuse a dictionary of too many terms."""
    if terms > MOST_TERMS:
        raise HTTPException(400, f"Invalid glossary entries provided: more than {MOST_TERMS} terms")


def to_tsv(entries: Entries) -> str:
    """Entries as DeepL gives them back."""
    return "\n".join(f"{term.source}\t{term.target}" for term in entries)


# ------------------------------------------------------------------------------------------------------------ on disk


def _to_json(owner: str, glossary: CallerGlossary) -> bytes:
    dictionaries = [
        {"source": source, "target": target, "entries": [[term.source, term.target] for term in entries]}
        for (source, target), entries in glossary.dictionaries.items()
    ]
    content = {"owner": owner, "id": glossary.id, "name": glossary.name, "created": glossary.created}
    return json.dumps(content | {"dictionaries": dictionaries}, ensure_ascii=False).encode()


def _from_json(content: bytes) -> tuple[str, CallerGlossary]:
    given: dict[str, Any] = json.loads(content)
    dictionaries = {
        (str(each["source"]), str(each["target"])): tuple(TermIn(source=s, target=t) for s, t in each["entries"])
        for each in given["dictionaries"]
    }
    glossary = CallerGlossary(str(given["id"]), str(given["name"]), str(given["created"]), dictionaries)
    return str(given["owner"]), glossary
