"""How many tags are put around the right words: by place, by the FastAlign model, by the model's attention.

    python benchmarks/tags.py                                          # the demo's catalogs, German to English
    python benchmarks/tags.py --langs en-de                            # English to German
    python benchmarks/tags.py de.po other.po                           # other German catalogs
    python benchmarks/tags.py --model FOLDER --news news.de news.en    # and links of 500 pairs beside FastAlign's

Strings are those of the catalogs with pairs of tags around some of their words, in source and reference alike. The tags
are taken out of both and put back into the reference, which says where they belong: what a model translates has no
part in this. A tag is right if it encloses the same words. FastAlign is trained on all other strings of the catalogs,
with the pairs of --news where these are given, and links as a store's does.
"""

import argparse
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from knnmt.align.bitext import Bitext
from knnmt.align.fastalign import Aligner, train
from knnmt.corpus import read
from knnmt.lab import demo
from knnmt.model.checkpoint import Model, load
from knnmt.text.carry import LEFT_OUT, Carried, Languages
from knnmt.text.inline import Inline
from knnmt.text.spans import find
from knnmt.text.unit import items_of
from knnmt.text.words import Link, Pair, diagonal, words
from knnmt.translate.word_alignment import WordAligner, tokens_of

TAG = re.compile(r"</?(?:b|strong|em|i|a|code|span|u|kbd)\b[^<>]*>")
MODELS = {"de-en": "mini-de-en", "en-de": "mini-en-de"}
PAIRS = 500
Align = Callable[[str, str], Sequence[Link]]


def main() -> None:
    """Place the tags in each way, and print the shares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("catalogs", nargs="*", type=Path, help="PO files with German strings [default: the demo's]")
    parser.add_argument("--langs", choices=MODELS, default="de-en")
    parser.add_argument("--model", help="a model of these languages [default: the embedded one]")
    parser.add_argument("--news", type=Path, nargs=2, metavar=("DE", "EN"), help="parallel lines")
    given = parser.parse_args()
    model = load(given.model or MODELS[given.langs], langs=given.langs, device="cpu")
    files = given.catalogs or [file for package in demo.PACKAGES for file in demo.files(package)]
    catalogs = {(each.source, each.target) for file in files for each in read(file, demo.LANGUAGES)}
    lines = [path.read_text("utf-8").splitlines() for path in given.news or ()]
    news = [pair for pair in zip(*lines, strict=True) if len(pair[0]) < 300]
    if given.langs == "en-de":
        catalogs, news = {(b, a) for a, b in catalogs}, [(b, a) for a, b in news]
    strings = sorted(pair for pair in catalogs if is_tested(*pair))
    others = [(bare(a), bare(b)) for a, b in sorted(catalogs.difference(strings))]
    aligner = train(Bitext.from_pairs([ids(model, *pair) for pair in others + news]))
    ways: dict[str, Align] = {
        "by place": diagonal,
        "FastAlign": lambda source, target: linked(aligner, model, source, target),
        "attention": WordAligner(model),
    }
    print(f"FastAlign is trained on {len(others):,} strings and {len(news):,} lines")
    random.Random(5).shuffle(news)
    gold = [set(ways["FastAlign"](*pair)) for pair in news[:PAIRS]]
    for name, align in ways.items():
        print(f"{name:10} {right(strings, align, given.langs):6.1%} of the tags of {len(strings)} strings", end="")
        if news:
            found = [set(align(*pair)) for pair in news[:PAIRS]]
            same = sum(len(a & b) for a, b in zip(found, gold, strict=True))
            print(f", F1 {2 * same / sum(map(len, found + gold)):.3f} beside FastAlign's links", end="")
        print(flush=True)


def bare(text: str) -> str:
    """A text without tags."""
    return TAG.sub("", text)


def enclosed(text: str) -> dict[str, list[int]] | None:
    """The words inside each pair of tags, by the opening tag; None if one occurs twice or pairs do not nest."""
    begins = [begin for begin, _ in words(bare(text))]
    found: dict[str, list[int]] = {}
    opened: list[tuple[str, int]] = []
    taken = 0  # characters of tags so far
    for tag in TAG.finditer(text):
        at = tag.start() - taken
        taken += len(tag[0])
        if not tag[0].startswith("</"):
            opened.append((" ".join(tag[0].split()), at))
            continue
        if not opened or opened[-1][0] in found:
            return None
        name, start = opened.pop()
        found[name] = [number for number, begin in enumerate(begins) if start <= begin < at]
    return None if opened else found


def is_tested(source: str, target: str) -> bool:
    """Whether source and reference have the same tags, around some of their words."""
    ours, theirs = enclosed(source), enclosed(target)
    if not ours or not theirs or ours.keys() != theirs.keys() or "\n" in source + target:
        return False
    every = len(words(bare(source)))
    some = [*ours.values(), *theirs.values()]
    return all(some) and any(len(inside) < every for inside in ours.values())


def right(strings: Sequence[Pair], align: Align, langs: str) -> float:
    """The share of tags that enclose the same words as in the references."""
    good = total = 0
    for source, reference in strings:
        items = items_of(Inline.plain(source), find(source, frozenset({"tag"})))
        carried = Carried(items, LEFT_OUT, Languages(*langs.split("-")))
        translation = TAG.sub("", reference)
        placed = carried.placed(translation, align(carried.text, translation))
        found = enclosed("".join(item if isinstance(item, str) else item.raw for item in placed)) or {}
        wanted = enclosed(reference) or {}
        total += len(wanted)
        good += sum(found.get(tag) == inside for tag, inside in wanted.items())
    return good / total


def ids(model: Model, source: str, target: str) -> tuple[list[int], list[int]]:
    """The tokens of both sides, as a store's aligner sees them."""
    (left,), (right_side,) = model.tokenizer.encode_source([source]), model.tokenizer.encode_target([target])
    return left, [*right_side, model.special.end]


def linked(aligner: Aligner, model: Model, source: str, target: str) -> list[Link]:
    """The words that the FastAlign model links."""
    pair = tokens_of(model.tokenizer, source, target)
    links = aligner.align(Bitext.from_pairs([(pair.source, [*pair.target, model.special.end])])).segment(0)
    places = [(int(i) - pair.first, int(j)) for i, j in links]
    inside = [(i, j) for i, j in places if 0 <= i < len(pair.left) and j < len(pair.right)]
    return sorted({(pair.left[i], pair.right[j]) for i, j in inside})


if __name__ == "__main__":
    main()
