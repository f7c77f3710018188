"""Subtitles, SRT and WebVTT: numbers and times stay.

A cue is a unit, broken into as many lines again. Where lines end with a sentence, or belong to several speakers, they
are units of their own: what stands on a line stays there.
"""

import html
import re
from collections.abc import Iterator

from knnmt.documents.content import Content
from knnmt.documents.unit import Entry, Unit, Value
from knnmt.text.inline import Code, Inline
from knnmt.text.sentences import sentence_ends

_TIME = r"(?:\d+:)?\d{1,2}:\d{2}[.,]\d{3}"
_TIMING = re.compile(rf"[ \t]*{_TIME}[ \t]+-->[ \t]+{_TIME}[^\r\n]*(?:\r?\n|\Z)")
_NEXT = re.compile(rf"(?:\d+[ \t]*\r?\n)?{_TIMING.pattern}")  # a cue, also where no empty line ends the one before
_LINE = re.compile(r"[^\r\n]*(?:\r?\n|\Z)")
_CODE = re.compile(r"</?(?:[a-zA-Z][^<>\r\n]*|\d[\d:.]*)>|\{\\[^}\r\n]*\}")
_CLOSING = re.compile(r"</([a-zA-Z]+)")
_OPENING = re.compile(r"<([a-zA-Z]+)")
_SPEAKER = re.compile(r"\s*(?:<[^>]*>)?\s*[-–—]\s*")  # two speakers, each on a line
_DASH = re.compile(r"\s*[-–—]\s*(?=\S)")
_ASIDE = re.compile(r"\s*(?:\[[^\[\]]*\]|\([^()]*\)|♪.*♪)\s*")  # a sound, a song: on a line of its own
_LETTER = re.compile(r"[^\W\d_]")


def read_srt(content: Content) -> Iterator[Entry]:
    """The cues of a SubRip file."""
    return _cues(content, vtt=False)


def read_vtt(content: Content) -> Iterator[Entry]:
    """The cues of a WebVTT file; styles, regions and notes are none."""
    if not re.match(r"WEBVTT(?=[ \t\r\n]|\Z)", content.text):
        raise content.error(0, "a WebVTT file starts with WEBVTT")
    return _cues(content, vtt=True)


def _cues(content: Content, *, vtt: bool) -> Iterator[Entry]:
    text, at, timings = content.text, 0, 0
    while at < len(text):
        timing = _TIMING.match(text, at)
        if timing is None:
            line = _LINE.match(text, at)
            assert line is not None
            if not vtt and "-->" in line[0]:
                raise content.error(at, "invalid times of a cue; write 00:00:01,000 --> 00:00:02,000")
            at = line.end()
            continue
        timings += 1
        at = timing.end()
        lines = []
        while at < len(text) and not _NEXT.match(text, at):
            line = _LINE.match(text, at)
            if line is None or not line[0].strip():
                break
            lines.append((at, at + len(line[0].rstrip("\r\n"))))
            at = line.end()
        for group in _groups(text, lines):
            entry = _cue(content, group, vtt=vtt)
            if entry is not None:
                yield entry
    if text.strip() and not timings and not vtt:
        raise content.error(0, "no cue with times: this is no SubRip file")


def _groups(text: str, lines: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """The lines of a cue that are translated together: up to another speaker, or to the end of a sentence, unless a
    tag is open there."""
    shown = [_CODE.sub("", text[start:end]).strip() for start, end in lines]
    ends = set(sentence_ends(" ".join(shown)))
    group: list[tuple[int, int]] = []
    at = opened = 0
    for number, (start, end) in enumerate(lines):
        opened += sum(-1 if code.startswith("</") else code[1].isalpha() for code in _CODE.findall(text[start:end]))
        at += len(shown[number]) + 1
        group.append((start, end))
        following = lines[number + 1 : number + 2]
        ended = at in ends or any(_ASIDE.fullmatch(line) for line in shown[number : number + 2])
        if not following or _SPEAKER.match(text, following[0][0]) or (ended and opened <= 0):
            yield group
            group = []


def _cue(content: Content, lines: list[tuple[int, int]], *, vtt: bool) -> Entry | None:
    if (dash := _DASH.match(content.text, *lines[0])) is not None:
        lines = [(dash.end(), lines[0][1]), *lines[1:]]
    start, end = lines[0][0], lines[-1][1]
    text, codes, opened = "", list[Code](), list[tuple[str, int]]()
    raw = " ".join(content.text[a:b].strip() for a, b in lines)
    at = 0
    for found in (*_CODE.finditer(raw), None):
        piece = raw[at : found.start() if found is not None else len(raw)]
        text += html.unescape(piece) if vtt else piece
        if found is None:
            break
        at, pair = found.end(), None
        if (name := _CLOSING.match(found[0])) is not None:
            match = next((each for each in reversed(opened) if each[0] == name[1].lower()), None)
            if match is not None:
                opened.remove(match)
                pair = match[1]
                codes[pair] = codes[pair]._replace(pair=len(codes))
        elif (name := _OPENING.match(found[0])) is not None:
            opened.append((name[1].lower(), len(codes)))
        codes.append(Code(len(text), found[0], pair))
    if not _LETTER.search(text):
        return None

    def write(target: Inline) -> str:
        written = target.written(_vtt_escape if vtt else str)
        return _broken(" ".join(written.split()), len(lines), content.newline)

    return Value(Unit(Inline(text, tuple(codes)), line=content.line(start)), start, end, write)


def _vtt_escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("-->", "--&gt;")


def _broken(text: str, count: int, newline: str) -> str:
    """A text on so many lines of about the same length, broken at spaces outside of tags."""
    if count == 1:
        return text
    spaces = [found.start() for found in re.finditer(r"<[^<>]*>| ", text) if found[0] == " "]
    breaks: list[int] = []
    for number in range(1, count):
        ideal = len(text) * number / count
        free = [at for at in spaces if not breaks or at > breaks[-1]]
        if free:
            breaks.append(min(free, key=lambda at: abs(at - ideal)))
    pieces = [text[a:b].strip() for a, b in zip([0, *breaks], [*breaks, len(text)], strict=True)]
    return newline.join(pieces)
