"""How many strings come out damaged: placeholders, tags, numbers, dates, line breaks, spaces, accelerators.

    python benchmarks/damage.py                              # the demo's German catalogs, German to English
    python benchmarks/damage.py --langs en-de                # English to German
    python benchmarks/damage.py de.po other.po --marked 500 --each 100 --work FOLDER

Half of the catalogs' strings are the memory, the others are translated. Strings with placeholders or tags are the
catalogs' own, and others with some put between their words. What counts as damage is decided here, by Python's HTML
parser and by what was put in, and not by the checks of the pipeline. «Left» are strings that came out as they went in
because no translation passed these checks: not damaged, and not translated either. Exit code 1 if anything is damaged.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from rich.console import Console
from rich.table import Table
from starlette.testclient import TestClient

from knnmt import Datastore, Segment, Translator
from knnmt.build.settings import BuildSettings
from knnmt.corpus import read
from knnmt.decode.settings import TranslateSettings
from knnmt.evaluate import bleu
from knnmt.lab import demo
from knnmt.model.checkpoint import Model, load
from knnmt.server.app import create_app

SEED = 1
MODELS = {"de-en": "mini-de-en", "en-de": "mini-en-de"}
PRINTF = re.compile(r"%(?:\(\w+\)|\d+\$)?[-+0-9.]*[a-zA-Z%]")
BRACE = re.compile(r"\{[^{}]*\}")
IN_ORDER = re.compile(r"%[a-zA-Z]|\{\}")
PLACEHOLDERS = ("%s", "%d", "%(name)s", "%(anzahl)d", "%1$s", "{}", "{0}", "{name}", "{{ wert }}", "{user.id}")
TAGS = (("<b>", "</b>"), ('<a href="/x?a=1">', "</a>"), ("<em>", "</em>"), ("<span class='k'>", "</span>"))
TOGETHER = 64  # strings of a request
UNPROTECTED = TranslateSettings(spans=False, sentences=False)
Rule = Callable[[str, str], bool]
Door = Callable[[Sequence[str]], list[str]]


# ------------------------------------------------------------------------------------------------- what damage is


class Tags(HTMLParser):
    """The tags of a text, and whether they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()
        self.open: list[str] = []
        self.nested = True
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an opening tag."""
        self.seen[self.get_starttag_text() or ""] += 1
        if tag not in ("br", "hr", "img", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Note a closing tag."""
        self.seen[f"/{tag}"] += 1
        self.nested &= bool(self.open) and self.open.pop() == tag


def marks_differ(source: str, target: str) -> bool:
    """Whether placeholders or tags are not those of the source, or not in an order that means the same."""
    for pattern in (PRINTF, BRACE):
        if Counter(pattern.findall(source)) != Counter(pattern.findall(target)):
            return True
    if IN_ORDER.findall(source) != IN_ORDER.findall(target):
        return True
    ours, theirs = Tags(source), Tags(target)
    return ours.seen != theirs.seen or (ours.nested and not theirs.nested)


def lines_differ(source: str, target: str) -> bool:
    """Whether lines, or the white space around them, are not those of the source."""
    shapes = [[(_edges(line), bool(line.strip())) for line in text.split("\n")] for text in (source, target)]
    return shapes[0] != shapes[1]


def edges_differ(source: str, target: str) -> bool:
    """Whether the white space around a text is not that of the source."""
    return _edges(source) != _edges(target)


def _edges(text: str) -> tuple[str, str]:
    return text[: len(text) - len(text.lstrip())], text[len(text.rstrip()) :]


def numbers_differ(source: str, target: str) -> bool:
    """Whether a number has other digits; how they are grouped is the language's affair."""
    figures = [[re.sub(r"\D", "", number) for number in re.findall(r"\d[\d.,]*", text)] for text in (source, target)]
    return Counter(figures[0]) != Counter(figures[1])


def accelerator_lost(source: str, target: str) -> bool:
    """Whether a label has not exactly one mark, before a letter."""
    return target.count("&") != 1 or not re.search(r"&[^\W\d_]", target)


def word_lost(source: str, target: str) -> bool:
    """Whether one of the words with digits is not there as it is written."""
    return any(target.count(word) != source.count(word) for word in re.findall(r"[#\w.]*\d[\w.]*\w", source))


# ---------------------------------------------------------------------------------------------------- the strings


def marked(plain: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Strings with placeholders between their words, and tags around some."""
    while True:
        words = rng.choice(plain).split()
        if len(words) < 2:
            continue
        if rng.random() < 0.5:
            opening, closing = rng.choice(TAGS)
            first = rng.randrange(len(words))
            last = rng.randrange(first, min(len(words), first + 3))
            words[first], words[last] = opening + words[first], words[last] + closing
        if rng.random() < 0.7 or not any("<" in word for word in words):
            for mark in rng.sample(PLACEHOLDERS, rng.choice((1, 1, 2, 3))):
                words.insert(rng.randrange(len(words) + 1), mark)
        yield " ".join(words)


def kinds_of(plain: Sequence[str], rng: random.Random) -> dict[str, tuple[Callable[[], str], Rule]]:
    """How strings of each kind are made, and what damages them."""

    def pick() -> str:
        return rng.choice(plain).strip()

    def with_word(word: str) -> str:
        words = pick().split()
        words.insert(rng.randrange(len(words) + 1), word)
        return " ".join(words)

    def number() -> str:
        whole = rng.choice((f"{rng.randrange(21, 999)}", f"{rng.randrange(1, 999)}.{rng.randrange(100, 999)}"))
        return rng.choice(("", "-")) + whole + rng.choice(("", f",{rng.randrange(1, 99):02}"))

    def label() -> str:
        words = [word for word in pick().split() if word.isalpha()][:3] or ["Datei"]
        place = rng.randrange(len(words))
        words[place] = "&" + words[place]
        return " ".join(words)

    space = ("", " ", "  ", "\t", "\n", "\n    ")
    return {
        "line breaks": (lambda: rng.choice(("\n", "\n\n", "\n  ")).join(pick() for _ in range(3)), lines_differ),
        "edge spaces": (lambda: rng.choice(space) + pick() + rng.choice(space[1:]), edges_differ),
        "numbers": (lambda: with_word(number()), numbers_differ),
        "dates": (lambda: with_word(f"{rng.randrange(1, 29):02}.{rng.randrange(1, 13):02}.20{rng.randrange(10, 30)}"),
                  word_lost),
        "hex": (lambda: with_word(f"0x{rng.getrandbits(32):08X}" if rng.random() < 0.5 else
                                  f"#{rng.randrange(1 << 20, 1 << 24):06x}"), word_lost),
        "accelerators": (label, accelerator_lost),
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------ the doors


def command(strings: Sequence[str], model: str, folder: Path) -> list[str]:
    """Through `knnmt translate` of a PO file."""
    source, target = folder / "in.po", folder / "out.po"
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n'
    messages = [f'\nmsgid {json.dumps(text, ensure_ascii=False)}\nmsgstr ""\n' for text in strings]
    source.write_text(header + "".join(messages), encoding="utf-8")
    run = [sys.executable, "-c", "from knnmt.cli import main; main()", "translate", str(source), "-o", str(target)]
    subprocess.run([*run, "--model", model], check=True, stderr=subprocess.DEVNULL)
    found: dict[str, str] = {}
    for message in re.split(r"\n\n", target.read_text(encoding="utf-8"))[1:]:
        texts = [re.findall(r'^(?:msg\w+ )?(".*")$', part, re.MULTILINE) for part in message.split("msgstr")]
        texts[1] = re.findall(r'(".*")', message.split("msgstr")[1])
        key, value = ("".join(json.loads(each) for each in some) for some in texts)
        found[key] = value or key
    return [found[text] for text in strings]


def served(strings: Sequence[str], model: Model, langs: str) -> list[str]:
    """Through the server's `/translate`."""
    found: list[str] = []
    source, target = langs.split("-")
    with TestClient(create_app(Translator(model)), base_url="http://localhost") as client:
        for start in range(0, len(strings), TOGETHER):
            some = list(strings[start : start + TOGETHER])
            asked = {"q": some, "source": source, "target": target, "format": "text"}
            answer = client.post("/translate", json=asked)
            answer.raise_for_status()
            found += answer.json()["translatedText"]
    return found


def translated(translator: Translator, strings: Sequence[str], settings: TranslateSettings | None = None) -> list[str]:
    """Through Python."""
    return [found.text for found in translator.stream(strings, settings)]


# ---------------------------------------------------------------------------------------------------------- main


def main() -> None:
    """Make strings, translate them, count, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("catalogs", nargs="*", type=Path, help="PO files with German strings [default: the demo's]")
    parser.add_argument("--langs", choices=MODELS, default="de-en")
    parser.add_argument("--marked", type=int, default=3000, help="strings with placeholders or tags")
    parser.add_argument("--each", type=int, default=500, help="strings of each other kind")
    parser.add_argument("--plain", type=int, default=1000, help="strings without any, for BLEU")
    parser.add_argument("--only", nargs="+", choices=("marked", "kinds", "plain"), default=("marked", "kinds", "plain"))
    parser.add_argument("--show", type=int, default=0, help="damaged strings shown of each row")
    parser.add_argument("--work", type=Path, help="folder that keeps the store")
    given = parser.parse_args()
    rng = random.Random(SEED)
    files = given.catalogs or [file for package in demo.PACKAGES for file in demo.files(package)]
    pairs = [each for file in files for each in read(file, demo.LANGUAGES)]
    if given.langs == "en-de":
        pairs = [replace(each, source=each.target, target=each.source) for each in pairs]
    segments = list({each.source: each for each in pairs}.values())
    rng.shuffle(segments)
    memory, tested = segments[::2], segments[1::2]
    plain = [each for each in tested if not re.search(r"[%{<&\n\\_#\d]", each.source) and each.source.strip()]
    model = load(MODELS[given.langs], langs=given.langs, device="cpu")
    table = Table("strings", "through", "damaged", "left", "of")
    worst = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.work or Path(temporary)
        base = Translator(model)

        def count(label: str, door: str, sources: Sequence[str], found: Sequence[str], rule: Rule) -> int:
            bad = [pair for pair in zip(sources, found, strict=True) if rule(*pair)]
            left = sum(a == b and len(a.split()) > 2 for a, b in zip(sources, found, strict=True))
            table.add_row(label, door, f"{len(bad):,}", f"{left:,}", f"{len(sources):,}")
            print(label, door, len(bad), left, len(sources), sep="\t", flush=True)
            for pair in bad[: given.show]:
                print(*pair, sep="\n  → ")
            return len(bad)

        if "marked" in given.only:
            own = [each.source for each in tested if PRINTF.search(each.source) or re.search("[{<]", each.source)]
            strings = dict.fromkeys(own[: given.marked])
            more = marked([each.source for each in plain], rng)
            while len(strings) < given.marked:
                strings[next(more)] = None
            strings_list = list(strings)
            remembering = Translator(model, stored(memory, model, given.langs, folder))
            for name, translator in (("base MT", base), ("with a memory", remembering)):
                for door, settings in (("protected", None), ("unprotected", UNPROTECTED)):
                    found = translated(translator, strings_list, settings)
                    bad = count("placeholders, tags", f"{name}, {door}", strings_list, found, marks_differ)
                    worst += bad if settings is None else 0
        if "kinds" in given.only:
            for kind, (make, rule) in kinds_of([each.source for each in plain], rng).items():
                made: dict[str, None] = {}
                while len(made) < given.each:
                    made[make()] = None
                some = list(made)
                worst += count(kind, "Python", some, translated(base, some), rule)
                worst += count(kind, "command", some, command(some, MODELS[given.langs], Path(temporary)), rule)
                worst += count(kind, "server", some, served(some, model, given.langs), rule)
        if "plain" in given.only:
            chosen = plain[: given.plain]
            sources, references = [each.source for each in chosen], [each.target for each in chosen]
            for name, settings in (("protected", None), ("unprotected", UNPROTECTED)):
                score = bleu(translated(base, sources, settings), references)
                print(f"BLEU of {len(chosen):,} strings without placeholders, {name}: {score.value:.2f}", flush=True)
    Console(width=100).print(table)
    sys.exit(1 if worst else 0)


def stored(memory: Sequence[Segment], model: Model, langs: str, folder: Path) -> Datastore:
    """A store of the memory."""
    path = folder / f"memory-{langs}"
    if not (path / "manifest.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        corpus = folder / "memory.jsonl"
        lines = [json.dumps({"source": each.source, "target": each.target}) + "\n" for each in memory]
        corpus.write_text("".join(lines), encoding="utf-8")
        settings = BuildSettings(clean=None)
        Datastore.build(corpus, out=path, langs=langs, model=model, settings=settings)
    return Datastore.open(path)


if __name__ == "__main__":
    main()
