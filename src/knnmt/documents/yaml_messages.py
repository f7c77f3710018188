"""YAML of i18n libraries (Rails, Symfony, Hugo): nested keys; each scalar is written in its own style again."""

import json
import re
from collections.abc import Callable, Iterator

import yaml

from knnmt.documents.content import Content
from knnmt.documents.messages import message
from knnmt.documents.patches import Patch
from knnmt.documents.unit import Entry, Heading
from knnmt.languages import closeness

_BLOCK = re.compile(r"[|>][0-9+-]*[ \t]*(?:#[^\n]*)?\r?\n")
_PROPERTIES = re.compile(r"(?:[&!]\S*\s+)+")  # an anchor, a tag
_STRING = "tag:yaml.org,2002:str"


def read_yaml(content: Content) -> Iterator[Entry]:
    """Every string value with letters, by the path of its keys."""
    try:
        documents = list(yaml.compose_all(content.text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise content.error(mark.index if mark is not None else 0, f"invalid YAML ({error.problem})") from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise content.error(getattr(error, "position", 0), f"invalid YAML ({reason})") from None
    found: list[Entry] = []
    for document in documents:
        for key, node in _scalars(document, "", set()):
            start, end = node.start_mark.index, node.end_mark.index
            properties = _PROPERTIES.match(content.text, start, end)
            start = properties.end() if properties is not None else start
            entry = message(content, key, node.value, start, end, _writer(content, node, start))
            found += [entry] if entry is not None else []
    yield from found
    root = documents[0] if len(documents) == 1 else None
    if isinstance(root, yaml.MappingNode) and len(root.value) == 1 and content.target:
        key = root.value[0][0]
        if isinstance(key, yaml.ScalarNode) and closeness(content.source, key.value):
            quote = key.style or ('"' if _loaded(content.target) != content.target else "")  # `no` is Norwegian
            patch = Patch(key.start_mark.index, key.end_mark.index, f"{quote}{content.target}{quote}")
            yield Heading(found, lambda: [patch])


def _scalars(node: yaml.Node | None, path: str, seen: set[int]) -> Iterator[tuple[str, yaml.ScalarNode]]:
    """The strings below a node; what an alias names a second time is not met again."""
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            yield from _scalars(value, f"{path}.{name}" if path else name, seen)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _scalars(value, f"{path}.{number}" if path else str(number), seen)
    elif isinstance(node, yaml.ScalarNode) and node.tag == _STRING:
        yield path, node


def _writer(content: Content, node: yaml.ScalarNode, start: int) -> Callable[[str], str]:
    """How to write a text in the place of a scalar."""
    raw = content.text[start : node.end_mark.index]
    if node.style == "'":
        return lambda text: _double(text) if "\n" in text else "'" + text.replace("'", "''") + "'"
    if node.style == '"':
        return _double
    if node.style in ("|", ">") and (head := _BLOCK.match(raw)) is not None:
        return lambda text: _block(text, head[0], raw, content.newline)

    def plain(text: str) -> str:
        flow = any(mark in text and mark not in raw for mark in ",[]{}")  # they end a scalar in `[a, b]`
        return text if not flow and _loaded(text) == text else _double(text)

    return plain


def _loaded(written: str) -> object:
    """What YAML reads where a value is written."""
    try:
        return yaml.safe_load(f"k: {written}\n")["k"]
    except (yaml.YAMLError, ValueError, TypeError, KeyError):
        return None


def _double(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _block(text: str, head: str, raw: str, newline: str) -> str:
    """A block scalar; in a folded one, each line break of the text is an empty line. In quotes, if that fails."""
    lines = raw[len(head) :].splitlines()
    indent = next((line[: len(line) - len(line.lstrip(" "))] for line in lines if line.strip()), "  ")
    between = newline if head[0] == "|" else newline + newline
    body = head + between.join(indent + line if line else "" for line in text.strip("\n").split("\n"))
    read, ending = _loaded(body), raw[len(raw.rstrip()) :]
    same = isinstance(read, str) and read.strip("\n") == text.strip("\n")
    return (body if same else _double(text)) + ending
