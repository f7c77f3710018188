"""gettext catalogs, PO and POT: messages with contexts, plural forms, flags and comments, edited in place."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from gettext import c2py

from knnmt.documents.content import Content
from knnmt.documents.patches import Patch
from knnmt.documents.plurals import plurals_of
from knnmt.documents.unit import Entry, Heading, State, Unit
from knnmt.languages import normal_tag
from knnmt.text.inline import Inline

SHARED = "msgid, if it has the number"
COLUMNS = 79  # of a wrapped line, with its quotes
_TOKEN = re.compile(
    r'(?P<space>[ \t\r\n\f]+)|(?P<comment>#[^\n]*)|"(?P<string>(?:[^"\\\n]++|\\.)*+)"'
    r"|(?P<word>(?:domain|msgctxt|msgid_plural|msgid|msgstr)(?:\s*\[\s*(?P<form>\d+)\s*\])?)"
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_UNESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_ESCAPED = {ord(text): f"\\{name}" for name, text in _UNESCAPED.items()} | {ord('"'): '\\"', ord("\\"): "\\\\"}
_LINES = re.compile(r"(?:[^\\]++|\\[^n])*+\\n|(?:[^\\]++|\\[^n])++", re.DOTALL)
_WORDS = re.compile(r"(?:[^\\ ]++|\\.)*+(?: ++|$)", re.DOTALL)
_PLURALS = re.compile(r"nplurals\s*=\s*([1-9]\d?)\s*;\s*plural\s*=\s*([^;]+)")
_FORMATS = re.compile(r"%(?:\(\w+\)|\d+\$)?[-+ #0-9.]*[a-zA-Z]|\{\w*\}|%\{\w+\}")
# the order in which the parts of a message may follow each other
_FOLLOWS = {
    "": ("msgctxt", "msgid", "domain"), "domain": ("msgctxt", "msgid", "domain"), "msgctxt": ("msgid",),
    "msgid": ("msgid_plural", "msgstr"), "msgid_plural": ("msgstr[]",),
    "msgstr": ("msgctxt", "msgid", "domain"), "msgstr[]": ("msgstr[]", "msgctxt", "msgid", "domain"),
}  # fmt: skip


@dataclass
class _String:
    """A keyword and its strings: `text[start:end]` from the keyword to the last quote."""

    start: int
    begins: int = 0  # of the first quote
    end: int = 0
    raw: list[str] = field(default_factory=list)

    @property
    def value(self) -> str:
        """The text, without escapes."""
        return _ESCAPE.sub(_unescaped, "".join(self.raw))


@dataclass
class _Message:
    comments: list[tuple[int, str]] = field(default_factory=list)  # position and text of each, without line end
    parts: dict[str, _String] = field(default_factory=dict)
    forms: dict[int, _String] = field(default_factory=dict)

    @property
    def flags(self) -> list[str]:
        """`fuzzy`, `c-format`, …"""
        found = (flag.strip() for _, text in self.comments if text.startswith("#,") for flag in text[2:].split(","))
        return [flag for flag in found if flag]


def read_po(content: Content) -> Iterator[Entry]:
    """The messages of a catalog, without its obsolete ones, and its header."""
    messages = list(_messages(content))
    header = next((each for each in messages if "msgctxt" not in each.parts and not each.parts["msgid"].value), None)
    sources, style = _sources(content, header), _Style.of([each for each in messages if each is not header])
    found = [_Catalogued(content, each, sources, style) for each in messages if each.parts["msgid"].value]
    yield from found
    if header is not None and content.target:
        yield Heading(found, partial(_header, content, header))


# ----------------------------------------------------------------------------------------------------------- parsing


def _messages(content: Content) -> Iterator[_Message]:
    text, at, last, message = content.text, 0, "", _Message()
    current: _String | None = None
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise content.error(at, _why_not(text, at))
        at = found.end()
        if found["comment"] is not None:
            if last.startswith("msgstr"):
                yield message
                message, last, current = _Message(), "", None
            if found["comment"].startswith("#~"):
                message.comments.clear()  # they are those of an obsolete message
            else:
                message.comments.append((found.start(), found["comment"].rstrip("\r")))
        elif found["string"] is not None:
            if current is None:
                raise content.error(found.start(), "a string without msgid or msgstr before it")
            current.begins = current.begins or found.start()
            current.raw.append(found["string"])
            current.end = at
        elif found["word"] is not None:
            word = found["word"].partition("[")[0].strip()
            kind = word + "[]" * (found["form"] is not None)
            if current is not None and not current.end:
                raise content.error(current.start, f"{last} without a string")
            if last.startswith("msgstr") and not kind.startswith("msgstr"):
                yield message
                message, last = _Message(), ""
            if kind not in _FOLLOWS[last]:
                raise content.error(found.start(), f"{kind} may not stand here" + f" after {last}" * bool(last))
            last, current = kind, _String(found.start())
            if kind == "msgstr[]":
                if (form := int(found["form"])) != len(message.forms):
                    raise content.error(found.start(), f"msgstr[{form}] is not the next plural form")
                message.forms[form] = current
            elif kind == "msgstr":
                message.forms[0] = current
            elif kind != "domain":
                message.parts[kind] = current
    if current is not None and not current.end:
        raise content.error(current.start, f"{last} without a string")
    if last and not last.startswith("msgstr"):
        raise content.error(len(text), f"the file ends after {last}: a message is cut off")
    if last:
        yield message


def _why_not(text: str, at: int) -> str:
    if text[at] == '"':
        return "a string that does not end on its line; close the quotes"
    word = re.match(r"\S{1,30}", text[at:])
    return f"{word[0] if word else text[at]!r} is neither a keyword of PO, a string nor a comment"


def _unescaped(found: re.Match[str]) -> str:
    name = found[1]
    if name[0] == "x" and len(name) > 1:
        return chr(int(name[1:], 16))
    return chr(int(name, 8) & 255) if name[0] in "01234567" else _UNESCAPED.get(name, name)


# ------------------------------------------------------------------------------------------------- header and plurals


def _metadata(header: _Message | None) -> dict[str, str]:
    lines = header.forms[0].value.splitlines() if header is not None else []
    pairs = (line.partition(":") for line in lines)
    return {name.strip(): value.strip() for name, _, value in pairs}


def _sources(content: Content, header: _Message | None) -> tuple[str, ...]:
    """Which text each plural form is translated from: the form of n = 1 from `msgid`, others from `msgid_plural`.

    The forms are those of the catalog's header, or if it has none, of the target language. A form that other
    numbers than 0 and 1 have too is `SHARED`: 21 in Russian, 101 in Slovene.
    """
    metadata = _metadata(header)
    language = metadata.get("Language", "").partition(".")[0].strip()
    content.require(target=normal_tag(language))
    own = _PLURALS.search(metadata.get("Plural-Forms", ""))
    rule = plurals_of(content.target or normal_tag(language or "en"))
    count, expression = (int(own[1]), own[2]) if own is not None else (rule.count, rule.expression)
    try:
        form_of = c2py(expression)
        one = form_of(1) if count > 1 else None
        shared = any(form_of(number) == one for number in range(2, 102))
    except (ValueError, ArithmeticError) as error:
        assert header is not None
        raise content.error(header.forms[0].start, f"invalid Plural-Forms ({error}); correct the header") from None
    single = SHARED if shared else "msgid"
    return tuple(single if form == one else "msgid_plural" for form in range(count))


def _source(text: dict[str, str], name: str) -> str:
    """The text of a plural form. `a day` is no text for 21 days: a shared form needs the number."""
    if name == SHARED:
        complete = sorted(_FORMATS.findall(text["msgid"])) == sorted(_FORMATS.findall(text["msgid_plural"]))
        name = "msgid" if complete else "msgid_plural"
    return text[name]


def _header(content: Content, message: _Message) -> Iterator[Patch]:
    """Give the header the target language and its plural forms, where it has none."""
    string, metadata = message.forms[0], _metadata(message)
    lines = before = [line for raw in string.raw for line in _LINES.findall(raw)]
    if not metadata.get("Language"):
        lines = _replaced(lines, "Language", content.target.replace("-", "_"))
    if not _PLURALS.search(metadata.get("Plural-Forms", "")):
        lines = _replaced(lines, "Plural-Forms", plurals_of(content.target).header)
    lines = [line.replace("charset=CHARSET", "charset=UTF-8") for line in lines]
    if lines != before:
        yield Patch(string.begins, string.end, content.newline.join(['""', *(f'"{line}"' for line in lines)]))
        yield from _flagged(content, message, fuzzy=False)


def _replaced(lines: list[str], name: str, value: str) -> list[str]:
    """Lines of a header with a field set; a new one comes last."""
    new = f"{name}: {value.translate(_ESCAPED)}\\n"
    if any(line.startswith(f"{name}:") for line in lines):
        return [new if line.startswith(f"{name}:") else line for line in lines]
    return [*lines, new]


# ------------------------------------------------------------------------------------------------------------ writing


@dataclass(frozen=True)
class _Style:
    """How a catalog breaks its lines: at a column, or only behind `\\n`."""

    wraps: bool

    @classmethod
    def of(cls, messages: list[_Message]) -> "_Style":
        strings = (string for each in messages for string in (*each.parts.values(), *each.forms.values()))
        return cls(not any(" " in raw.rstrip() and len(raw) > COLUMNS for string in strings for raw in string.raw))

    def written(self, text: str, keyword: str, newline: str) -> str:
        """A string of a message, behind its keyword."""
        lines, room = _LINES.findall(text.translate(_ESCAPED)) or [""], COLUMNS - 2
        long = self.wraps and len(keyword) + 1 + len(lines[0]) > room
        if self.wraps and (long or len(lines) > 1):
            lines = [part for line in lines for part in _wrapped(line, room)]
        if len(lines) > 1 or (long and " " in lines[0].strip()):
            lines.insert(0, "")
        return newline.join(f'"{line}"' for line in lines)


def _wrapped(line: str, room: int) -> Iterator[str]:
    row = ""
    for word in _WORDS.findall(line):
        if row and len(row) + len(word.rstrip(" ")) > room:
            yield row
            row = ""
        row += word
    if row:
        yield row


class _Catalogued(Entry):
    """A message, with a unit for each plural form of the target language."""

    def __init__(self, content: Content, message: _Message, sources_of: tuple[str, ...], style: _Style) -> None:
        self.content, self.message, self.style = content, message, style
        text = {name: string.value for name, string in message.parts.items()}
        sources = [_source(text, name) for name in sources_of] if "msgid_plural" in text else [text["msgid"]]
        targets = [string.value for string in message.forms.values()]
        done = all(targets) and len(targets) == len(sources)
        state = State.FUZZY if "fuzzy" in message.flags and any(targets) else State.TRANSLATED
        self.units = [
            Unit(
                Inline.plain(source),
                line=content.line(message.parts["msgid"].start),
                key=text.get("msgctxt", ""),
                target=Inline.plain(targets[n]) if n < len(targets) and targets[n] else None,
                state=state if done else State.UNTRANSLATED,
            )
            for n, source in enumerate(sources)
        ]

    def patches(self) -> Iterator[Patch]:
        """The strings of all forms, and the flag that asks for a review."""
        forms, newline, plural = self.message.forms, self.content.newline, "msgid_plural" in self.message.parts
        last = forms[max(forms)].end
        for number, unit in enumerate(self.units):
            keyword = f"msgstr[{number}]" if plural else "msgstr"
            written = self.style.written(_framed(unit), keyword, newline)
            if number not in forms:
                yield Patch(last, last, f"{newline}{keyword} {written}")
            elif unit.changed:
                yield Patch(forms[number].begins, forms[number].end, written)
        for number in range(len(self.units), len(forms)):
            yield Patch(forms[number - 1].end, forms[number].end, "")
        yield from _flagged(self.content, self.message, fuzzy=self.state is not State.TRANSLATED)


def _framed(unit: Unit) -> str:
    """The translation, with a line feed at either end where the source has one: gettext asks for that."""
    source, target = unit.source.text, unit.target.text if unit.target is not None else ""
    if not target:
        return target
    start, end = "\n" * source.startswith("\n"), "\n" * source.endswith("\n")
    return start + target.removeprefix("\n").removesuffix("\n") + end


def _flagged(content: Content, message: _Message, *, fuzzy: bool) -> Iterator[Patch]:
    """Set or clear `fuzzy`, and drop the previous msgid, of which the translation is none any more."""
    at, newline = message.parts.get("msgctxt", message.parts["msgid"]).start, content.newline
    flagged = "fuzzy" in message.flags
    for start, text in message.comments:
        whole = (content.text.find("\n", start) + 1) or len(content.text)
        if text.startswith("#|"):
            yield Patch(start, whole, "")
        elif (
            text.startswith("#,") and "fuzzy" in (flags := [flag.strip() for flag in text[2:].split(",")]) and not fuzzy
        ):
            left = [flag for flag in flags if flag and flag != "fuzzy"]
            new = f"#, {', '.join(left)}" if left else ""
            yield Patch(start, start + len(text) if left else whole, new)
        elif text.startswith("#,") and fuzzy and not flagged:
            yield Patch(start + 2, start + 2, " fuzzy,")
            flagged = True
    if fuzzy and not flagged:
        yield Patch(at, at, f"#, fuzzy{newline}")
