"""The inflected forms of a glossary's words, by rules of German and English; in other languages only the word itself.

Rules make forms instead of stripping endings: «Benutzer» has «Benutzers» and «Benutzern», but a stemmer would also find
it in «benutzen». A form that is no word does no harm, as no text contains it; one that is another word does, so these
are listed, and are not looked for in a source.
"""

import itertools
import re
from collections.abc import Iterator

MOST = 64  # forms of a term
NOUN, VERB, ADJECTIVE = "noun", "verb", "adjective"
PARTS = {  # of speech, as glossaries name them
    **dict.fromkeys(("n", "noun", "proper noun", "propernoun", "substantiv", "nomen"), NOUN),
    **dict.fromkeys(("v", "verb"), VERB),
    **dict.fromkeys(("adj", "adj.", "adjective", "adjektiv"), ADJECTIVE),
}

# German neuter and masculine nouns with the plural -er; as the ends of compounds, too. Others with -er are agents:
# «Druck» is not «Drucker».
ER_PLURAL = re.compile(
    "(?:amt|bad|band|bild|blatt|brett|buch|dach|dorf|fach|feld|geld|gesicht|glas|glied|grab|gut|haus|holz|huhn|kind"
    "|kleid|korn|kraut|land|licht|lied|loch|mann|maul|nest|pfand|rad|rand|rind|schild|schloss|schwert|tal|tuch|volk"
    "|wald|weib|wort|ei|geist|gott|leib|strauch|wurm)$",
    re.IGNORECASE,
)
UMLAUT = re.compile("(au|[aou])(?=[^aeiouäöü]*(?:e[lrn])?$)", re.IGNORECASE)
UMLAUTS = {"au": "äu", "a": "ä", "o": "ö", "u": "ü", "Au": "Äu", "A": "Ä", "O": "Ö", "U": "Ü"}
LATIN = {  # ends of foreign nouns, and what takes their place
    "um": ("en", "ums", "a"), "us": ("en", "usse", "ussen", "i"), "o": ("en", "os"), "a": ("en", "as", "ata"),
    "is": ("en",), "ex": ("izes", "ices", "exe", "exen", "exes"), "ix": ("izes", "ices"),
}  # fmt: skip
ADJECTIVE_ENDINGS = "e", "em", "en", "er", "es"
VERB_ENDINGS = "e", "st", "est", "t", "et", "en", "te", "test", "ten", "tet", "ete", "eten", "end"

IRREGULAR = {
    "man": "men", "woman": "women", "child": "children", "foot": "feet", "person": "people", "mouse": "mice",
    "datum": "data", "criterion": "criteria", "index": "indices", "matrix": "matrices", "vertex": "vertices",
    "leaf": "leaves", "shelf": "shelves", "half": "halves", "life": "lives", "knife": "knives", "medium": "media",
    "appendix": "appendices", "schema": "schemata", "axis": "axes", "analysis": "analyses", "basis": "bases",
}  # fmt: skip

# a word and what the rules make of it, though it is another word: by form or, as «Daten», by meaning
OTHERS = {
    "de": re.compile(
        r"\w*datum \w*(?:daten|data)|modus moden|not noten?|rat raten?|fall fallen?|hall hallen?|ball ballen"
        "|kost kosten|mutter muttern|logo logen|park parken|bitte bitter"
    ),
    "en": re.compile("datum data|mean means|new news|good goods|custom customs"),
}


def part_of_speech(name: str) -> str:
    """`noun`, `verb` or `adjective`; "" where a glossary names another, or none."""
    return PARTS.get(name.strip().lower(), "")


def word_forms(word: str, language: str | None, pos: str = "", *, last: bool = True) -> list[str]:
    """The forms of a word of a term, itself first, in the case in which it is written. `last`: it ends its term."""
    rules = {"de": _german, "en": _english}.get(language or "")
    made = rules(word, pos, last) if rules is not None and word[-1:].isalpha() else ()
    return list(dict.fromkeys((word, *made)))


def source_forms(word: str, language: str | None, pos: str = "", *, last: bool = True) -> list[str]:
    """The forms in which a word of a term is found in a source: its own, none that is another word."""
    others, folded = OTHERS.get(language or ""), word.casefold()
    made = word_forms(word, language, pos, last=last)
    return [form for form in made if others is None or not others.fullmatch(f"{folded} {form.casefold()}")]


def term_forms(term: str, language: str | None, pos: str = "") -> list[str]:
    """The forms of a term of several words, itself first: the combinations of theirs, `MOST` of them at most."""
    words = term.split()
    every = [word_forms(word, language, pos, last=word is words[-1]) for word in words]
    if language == "en" and pos == VERB:  # «log in»: «logs in»
        every = [word_forms(words[0], language, pos), *([word] for word in words[1:])]
    return [" ".join(some) for some in itertools.islice(itertools.product(*every), MOST)]


def _german(word: str, pos: str, last: bool) -> Iterator[str]:
    if not last and pos == NOUN and word[0].islower():
        pos = ADJECTIVE  # «virtuelle Maschine»
    if pos == NOUN or (not pos and word[0].isupper()) or (pos == ADJECTIVE and last and word[0].isupper()):
        yield from _german_noun(word)
        return
    if pos != VERB:
        # an adjective before its noun is inflected; alone, as «sicher», it is not: «sich» is another word
        stem = re.sub("(?<=..)e$" if last else "(?<=..)e[mnrs]?$", "", word)
        yield stem
        yield from (base + ending for base in (word, stem) for ending in ADJECTIVE_ENDINGS)
    if pos != ADJECTIVE and word.endswith(("en", "eln", "ern")):
        stem = re.sub("e?n$", "", word)
        yield from (stem + ending for ending in VERB_ENDINGS)
        yield from (f"ge{stem}t", f"ge{stem}et")


def _german_noun(word: str) -> Iterator[str]:
    if word.endswith("e"):
        endings: tuple[str, ...] = "n", "ns", "s"
    elif re.search("(?:e[lrn]|chen|lein)$", word):
        endings = "n", "s"
    else:
        endings = "s", "es", "e", "en", "ens"
    if ER_PLURAL.search(word):
        endings += "er", "ern"
    if word.endswith("in"):
        endings += ("nen",)
    if word.endswith("nis"):
        endings = "se", "sen", "ses"
    elif word.endswith("us"):
        endings += "se", "sen", "ses"
    yield from (word + ending for ending in endings)
    if found := UMLAUT.search(word):
        changed = word[: found.start()] + UMLAUTS[found[1]] + word[found.end() :]
        yield from (changed + ending for ending in ("", *endings) if ending not in ("s", "es", "ens"))
    for end, others in LATIN.items():
        if word.endswith(end) and not word.endswith("nis") and len(word) > len(end) + 2:
            yield from (word.removesuffix(end) + other for other in others)


def _english(word: str, pos: str, last: bool) -> Iterator[str]:
    if pos == ADJECTIVE or not last:
        return
    if word.lower() in IRREGULAR and pos != VERB:
        other = IRREGULAR[word.lower()]
        yield word[0] + other[1:] if word[0].lower() == other[0] else other
    if re.search("[^aeiou]y$", word):
        yield word[:-1] + "ies"
    elif re.search("(?:s|x|z|ch|sh)$", word):
        yield word + "es"
    else:
        yield word + "s"
    if pos == VERB:
        yield from _english_verb(word)


def _english_verb(word: str) -> Iterator[str]:
    if word.endswith("e"):
        yield from (word + "d", word[:-1] + "ing")
        return
    if re.search("[^aeiou]y$", word):
        yield from (word[:-1] + "ied", word + "ing")
        return
    yield from (word + "ed", word + "ing")
    if re.search("[^aeiou][aeiou][^aeiouwxy]$", word):
        yield from (word + word[-1] + "ed", word + word[-1] + "ing")
