"""Normalised punctuation, after the Moses script normalize-punctuation.perl.

sacremoses has those rules too, but runs some forty substitutions one after the other (13,000 segments a second) and
breaks software strings: `%(name)s` becomes `% (name) s`, `Datei(en)` becomes `Datei (en)`. This is a single pass that
keeps tags, placeholders and URLs. Rules that change the meaning of a text or its syntax are left out: spaces around
brackets, commas moved across quotes, decimal commas for spaces in numbers, and Penn quotes (`` ` `` and `''` are
Markdown and ICU syntax).
"""

import re

_DOUBLE, _SINGLE = "„“”‟«»", "‘’‚‛´"
_SAME = {
    **dict.fromkeys(_DOUBLE, '"'),
    **dict.fromkeys(_SINGLE, "'"),
    **dict.fromkeys("–‒‑‐", "-"),
    "…": "...",
}
# French quotes have no-break spaces inside; an ordinary space is outside a German »quote«.
_NO_BREAK = "\u00a0\u202f"
_CHANGE = re.compile(
    rf"""
      (?P<keep> </?[A-Za-z!][^<>]*> | \{{[^{{}}]*\}} | %\([^()\s]*\)[A-Za-z] | https?://\S+ )
    | (?P<dash> \s* — [\s—]* )
    | (?P<quote> «(?:[{_NO_BREAK}]\s*)? | [{_NO_BREAK}]*» )
    | (?P<drop> (?<=[^\W\d]|[)"'{_DOUBLE}{_SINGLE}]) \s+ (?=[:;!?](?:[\s—]|$))
              | (?<=\d) \s+ (?=%(?:[\s.,;:!?)—…]|$)) )
    | (?P<space> \s+ )
    | (?P<same> [{"".join(_SAME)}] )
    """,
    re.VERBOSE,
)
# Most texts need no change: this finds out in one scan, without callbacks into Python.
_SUSPECT = re.compile(rf"[{''.join(_SAME)}—]|[^\S ]|\s\s|\s[:;!?%]")


def _replace(match: re.Match[str]) -> str:
    match match.lastgroup:
        case "keep":
            return match[0]
        case "dash":
            return " - "
        case "quote":
            return '"'
        case "drop":
            return ""
        case "space":
            return " "
        case _:
            return _SAME[match[0]]


def normalize_punctuation(text: str) -> str:
    """Normalise quotes, dashes, ellipses and spaces; the result is one line, stripped."""
    text = text.strip()
    return _CHANGE.sub(_replace, text).strip() if _SUSPECT.search(text) else text
