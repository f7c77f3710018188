"""JSON of i18n libraries: nested keys (i18next, Vue, Angular), Flutter's ARB, Chrome's `messages.json`."""

from collections.abc import Iterator

from knnmt.documents.content import Content
from knnmt.documents.json_tree import Node, parse, writer
from knnmt.documents.messages import message
from knnmt.documents.patches import Patch
from knnmt.documents.unit import Entry, Heading
from knnmt.languages import closeness


def read_json(content: Content) -> Iterator[Entry]:
    """Every string value with letters; of ARB and Chrome's format only the messages themselves."""
    root, write = parse(content), writer(content)
    chrome = bool(root.members) and all(
        (text := member.get("message")) is not None and text.text is not None for member in root.members
    )
    if chrome:
        texts = [(member.key, node) for member in root.members if (node := member.get("message")) is not None]
    else:
        texts = list(_strings(root, ""))
    found = [
        entry for key, node in texts if (entry := message(content, key, node.text or "", node.start, node.end, write))
    ]
    yield from found
    locale = root.get("@@locale")
    if locale is not None and locale.text and content.target and closeness(content.source, locale.text):
        tag = content.target.replace("-", "_") if "_" in locale.text else content.target
        patch = Patch(locale.start, locale.end, write(tag))
        yield Heading(found, lambda: [patch])


def _strings(node: Node, path: str) -> Iterator[tuple[str, Node]]:
    """All strings below a node with their paths, but for the metadata of ARB."""
    for number, member in enumerate(node.members):
        if member.key.startswith("@"):
            continue
        name = member.key if node.kind == "{" else str(number)
        key = f"{path}.{name}" if path else name
        if member.text is not None:
            yield key, member
        yield from _strings(member, key)
