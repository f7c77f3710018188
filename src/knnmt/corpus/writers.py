"""Export of segments as TMX, TSV and JSONL, streamed; the readers return the same texts.

Characters that a format cannot represent are replaced by a space or dropped: tabs, line ends and NULs in TSV, control
characters in XML.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Literal
from xml.sax.saxutils import escape, quoteattr

from knnmt import __version__
from knnmt.corpus.segment import Segment
from knnmt.corpus.signature import signature
from knnmt.languages import Languages

Kind = Literal["tmx", "tsv", "jsonl"]

# What XML 1.0 cannot represent, not even escaped.
_NO_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_BREAKS = re.compile("[\0\t\n\r]+")
_SURROGATE = re.compile("[\ud800-\udfff]")
# A store numbers segments without an id of their own, as «#16»: meaningless elsewhere.
_NUMBER = re.compile(r"#\d+")
_TMX_DATE = re.compile(r"\d{8}T\d{6}Z")
PIECE = 1 << 16  # characters per piece, at least


def write(segments: Iterable[Segment], out: BinaryIO, kind: Kind, languages: Languages) -> int:
    """Write segments and return how many there were."""
    count = 0

    def counted() -> Iterator[Segment]:
        nonlocal count
        for segment in segments:
            count += 1
            yield segment

    for piece in pieces(counted(), kind, languages):
        out.write(piece)
    return count


def pieces(segments: Iterable[Segment], kind: Kind, languages: Languages) -> Iterator[bytes]:
    """Stream a file of segments in pieces of about 64 KiB."""
    head, line, foot = _FORMATS[kind](languages)
    held, size = [head], len(head)
    for segment in segments:
        held.append(line(segment))
        size += len(held[-1])
        if size >= PIECE:
            yield "".join(held).encode()
            held, size = [], 0
    held.append(foot)
    if last := "".join(held):
        yield last.encode()


_Format = tuple[str, Callable[[Segment], str], str]  # header, each segment, footer


def _tmx(languages: Languages) -> _Format:
    head = (
        '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4">\n'
        f'  <header creationtool="knnmt" creationtoolversion={quoteattr(__version__)} segtype="sentence" o-tmf="knnmt" '
        f'adminlang="en" srclang={quoteattr(languages.source)} datatype="plaintext"/>\n  <body>\n'
    )
    return head, lambda segment: _unit(segment, languages), "  </body>\n</tmx>\n"


def _unit(segment: Segment, languages: Languages) -> str:
    name, taught = _own_id(segment), signature(segment.origin)
    identity = f" tuid={_attribute(name)}" if name else ""
    dated = f' changedate="{segment.date}"' if segment.date and _TMX_DATE.fullmatch(segment.date) else ""
    if taught.author is not None and taught.date is not None:
        day = taught.date.replace("-", "").replace(":", "")
        dated = f' creationdate="{day}" creationid={_attribute(taught.author)}{dated}'
    origin = f'      <prop type="x-origin">{_xml(taught.origin)}</prop>\n' if taught.origin else ""
    return (
        f"    <tu{identity}>\n"
        f"{origin}"
        f"      <tuv xml:lang={quoteattr(languages.source)}><seg>{_xml(segment.source)}</seg></tuv>\n"
        f"      <tuv xml:lang={quoteattr(languages.target)}{dated}><seg>{_xml(segment.target)}</seg></tuv>\n"
        "    </tu>\n"
    )


def _attribute(text: str) -> str:
    return quoteattr(_NO_XML.sub("", text))


def _xml(text: str) -> str:
    return escape(_NO_XML.sub("", text), {"\r": "&#13;"})  # a bare carriage return is read as a line feed


def _tsv(languages: Languages) -> _Format:
    return "", _row, ""


def _row(segment: Segment) -> str:
    cells = [segment.source, segment.target, *([name] if (name := _own_id(segment)) else [])]
    return "\t".join(_SURROGATE.sub("", _BREAKS.sub(" ", cell)) for cell in cells) + "\n"


def _jsonl(languages: Languages) -> _Format:
    return "", _object, ""


def _object(segment: Segment) -> str:
    record = {"source": segment.source, "target": segment.target}
    if name := _own_id(segment):
        record["id"] = name
    if segment.origin:
        record["origin"] = segment.origin
    return json.dumps({key: _SURROGATE.sub("", text) for key, text in record.items()}, ensure_ascii=False) + "\n"


def _own_id(segment: Segment) -> str | None:
    return segment.id if segment.id and not _NUMBER.fullmatch(segment.id) else None


_FORMATS: dict[Kind, Callable[[Languages], _Format]] = {"tmx": _tmx, "tsv": _tsv, "jsonl": _jsonl}
