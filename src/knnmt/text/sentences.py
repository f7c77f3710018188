"""Where sentences end: one rule for plain text and HTML, with the abbreviations of German and English."""

import re
from collections.abc import Iterator

# a sentence end, a space, and what can start a sentence
SENTENCE_END = re.compile(r"[.!?…。！？][\"”“’»)]?\s++(?=[„“«\"(¿¡]|[^\W\d_a-zß-öø-ÿ])")
ABBREVIATIONS = frozenset(
    "abs apr art aug bsp bzw ca chr dez dipl dr etc evtl exkl feb fig ggf hr hrsg inc ing inkl jan jr kap lt ltd max "
    "min mio mr mrd mrs ms nov nr okt prof sept sog sr st std str tel tsd univ usw vgl vol vs zzgl e.g i.e d.h z.b u.a "
    "o.ä v.a z.t u.s a.m p.m".split()
)
LOOKBEHIND = 1 + max(map(len, ABBREVIATIONS))


def sentence_ends(text: str) -> Iterator[int]:
    """The positions behind the white space that follows each sentence but the last."""
    return (found.end() for found in SENTENCE_END.finditer(text) if _ends(text, found))


def _ends(text: str, mark: re.Match[str]) -> bool:
    """Whether a mark ends a sentence: a full stop after a number, a single letter or an abbreviation does not."""
    if mark[0][0] != "." or mark.start() == 0:
        return True
    words = text[max(0, mark.start() - LOOKBEHIND) : mark.start()].split()[-1:]
    word = words[0].lstrip('(„“"«') if words else ""
    return len(word) > 1 and not word.isdigit() and word.lower() not in ABBREVIATIONS
