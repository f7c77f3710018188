"""Findings for other tools: JSON, SARIF 2.1.0 (code scanning), JUnit XML (continuous integration)."""

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape, quoteattr

from knnmt.checks.review import Located

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def as_json(found: Sequence[Located]) -> str:
    """A list of objects."""
    return json.dumps([each._asdict() for each in found], ensure_ascii=False, indent=2)


def as_sarif(found: Sequence[Located], version: str) -> str:
    """A log of one run, with a rule for each kind."""
    kinds = sorted({each.kind for each in found})
    driver = {"name": "knnmt", "version": version, "rules": [{"id": kind} for kind in kinds]}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": [_result(each) for each in found]}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, ensure_ascii=False, indent=2)


def _result(each: Located) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": quote(each.file.replace("\\", "/"))}}
    if each.line:
        place["region"] = {"startLine": each.line}
    location: dict[str, Any] = {"physicalLocation": place}
    if each.key:
        location["logicalLocations"] = [{"name": each.key}]
    return {"ruleId": each.kind, "level": "warning", "message": {"text": each.message}, "locations": [location]}


def as_junit(found: Sequence[Located], files: Sequence[str], kinds: Collection[str]) -> str:
    """A suite for each file, with a test for each kind of check."""
    by_file: defaultdict[tuple[str, str], list[Located]] = defaultdict(list)
    for each in found:
        by_file[each.file, each.kind].append(each)
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>"]
    for file in files:
        failed = sum((file, kind) in by_file for kind in kinds)
        lines.append(f'  <testsuite name={_attribute(file)} tests="{len(kinds)}" failures="{failed}">')
        for kind in kinds:
            lines += _case(file, kind, by_file[file, kind])
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>"])


def _case(file: str, kind: str, found: Sequence[Located]) -> list[str]:
    start = f"    <testcase classname={_attribute(file)} name={_attribute(kind)}"
    if not found:
        return [f"{start}/>"]
    told = "\n".join(escape(_printable(str(each))) for each in found)
    message = f"{len(found)} finding{'s' * (len(found) > 1)}"
    return [f'{start}><failure type="{kind}" message="{message}">{told}</failure></testcase>']


def _attribute(text: str) -> str:
    return quoteattr(_printable(text))


def _printable(text: str) -> str:
    """A text without the characters that XML has no way to write."""
    return "".join(sign if sign >= " " or sign in "\t\n" else "\ufffd" for sign in text)
