"""TMX 1.1 to 1.4b, the exchange format of translation memories, streamed unit by unit.

Files may come from untrusted sources: entities are not expanded, DTDs are not loaded, and a DOCTYPE with an internal
subset is refused.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from knnmt.corpus.files import opened
from knnmt.corpus.segment import Found, Segment
from knnmt.errors import DataError, UsageError
from knnmt.languages import Languages, closeness

if TYPE_CHECKING:
    from lxml.etree import _Element

# Their content is code of the original format (`<b>`, `\\f1`), not text.
_CODES = frozenset({"bpt", "ept", "ph", "it", "ut"})
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
# A DOCTYPE with an internal subset: `<!DOCTYPE tmx SYSTEM "tmx14.dtd" [`.
_SUBSET = re.compile(r"""\s*<!DOCTYPE(?:[^>\["']|"[^"]*"|'[^']*')*\[""")
_CHANGED = ("changedate", "creationdate")


def read_tmx(path: Path, languages: Languages) -> Iterator[Found]:
    """Stream the units that have both languages; it is an error if no unit has.

    Of several matching variants, one with exactly the requested tag wins, then the first in the file.
    """
    present: set[str] = set()
    units = pairs = 0
    for unit in _units(path):
        units += 1
        variants = [(_language(v), v) for v in unit.iterchildren("{*}tuv")]
        present.update(tag for tag, _ in variants if tag)
        source = _best(variants, languages.source)
        target = _best(variants, languages.target)
        if source is None or target is None:
            continue
        pairs += 1
        name = unit.get("tuid")
        place = f"{path}#{name or units}"
        try:
            found: Found = Segment(_text(source, place), _text(target, place), place, name, _date(target, unit))
        except DataError as fault:
            found = fault
        yield found
    if units and not pairs:
        raise UsageError(
            f"{path}: none of its {units} units has both {languages.source} and {languages.target}; "
            f"choose two of its languages: {', '.join(sorted(present)) or 'none'}"
        )


def _units(path: Path) -> Iterator["_Element"]:
    """Stream the `tu` elements, freeing each after use."""
    from lxml import etree

    with opened(path) as file:
        if not file.read(1):
            return
        file.seek(0)
        events = etree.iterparse(
            file,
            events=("start", "end"),
            tag=("{*}tmx", "{*}tu"),
            resolve_entities=False,
            no_network=True,
            load_dtd=False,
            huge_tree=False,
            remove_comments=True,
            remove_pis=True,
        )
        try:
            is_tmx = False
            for event, element in events:
                if not is_tmx:
                    _require_tmx(element, path)
                    is_tmx = True
                if event == "end" and element.getparent() is not None:
                    yield element
                    _free(element)
            if not is_tmx:
                _require_tmx(events.root, path)
        except etree.XMLSyntaxError as error:
            # The log has the first error; the exception may be a consequence of it.
            first = next(iter(events.error_log), None)
            line, reason = (first.line, first.message) if first else (error.lineno, error.msg)
            raise DataError(f"{path}:{line}: invalid XML ({' '.join(reason.split())}); export the file again") from None


def _require_tmx(element: "_Element", path: Path) -> None:
    """Check the DOCTYPE and the root, both known when the first element starts."""
    from lxml import etree

    tree = element.getroottree()
    if _SUBSET.match(etree.tostring(tree, encoding="unicode")):
        raise DataError(
            f"{path}: the DOCTYPE has an internal subset, which TMX does not need and attacks use; "
            f"remove everything from [ to ] in the DOCTYPE"
        )
    name = _local(tree.getroot())
    if name != "tmx":
        raise DataError(f"{path}: the root element is <{name}>, not <tmx>; export the memory as TMX")


def _free(element: "_Element") -> None:
    element.clear()
    parent = element.getparent()
    if parent is not None:
        while element.getprevious() is not None:
            del parent[0]


def _local(element: "_Element") -> str:
    return str(element.tag).rpartition("}")[2]


def _language(variant: "_Element") -> str:
    """The language tag: `xml:lang` (TMX 1.4) or `lang` (earlier versions)."""
    return variant.get(_XML_LANG) or variant.get("lang") or ""


def _best(variants: list[tuple[str, "_Element"]], asked: str) -> "_Element | None":
    best, rank = None, 0
    for tag, variant in variants:
        if (near := closeness(asked, tag)) > rank:
            best, rank = variant, near
    return best


def _date(variant: "_Element", unit: "_Element") -> str | None:
    """When the translation was last changed: the dates of the target, else those of the unit."""
    dates = (element.get(name) for element in (variant, unit) for name in _CHANGED)
    return next((date for date in dates if date), None)


def _text(variant: "_Element", place: str) -> str:
    """The text of a variant's `seg`, without inline codes.

    The content of `hi` is text. That of `bpt ept ph it ut` is code and is dropped, together with any `sub`: a sub-flow
    (a footnote, the text of an attribute) is not part of the sentence.
    """
    seg = next(variant.iterchildren("{*}seg"), None)
    if seg is None:
        return ""
    if len(seg) == 0:
        return seg.text or ""
    pieces: list[str] = []
    _collect(seg, pieces, place)
    return "".join(pieces)


def _collect(element: "_Element", pieces: list[str], place: str) -> None:
    pieces.append(element.text or "")
    for child in element:
        if not isinstance(child.tag, str):
            raise DataError(f"{place}: undeclared entity {child.text}; write the character itself")
        tail = child.tail or ""
        if (name := _local(child)) not in _CODES:
            _collect(child, pieces, place)
        elif name == "ph" and _ends_in_word(pieces) and tail[:1].isalnum():
            pieces.append(" ")  # a placeholder such as a line break separates words
        pieces.append(tail)


def _ends_in_word(pieces: list[str]) -> bool:
    last = next((piece for piece in reversed(pieces) if piece), "")
    return last[-1:].isalnum()
