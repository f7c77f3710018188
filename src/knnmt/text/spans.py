"""Which parts of a text are protected: a table of rules, each with a name by which it is switched on and off."""

import re
from functools import lru_cache
from typing import NamedTuple

from knnmt.text.icu import closing
from knnmt.text.numbers import DIGITS
from knnmt.text.scripts import foreign


class Span(NamedTuple):
    """A protected part of a text."""

    start: int
    end: int
    kind: str  # the name of its rule


ENDINGS = "conf|csv|css|docx?|exe|gif|html?|ini|java|jpe?g|js|json|log|md|odt|pdf|php|png|po|pptx?|py|rb|rst|sh|sql"
ENDINGS += "|svg|tar|tgz|toml|tsx?|txt|xlsx?|xml|ya?ml|zip"

# In this order: what stands further up wins where two begin at one place.
RULES: dict[str, str] = {
    "code": r"`[^`\n]+`",
    "mustache": r"\{\{[^{}\n]*\}\}|\{%[^{}\n]*%\}",
    "tag": r"</?[A-Za-z][\w:.-]*(?:\s[^<>]*)?/?>|<!--[^<>]*-->",
    "url": r"(?:https?|ftps?|file|mailto|ssh|git)://?[^\s<>\"'«»„“”`]*[^\s<>\"'«»„“”`.,;:!?()\[\]]|(?<![\w@.])www\.[\w-]+(?:\.[\w-]+)+(?:/[^\s<>\"'«»„“”]*[^\s<>\"'«»„“”.,;:!?()])?",
    "email": r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    "percent": r"%\{[^{}\s]+\}",
    "printf": (
        r"%%|%\([^()\s]+\)[-+#0]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa]"
        r"|(?<=\d)%[sd](?![^\W\d_])"  # 1%s, but not 100%ig
        r"|(?<!\d)%(?:\d+\$)?[-+#0']*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGaAcCsSpn@]"
    ),
    "qt": r"%L?\d{1,2}(?!\d|\$)",
    "dollar": r"\$\{[^{}\s]+\}|\$[A-Za-z_]\w*",
    "icu": r"\{\s*\w+\s*,\s*(?:plural|select|selectordinal)\s*,",  # to the brace that closes it
    "brace": r"\{[^{}\s]*\}|\{\s*\w+\s*,[^{}\n]*\}",
    "colon": r"(?<![\w:/]):[A-Za-z_]\w+",
    "entity": r"&(?:#\d+|#[xX][0-9a-fA-F]+|[A-Za-z][A-Za-z0-9]{1,31});",
    "path": (
        r"(?:(?<!\w)[A-Za-z]:\\|\\\\\w)[^\s\"'<>|*?«»„“”]*[^\s\"'<>|*?«»„“”.,;:!()]"
        r"|(?<![\w/.:<>)\]%}-])(?:~|\.{1,2})?/(?:[\w.@+%~-]+/)*[\w@+%~-][\w.@+%~-]*(?<![.])/?"
    ),
    "escape": r"\\(?:[abfnrtv0\"'\\]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})",
    "option": r"(?<![\w-])--[A-Za-z][\w-]*",
    "identifier": (
        rf"(?<![\w.-])[\w-]+\.(?:{ENDINGS})(?![\w])|(?<![\w.])[A-Za-z][\w.]*\(\)"
        r"|(?<![\w&])(?=[A-Za-z\d_]*[A-Za-z\d]_[A-Za-z\d])[A-Za-z_][A-Za-z\d_]*(?!\w)"
    ),
    "hex": (
        r"(?<!\w)(?:0[xX][0-9a-fA-F]+|[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12})(?!\w)"
        r"|(?<![\w&])#[0-9a-fA-F]{6}(?!\w)"
    ),
    "version": r"(?<![\w.])(?!\d{1,3}(?:\.\d{3}){2,}(?![\w.]\d))[vV]?\d+(?:\.\d+){2,}(?:-?[a-z]+\d*)?(?![\w])",
    "number": rf"(?<![\w.,])[-−+]?(?:{DIGITS})",
    "emoji": "(?:[\U0001f000-\U0001faff]|[\u2190-\u2bff]\ufe0f)[\U0001f000-\U0001faff\ufe0f\u200d\u20e3]*",
    "script": "",  # by the source language: scripts.py
    "accelerator": "",  # of a label: accelerator.py
}
ON = frozenset(RULES) - {"colon"}  # `:name` also occurs in ordinary text, so it must be asked for
# what a text must contain for a rule to find anything: most texts need few rules, and plain ones none
NEEDS = {
    "code": "`", "mustache": "{", "tag": "<", "url": ":w", "email": "@", "percent": "%", "printf": "%", "qt": "%",
    "dollar": "$", "icu": "{", "brace": "{", "colon": ":", "entity": "&", "path": "/\\", "escape": "\\",
    "option": "-", "identifier": "._(",
}  # fmt: skip
PATTERNS = {"url": re.compile(r":/|www\."), "identifier": re.compile(r"\w[._]\w|\(\)"), "option": re.compile("--")}
TIME = re.compile(r"\s*(?:Uhr|[ap]\.?m\b|o.clock)")  # behind the time of day
DIGIT = re.compile(r"\d")
ORDINARY = re.compile("[\x00-\u036f\u1e00-\u1eff\u2000-\u2bff]*")  # Latin, and symbols


def find(text: str, kinds: frozenset[str] = ON, language: str | None = None) -> list[Span]:
    """The protected spans of a text, in order, none overlapping; `language` is that of the text."""
    needed = [name for name, signs in NEEDS.items() if name in kinds and any(sign in text for sign in signs)]
    needed = [name for name in needed if name not in PATTERNS or PATTERNS[name].search(text)]
    if DIGIT.search(text):
        needed += [name for name in ("hex", "version", "number") if name in kinds]
    elif "#" in text and "hex" in kinds:
        needed.append("hex")
    if not ORDINARY.fullmatch(text):
        needed += [name for name in ("emoji", "script") if name in kinds]
    if not needed:
        return []
    found = []
    at, search = 0, _pattern(frozenset(needed), language).search
    while (match := search(text, at)) is not None:
        kind, end = str(match.lastgroup), match.end()
        if kind == "icu":
            end = closing(text, match.start() + 1, match.start()) + 1
            if not end:
                at = match.start() + 1
                continue
        found.append(Span(match.start(), end, kind))
        at = end
    return found


@lru_cache(maxsize=1024)
def _pattern(kinds: frozenset[str], language: str | None) -> re.Pattern[str]:
    rules = {name: rule for name, rule in RULES.items() if name in kinds and rule}
    if "script" in kinds and (other := foreign(language)) is not None:
        rules["script"] = other.pattern
    return re.compile("|".join(f"(?P<{name}>{rule})" for name, rule in rules.items()) or r"(?!)")
