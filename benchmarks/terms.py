"""How many terms of a glossary are used, and rightly placed: without it, with it, and with the terms taught instead.

    python benchmarks/terms.py train.de train.en dev.de dev.en test.de test.en --segments 1000

The glossary is below: the first 50 nouns that occur in five segments or more. A segment is drawn if it has one of them
at least. A term is used if it occurs in the translation, in a form that counts, as often as in the source; a use is in
its place if word alignment (in both directions, trained on training text and all translations) links it with the source
term, and out of its place if it links it with other words only. Aligners miss links: base MT's own uses, which are
nearly all in their places, show how many. The first --train segments of the training text train the aligner, and the
first --store segments make the store that is taught the terms.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from knnmt import Datastore, Glossary, Segment, TranslateSettings, Translator
from knnmt.align.bitext import Bitext
from knnmt.align.fastalign import train
from knnmt.evaluate import bleu
from knnmt.text.terms import Term
from knnmt.text.words import words

STEM = 5  # letters of a word that the aligner sees
# several are not what a general model says: colour, destination, email, feature, passphrase, release, typeface, …
TERMS = """Datei file|Verzeichnis directory|Ordner folder|Benutzer user|Fenster window|Schaltfläche button|Taste key
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
    parser.add_argument("files", type=Path, nargs="+", help="pairs: the training text first")
    parser.add_argument("--model", default="mini-de-en")
    parser.add_argument("--terms", type=int, default=50)
    parser.add_argument("--segments", type=int, default=1000)
    parser.add_argument("--train", type=int, default=40000)
    parser.add_argument("--store", type=int, default=0, help="segments of the store; 0: none")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--show", type=int, default=0, help="translations that the glossary changed")
    given = parser.parse_args()
    sides = [path.read_text("utf-8").splitlines() for path in given.files]
    known = list(zip(sides[0], sides[1], strict=True))
    held_out = [pair for at in range(2, len(sides), 2) for pair in zip(sides[at], sides[at + 1], strict=True)]
    entries = [Term(source, target) for source, target in map(str.split, TERMS.replace("\n", "|").split("|"))]
    frequent = [term for term in entries if sum(map(bool, map(Glossary([term], "de-en").found, sides[2]))) >= 5]
    glossary = Glossary(frequent[: given.terms], "de-en")
    pairs = [pair for pair in held_out if 15 <= len(pair[0]) <= 300 and glossary.found(pair[0])]
    random.Random(0).shuffle(pairs)
    pairs = pairs[: given.segments]
    sources, references = [source for source, _ in pairs], [target for _, target in pairs]
    times = sum(len(glossary.found(text)) for text in sources)
    print(f"{len(glossary)} terms, {times:,} times in {len(pairs):,} segments")

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
    texts = [pair for name in ways for pair in zip(sources, ways[name][0], strict=True)]
    links = aligned([*texts, *known[: given.train]], len(texts))
    for number, (name, (translations, seconds)) in enumerate(ways.items()):
        rows = slice(number * len(sources), (number + 1) * len(sources))
        used, linked, elsewhere, total = counted(glossary, sources, translations, links[rows])
        shares = f"{used / total:6.1%} used, {linked / total:6.1%} linked, {elsewhere / total:6.1%} linked elsewhere"
        speed = f"{len(sources) / seconds:5.1f} segments/s"
        print(f"{name:22} {shares}, BLEU {bleu(translations, references).value:5.2f}, {speed}")
    shown = zip(sources, *(ways[name][0] for name in list(ways)[:2]), strict=True)
    for row in [row for row in shown if row[1] != row[2]][: given.show]:
        print("", *row, sep="\n")


def aligned(pairs: Sequence[tuple[str, str]], count: int) -> list[set[tuple[int, int]]]:
    """The links between the words of the first `count` pairs, with an aligner of all, by the first letters of words."""
    numbers: tuple[dict[str, int], dict[str, int]] = {}, {}

    def ids(text: str, side: int) -> list[int]:
        found = [text[begin:end].lower()[:STEM] for begin, end in words(text)]
        return [numbers[side].setdefault(word, len(numbers[side])) for word in found]

    bitext = Bitext.from_pairs([(ids(a, 0), ids(b, 1)) for a, b in pairs])
    links = train(bitext).align(bitext)
    return [{(int(i), int(j)) for i, j in links.segment(row)} for row in range(count)]


def counted(
    glossary: Glossary, sources: Sequence[str], targets: Sequence[str], links: Sequence[set[tuple[int, int]]]
) -> tuple[int, int, int, int]:
    """Terms that are used, uses linked with their source terms, uses linked with other words only, and all terms."""
    used = linked = elsewhere = total = 0
    for source, target, pairs in zip(sources, targets, links, strict=True):
        found = [each for each in glossary.found(source) if not each.protected]
        total += len(found)
        left, right = words(source), words(target)
        for start, end, term in glossary.places(found, target):
            theirs = _between(right, start, end)
            ours = {i for each in found if each.term == term for i in _between(left, each.start, each.end)}
            partners = {i for i, j in pairs if j in theirs}
            used += 1
            linked += bool(partners & ours)
            elsewhere += bool(partners) and not partners & ours
    return used, linked, elsewhere, total


def _between(places: Sequence[tuple[int, int]], start: int, end: int) -> list[int]:
    return [number for number, (begin, stop) in enumerate(places) if begin < end and start < stop]


if __name__ == "__main__":
    main()
