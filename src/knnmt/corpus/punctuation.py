"""Punctuation brought to one form, after the table of the Moses script normalize-punctuation.perl.

sacremoses has that table too, but runs some forty substitutions one after the other (13,000 segments a
second) and spoils software texts: `%(name)s` becomes `% (name) s`, `Datei(en)` becomes `Datei (en)`. Here
is one pass with tags, placeholders and addresses kept as they are. Left out of the table, because they
change what a text says or how a program reads it: spaces around brackets, commas moved across quotes,
decimal commas for spaces in numbers, and the Penn quotes (`` ` `` and `''` are Markdown and ICU syntax).
"""

import re

_DOUBLE, _SINGLE = "„“”‟«»", "‘’‚‛´"
_SAME = {
    **dict.fromkeys(_DOUBLE, '"'),
    **dict.fromkeys(_SINGLE, "'"),
    **dict.fromkeys("–‒‑‐", "-"),
    "…": "...",
}
# French spaces inside its quotes are no-break; ordinary ones belong to German »quotes« on their other side.
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
# Most texts need no change; this finds out in one scan without calling back into Python.
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
    """Make quotes, dashes, dots and spaces plain; the text becomes one line without spaces around it."""
    text = text.strip()
    return _CHANGE.sub(_replace, text).strip() if _SUSPECT.search(text) else text
