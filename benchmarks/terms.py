"""How many terms of a glossary are used, and rightly placed: without it, with it, and with the terms taught instead.

    python benchmarks/terms.py train.de train.en dev.de dev.en test.de test.en --segments 1000
    python benchmarks/terms.py train.de train.en dev.de dev.en test.de test.en --listed     # arbitrary terms

The glossary is the domain's: of the nouns of the training text, the most frequent ones that occur in five dev segments
or more, each with the word that most of its links lead to, SHARE of them at least, in whatever form. A noun is a word
with a capital that follows an article in NOUNS of its occurrences at least. References have no say. With --listed it is
a list of arbitrary translations, several of which differ from what model and references say. A segment is drawn if it
has a term.

A term is used if it occurs in the translation, in a form that counts, as often as in the source. A use is in its place

* if base MT, without the glossary, has the same word there: a word-level diff of both translations pairs them;
* if it stands where base MT renders the term: the diff pairs it with words of which one is linked with the source term
  by word alignment in either direction, or was so in the training text, in ROUNDED of the term's links at least;
* where base MT has nothing in its place, or the sentence is another one: if word alignment in both directions, made
  symmetric, links it with the source term.

All other uses are out of place. --show prints some that the glossary changed, those out of place first.
"""

import argparse
import random
import re
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from knnmt import Datastore, Glossary, Segment, TranslateSettings, Translator
from knnmt.align.bitext import Bitext
from knnmt.align.fastalign import train
from knnmt.evaluate import bleu
from knnmt.text.glossary_forms import word_forms
from knnmt.text.terms import Term
from knnmt.text.words import words

STEM = 5  # letters of a word that the aligner sees
SHARE, ROUNDED, NOUNS = 0.6, 0.02, 0.25
FREQUENT = 5  # dev segments that have a term
NOUN = re.compile(r"[A-ZÄÖÜ][a-zäöüß]{2,}")
ARTICLES = frozenset("der die das dem den des ein eine einen einem einer eines im zum zur".split())
Pair = tuple[str, str]
Links = set[tuple[int, int]]
# several are not what a general model says: colour, destination, email, feature, passphrase, release, typeface, …
LISTED = """Datei file|Verzeichnis directory|Ordner folder|Benutzer user|Fenster window|Schaltfläche button|Taste key
Programm program|Anwendung application|Einstellung setting|Option option|Dialog dialog|Menü menu|Seite page|Zelle cell
Dokument document|Tabelle table|Zeile row|Spalte column|Feld field|Formular form|Datenbank database|Abfrage query
Verbindung connection|Passwort passphrase|Konto account|Adresse address|Nachricht message|Anhang attachment|Bild image
Farbe colour|Schriftart typeface|Symbol icon|Liste list|Eintrag entry|Wert value|Zeichen character|Sprache language
Version release|Paket package|Befehl command|Fehler error|Größe size|Funktion function|Ansicht view|Objekt object
Ebene layer|Modus mode|Skript script|Quelle source|Ziel destination|Gerät device|Bereich range|Absatz paragraph
Drucker printer|Bildschirm screen|Kennwort password|Maus mouse|Netzwerk network|Server server|Diagramm chart"""


def main() -> None:
    """Translate in each way, and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="pairs of German and English: the training text first")
    parser.add_argument("--model", default="mini-de-en")
    parser.add_argument("--listed", action="store_true", help="arbitrary terms, not the domain's")
    parser.add_argument("--terms", type=int, default=50)
    parser.add_argument("--segments", type=int, default=1000)
    parser.add_argument("--train", type=int, default=40000, help="training segments that the aligner sees")
    parser.add_argument("--store", type=int, default=0, help="segments of the store; 0: none")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--show", type=int, default=0, help="uses that the glossary changed")
    given = parser.parse_args()
    sides = [path.read_text("utf-8").splitlines() for path in given.files]
    known = list(zip(sides[0], sides[1], strict=True))
    seen = [pair for pair in known if max(map(len, pair)) <= 300][: given.train]
    held_out = [pair for at in range(2, len(sides), 2) for pair in zip(sides[at], sides[at + 1], strict=True)]
    renditions = rendered(seen)
    listed = (Term(source, target) for source, target in map(str.split, LISTED.replace("\n", "|").split("|")))
    glossary = Glossary(chosen(listed if given.listed else domain(renditions), sides[2], given.terms), "de-en")
    pairs = [pair for pair in held_out if 10 <= len(pair[0]) <= 400 and glossary.found(pair[0])]
    random.Random(0).shuffle(pairs)
    pairs = pairs[: given.segments]
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    times = sum(len(glossary.found(text)) for text in sources)
    print(f"{len(glossary)} terms, {times:,} times in {len(pairs):,} segments")
    print(", ".join(f"{term.source} {term.target}" for term in glossary.terms), flush=True)

    settings = TranslateSettings(exact=False, batch_size=given.batch_size)
    ways: dict[str, tuple[list[str], float]] = {}

    def run(name: str, translator: Translator, terms: Glossary | None) -> None:
        began = time.perf_counter()
        found = translator.translate(sources, settings, glossary=terms)
        ways[name] = [each.text for each in found], time.perf_counter() - began

    translator = Translator(given.model)
    translator.prepare()
    run("base MT", translator, None)
    run("base MT, glossary", translator, glossary)
    if given.store:
        with tempfile.TemporaryDirectory(prefix="knnmt-terms-") as folder:
            corpus = Path(folder) / "train.tsv"
            corpus.write_text("".join(f"{a}\t{b}\n" for a, b in known[: given.store] if "\t" not in a + b), "utf-8")
            store = Datastore.build(corpus, langs="de-en", out=Path(folder) / "store", model=given.model)
            remembering = Translator(translator.model, store)
            run("memory", remembering, None)
            run("memory, glossary", remembering, glossary)
            remembering.add([Segment(term.source, term.target) for term in glossary.terms])
            run("memory, terms taught", remembering, None)
    ways["references"] = references, 1.0
    texts = [pair for name in ways for pair in zip(sources, ways[name][0], strict=True)]
    symmetric, either = aligned([*texts, *seen], len(texts))
    free = {name: name.replace(", glossary", "") for name in ways}
    first = {name: number * len(sources) for number, name in enumerate(ways)}
    for name, (translations, seconds) in ways.items():
        uses: list[Use] = []
        total = 0
        for row, (source, target) in enumerate(zip(sources, translations, strict=True)):
            base = ways[free[name]][0][row]
            links = symmetric[first[name] + row], either[first[free[name]] + row]
            total += sum(not each.protected for each in glossary.found(source))
            uses += placed(glossary, renditions, source, base, target, links)
        reasons = Counter(use.reason for use in uses)
        shares = f"{len(uses) / total:6.1%} used, {(len(uses) - reasons['']) / total:6.1%} used and in place"
        score = f"BLEU {bleu(translations, references).value:5.2f}, {len(sources) / seconds:5.1f} segments/s"
        print(f"{name:22} {shares}, {score}; {dict(reasons)}")
        if free[name] != name:
            shown = [use for use in uses if use.reason != "base"]
            random.Random(1).shuffle(shown)
            for use in sorted(shown, key=lambda use: use.reason != "")[: given.show]:
                print("", f"[{use.reason}] {use.term.source} = {use.term.target}", *use[2:], sep="\n")


class Use(NamedTuple):
    """A term in a translation, and why it is in its place: base MT has it, its rendition, a link; "" if it is not."""

    reason: str
    term: Term
    source: str
    base: str
    target: str


# ------------------------------------------------------------------------------------------------- the glossary


def rendered(pairs: Sequence[Pair]) -> dict[str, Counter[str]]:
    """The words that nouns of a training text are linked with, in lower case, and how often: by the noun."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    articles: Counter[str] = Counter()
    for (source, target), links in zip(pairs, aligned(pairs, len(pairs))[0], strict=True):
        left, right = ([text[start:end] for start, end in words(text)] for text in (source, target))
        for i, j in links:
            if i and NOUN.fullmatch(left[i]):
                found[left[i]][right[j].lower()] += 1
                articles[left[i]] += left[i - 1].lower() in ARTICLES
    return {noun: links for noun, links in found.items() if articles[noun] >= NOUNS * links.total()}


def domain(renditions: dict[str, Counter[str]]) -> Iterator[Term]:
    """Nouns with the words that most of their links lead to, the most frequent nouns first."""
    shorter = {form: noun for noun in renditions for form in word_forms(noun, "de") if len(noun) < len(form)}
    every: dict[str, Counter[str]] = defaultdict(Counter)
    for noun, links in renditions.items():
        every[shorter.get(noun, noun)] += links
    for noun, links in sorted(every.items(), key=lambda item: -item[1].total()):
        word, _ = links.most_common(1)[0]
        word = next((each for each in links if word in word_forms(each, "en")[1:]), word)  # one, not several
        if word.isalpha() and sum(links[form] for form in word_forms(word, "en")) >= SHARE * links.total():
            yield Term(noun, word)


def chosen(terms: Iterator[Term], texts: Sequence[str], count: int) -> list[Term]:
    """The first terms that are frequent in texts."""
    found: list[Term] = []
    for term in terms:
        if sum(map(bool, map(Glossary([term], "de-en").found, texts))) >= FREQUENT:
            found.append(term)
        if len(found) == count:
            break
    return found


# ------------------------------------------------------------------------------------------------------- places


def placed(
    glossary: Glossary,
    renditions: dict[str, Counter[str]],
    source: str,
    base: str,
    target: str,
    links: tuple[Links, Links],
) -> Iterator[Use]:
    """The uses of terms in a translation, and why each is in its place. links: of the translation, and of base MT's."""
    found = [each for each in glossary.found(source) if not each.protected]
    left, middle, right = words(source), words(base), words(target)
    texts = [[text[start:end].lower() for start, end in places] for text, places in ((base, middle), (target, right))]
    changes = SequenceMatcher(None, texts[0], texts[1], autojunk=False).get_opcodes()
    for start, end, term in glossary.places(found, target):
        ours = {i for each in found if each.term == term for i in _between(left, each.start, each.end)}
        theirs = set(_between(right, start, end))
        some = [change for change in changes if change[3] < max(theirs) + 1 and min(theirs) < change[4]]
        before = {place for change in some for place in range(change[1], change[2])}
        usual = _usual(renditions, term)
        if all(change[0] == "equal" for change in some):
            reason = "base"
        elif any((i, j) in links[1] for i in ours for j in before) or any(texts[0][j] in usual for j in before):
            reason = "rendition"
        else:
            reason = "link" if any((i, j) in links[0] for i in ours for j in theirs) else ""
        yield Use(reason, term, source, base, target)


def _usual(renditions: dict[str, Counter[str]], term: Term) -> set[str]:
    """The words that render a term in the training text."""
    links = sum((renditions.get(form, Counter()) for form in word_forms(term.source, "de")), Counter[str]())
    return {word for word, count in links.items() if count >= ROUNDED * links.total() and word.isalpha()}


def aligned(pairs: Sequence[Pair], count: int) -> tuple[list[Links], list[Links]]:
    """The links between the words of the first `count` pairs, made symmetric, and those of either direction.

    The aligner is trained on all pairs, by the first letters of words."""
    numbers: tuple[dict[str, int], dict[str, int]] = {}, {}

    def ids(text: str, side: int) -> list[int]:
        found = [text[begin:end].lower()[:STEM] for begin, end in words(text)]
        return [numbers[side].setdefault(word, len(numbers[side])) for word in found]

    bitext = Bitext.from_pairs([(ids(a, 0), ids(b, 1)) for a, b in pairs])
    aligner = train(bitext)
    links = aligner.align(bitext)
    forward, backward = (list(map(int, some)) for some in aligner.best(bitext))
    symmetric, either = [], []
    i = j = 0
    for row in range(count):
        n, m = int(bitext.source_lengths[row]), int(bitext.target_lengths[row])
        symmetric.append({(int(a), int(b)) for a, b in links.segment(row)})
        both = {(forward[j + place], place) for place in range(m)} | {
            (place, backward[i + place]) for place in range(n)
        }
        either.append({(a, b) for a, b in both if a >= 0 and b >= 0})
        i, j = i + n, j + m
    return symmetric, either


def _between(places: Sequence[tuple[int, int]], start: int, end: int) -> list[int]:
    return [number for number, (begin, stop) in enumerate(places) if begin < end and start < stop]


if __name__ == "__main__":
    main()
