"""HTML in, HTML out: tags go with their words, nothing is lost or crossed, whatever is put in."""

import html
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knnmt.text.html_document import HtmlDocument
from knnmt.text.html_tree import BLOCK, MAX_DEPTH, VOID, Element, parse
from knnmt.text.words import words

Links = list[tuple[int, int]]


def same(source: str, target: str) -> Links:
    return [(place, place) for place in range(len(words(source)))]


def translate_html(
    text: str, translate: Callable[[list[str]], Sequence[str]], align: Callable[[str, str], Links]
) -> str:
    """Translate HTML, all its texts in one call."""
    page = HtmlDocument(text)
    return page.translated(translate(page.texts), align)


def unchanged(text: str) -> str:
    return translate_html(text, lambda texts: texts, same)


def translated(text: str, translation: str, links: str) -> str:
    """Links as Pharaoh writes them: `0-0 1-2`."""
    pairs = [(int(left), int(right)) for left, right in (link.split("-") for link in links.split())]
    return translate_html(text, lambda texts: [translation], lambda *_: pairs)


# ---------------------------------------------------------------------------------------------- where tags go


def test_a_tag_goes_around_the_words_that_translate_its_own() -> None:
    text = 'Ich habe <b>gestern</b> <a href="/x?a=1&amp;b">das Brot gekauft</a>.'
    links = "0-0 1-1 2-5 3-3 4-4 5-2 6-6"
    assert translated(text, "I have bought the bread yesterday.", links) == (
        'I have <a href="/x?a=1&amp;b">bought the bread</a> <b>yesterday</b>.'
    )


def test_tags_inside_tags_stay_inside() -> None:
    text = "<a>Das <b>rote <i>Haus</i></b></a> brennt."
    assert translated(text, "Burning is the house red.", "0-2 1-4 2-3 3-0 3-1 4-5") == (
        "Burning is <a>the <b><i>house</i> red</b></a>."
    )


def test_a_word_that_went_elsewhere_does_not_drag_the_tag_across_the_sentence() -> None:
    text = "<b>Er ruft</b> seine alte Mutter an"
    links = "0-0 1-1 1-6 2-2 3-3 4-4 5-5"
    assert translated(text, "He calls his old mother at once", links) == "<b>He calls</b> his old mother at once"


def test_a_few_words_of_others_between_its_own_are_taken_in() -> None:
    assert translated("<b>ja nein</b> oder", "yes or no", "0-0 1-2 2-1") == "<b>yes or no</b>"


def test_siblings_whose_words_are_mixed_are_not_crossed() -> None:
    text = "<b>eins zwei</b> <i>drei vier</i>"
    assert translated(text, "one three two four", "0-0 1-2 2-1 3-3") == "<b>one</b> <i>three</i> two four"


def test_a_tag_around_words_that_have_no_translation_stays_near_but_a_link_gets_a_word() -> None:
    assert translated("Das ist <b>doch</b> gut", "That is good", "0-0 1-1 3-2") == "That is <b></b> good"
    assert translated("Das ist <a>doch</a> gut", "That is good", "0-0 1-1 3-2") == "That <a>is</a> good"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("links <br> rechts", "left <br> right"),
        ("links<br>rechts", "left<br> right"),
        ("links <img> <img>rechts", "left <img> <img>right"),
        ("links<img><img>rechts", "left right<img><img>"),
        ("links rechts <img src=x>", "left right <img src=x>"),
        ('<img src="x"> links rechts', '<img src="x"> left right'),
        ("links <!-- hier --> rechts", "left <!-- hier --> right"),
        ("links <x id='1'/> rechts", "left <x id='1'/> right"),
        ("links <code>c</code>, rechts", "left <code>c</code> right"),
    ],
)
def test_a_tag_without_words_goes_where_its_neighbours_went(text: str, expected: str) -> None:
    assert translated(text, "left right", "0-0 1-1") == expected


def test_a_tag_without_words_follows_its_neighbours_when_clauses_change_places() -> None:
    text, links = "eins zwei <img> drei, vier fünf", "0-3 1-4 2-5 3-2 4-0 5-1"
    assert translated(text, "four five, one two three", links) == "four five, one two <img> three"


def test_a_word_that_a_tag_cuts_belongs_where_it_begins() -> None:
    assert unchanged("<b>H</b>allo <i>du</i>") == "<b>Hallo</b> <i>du</i>"


# ------------------------------------------------------------------------------------------ what is translated


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("<p>Eins.</p><p>Zwei <b>drei</b>.</p>", ["Eins.", "Zwei drei."]),
        ("Vorher<div>innen<div>tiefer</div></div>nachher", ["Vorher", "innen", "tiefer", "nachher"]),
        ("<ul><li>eins<li>zwei</ul>", ["eins", "zwei"]),
        ("<table><tr><td>a<td>b<tr><th>c</table>", ["a", "b", "c"]),
        ("<p>eins<p>zwei", ["eins", "zwei"]),
        ("<a href=x><div>eins</div><div>zwei</div></a>", ["eins", "zwei"]),
        ("eins<br>zwei", ["eins zwei"]),
        ("Eins.<br>zwei", ["Eins.", "zwei"]),
        ("eins<br>\n<br/>zwei", ["eins", "zwei"]),
        ("Das ist gut. Und das? Ja! (Sehr.) „Nein.“ Doch", "Das ist gut.|Und das?|Ja!|(Sehr.)|„Nein.“|Doch".split("|")),
        ("<b>Eins. Zwei.</b> Drei <i>vier</i>. Fünf", ["Eins. Zwei. Drei vier.", "Fünf"]),
        ("Am 3. Mai. Am 4. Mai", ["Am 3. Mai.", "Am 4. Mai"]),
        ("Dr. Müller, z. B. Montag, Nr. 5 usw. Danach", ["Dr. Müller, z. B. Montag, Nr. 5 usw. Danach"]),
        ("<title>Fisch &amp; Brot</title>", ["Fisch & Brot"]),
        ("&lt;b&gt; ist&nbsp;fett &#8211; ja &euro;", ["<b> ist fett – ja €"]),
        ("12 – 34 <b>%</b>", []),
        ("", []),
        ("  \n ", []),
        ("Datei <code>a.txt</code>, dann", ["Datei, dann"]),
        ("<pre>eins</pre><style>p {}</style><script>x</script><!-- c --><textarea>t</textarea>", []),
        ('<span translate="no">eins</span> zwei <i class="a notranslate">drei</i>', ["zwei"]),
        ("<svg><title>eins</title><text>zwei</text></svg>", []),
    ],
)
def test_blocks_are_translated_one_by_one_and_what_is_no_text_not_at_all(text: str, texts: list[str]) -> None:
    assert HtmlDocument(text).texts == texts


@pytest.mark.parametrize(
    "kept",
    [
        "<script>if (a < b && c) { '</p>' }</script>",
        "<style>p > b { content: '<' }</style>",
        "<pre>  a\n   &lt;b&gt; <b>c</b>\n</pre>",
        '<code class="x">knnmt &amp; co</code>',
        '<p translate="no">Bleibt, <b>wie</b> es   ist</p>',
        "<span class='big notranslate'>bleibt</span>",
        "<!-- ein <b> Kommentar -- -->",
        "<!doctype html>",
        '<?xml version="1.0"?>',
        "<textarea>wie <b> es ist</textarea>",
        "<svg viewBox='0 0 1 1'><path d='M0 0'/><text>so</text></svg>",
        "<script><!-- <script> </script> --></script>",
    ],
)
def test_what_must_stay_stays_to_the_letter(kept: str) -> None:
    assert kept in translate_html(f"Wort {kept} Ende", lambda texts: [text.upper() for text in texts], same)


def test_all_texts_are_translated_in_one_call() -> None:
    calls: list[list[str]] = []

    def translate(texts: list[str]) -> list[str]:
        calls.append(texts)
        return [text.upper() for text in texts]

    assert translate_html("<p>eins <b>zwei</b></p> drei", translate, same) == "<p>EINS <b>ZWEI</b></p> DREI"
    assert calls == [["eins zwei", "drei"]]


def test_a_translation_is_text_and_never_becomes_a_tag() -> None:
    assert translated("<p>eins</p>", "<script>x</script> & 'y'", "0-0") == (
        "<p>&lt;script&gt;x&lt;/script&gt; &amp; 'y'</p>"
    )


# ------------------------------------------------------------------------------------------- whatever is put in


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<p>eins<p>zwei", "<p>eins</p><p>zwei</p>"),
        ("<b><i>eins</b> zwei</i>", "<b><i>eins</i></b> zwei"),
        ("eins</b></div> zwei", "eins zwei"),
        ("<a href='x>eins", "&lt;a href='x&gt;eins"),
        ("eins < zwei & drei", "eins &lt; zwei &amp; drei"),
        ("<!-- offen", "<!-- offen-->"),
        ("<script>offen", "<script>offen</script>"),
        ("<style>offen</style ", "<style>offen</style>"),
        ("<script><!-- <script> offen", "<script><!-- <script> offen--></script>"),
        ("<i/>eins", "<i></i>eins"),
        ("<BR/>eins <Foo>zwei</foo>", "<BR/>eins <Foo>zwei</Foo>"),
        ("<<b>eins</b>", "&lt;<b>eins</b>"),
        ("<pre><</b>b>x</pre>", "<pre>&lt;b>x</pre>"),
        ("<b a=1 a='2' \"c>eins</b>", "<b a=1 a='2' \"c>eins</b>"),
    ],
)
def test_what_is_broken_comes_out_whole(text: str, expected: str) -> None:
    assert unchanged(text) == expected


def test_deep_nesting_is_bounded_and_no_tag_is_lost() -> None:
    many = 20 * MAX_DEPTH
    out = unchanged("<b>" * many + "Wort" + "</b>" * many)
    assert out.count("<b>") == out.count("</b>") == many
    assert "Wort" in out
    assert depth(parse(out)) == MAX_DEPTH + 2  # the root, and those side by side


UNITS = ["<b>", "<a ", "<a x='", '<a x="', "<!--", "<!", "</", "<p>a ", "<i>a</i> ", "a <br> ", "<script>", "&amp;"]


@pytest.mark.parametrize("unit", [*UNITS, "<", "aa", "Ab. "])
def test_time_grows_with_length_alone(unit: str) -> None:
    def seconds(times: int) -> float:
        begin = time.process_time()
        unchanged(unit * times)
        return time.process_time() - begin

    seconds(100)
    short, long = min(seconds(200) for _ in range(3)), min(seconds(4000) for _ in range(2))
    assert long < 120 * max(short, 0.002)  # 20 times the length: 400 times as long, were it by the square


class Reader(HTMLParser):
    """Another parser's view: tags in order, whether they match, and the text."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.comments: Counter[str] = Counter()
        self.open: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[repr((tag, attrs))] += 1
        self.text += " " if tag in BLOCK else ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[repr((tag, attrs))] += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.text += " " if tag in BLOCK else ""

    def handle_comment(self, data: str) -> None:
        self.comments[data] += 1

    def handle_data(self, data: str) -> None:
        self.text += data


WORDS = st.sampled_from("eins zwei, (drei) vier-fünf & < > sechs! – „x“ &amp; 7".split())
TEXT = st.lists(WORDS, max_size=4).map(lambda some: " ".join(html.escape(word, quote=False) for word in some))
LEAF = TEXT | st.sampled_from(
    [
        "<br>",
        "<img data-x='a > b' src=\"x\">",
        "<!-- c -->",
        "<wbr>",
        "<x id='1'/>",
        " ",
        "<b></b>",
        '<a name="&quot;"></a>',
    ]
)
TAGS = st.sampled_from(["b", 'a href="?a=1&amp;b=2"', "i class='x'", "span id=x"])


def wrapped(tag: str, inside: str) -> str:
    return f"<{tag}>{inside}</{tag.split()[0]}>"


INLINE = st.recursive(
    LEAF, lambda inner: st.builds(wrapped, TAGS, st.lists(inner, max_size=4).map(" ".join)), max_leaves=12
)


def blocks(between: str) -> st.SearchStrategy[str]:
    """Blocks in blocks, with this between what is in one."""
    return st.recursive(
        st.lists(INLINE, max_size=4).map(" ".join),
        lambda inner: st.builds(wrapped, st.sampled_from(["div", "h1"]), st.lists(inner, max_size=3).map(between.join)),
        max_leaves=6,
    )


def shuffled(texts: Sequence[str]) -> list[str]:
    """A translation that keeps nothing in its place."""
    found = []
    for text in texts:
        some = text.split()
        random.Random(len(text)).shuffle(some)
        found.append(" ".join([*some, "&", "<fin>"]))
    return found


@given(blocks(""), st.randoms(use_true_random=False))
def test_tags_are_those_that_went_in_and_the_text_is_the_translation(text: str, rng: random.Random) -> None:
    def links(source: str, target: str) -> Links:
        n, m = len(words(source)), len(words(target))
        return sorted({(rng.randrange(n), rng.randrange(m)) for _ in range(rng.randrange(n + m))})

    before, out = Reader(text), translate_html(text, shuffled, links)
    after = Reader(out)
    assert after.tags == before.tags
    assert after.comments == before.comments
    texts = HtmlDocument(text).texts
    if texts and not any(some.strip() and not any(map(str.isalpha, some)) for some in bare(parse(text))):
        assert after.text.split() == " ".join(shuffled(texts)).split()


def bare(block: Element) -> Iterator[str]:
    """The text of each run between blocks."""
    run = ""
    for child in block.children:
        if isinstance(child, Element) and child.block:
            yield run
            yield from bare(child)
            run = ""
        else:
            run += "".join(texts_of(child))
    yield run


def texts_of(node: object) -> Iterator[str]:
    if isinstance(node, Element):
        for child in node.children:
            yield from texts_of(child)
    elif type(node).__name__ == "Text":
        yield html.unescape(str(getattr(node, "raw", "")))


@given(blocks(" "))  # no tag cuts a word
def test_nothing_changes_if_the_translation_is_the_text_itself(text: str) -> None:
    once = unchanged(text)
    assert squeezed(once) == squeezed(text)
    assert unchanged(once) == once


def squeezed(text: str) -> str:
    return "".join(text.split())


SCRAPS = (
    "<b> </b> <i> </i> <p> </p> <div> </div> <li> <td> <br> <br/> <a\thref=' ' \" > < / & &lt ; &#x41; <!-- --> --!> = "
    "<script> </script> <style> </style <code> </code> Wort x é <! <? </ <table> <tr> </table> <pre> </pre> <title> "
    "</title> translate=no <span\ttranslate='no'> </span> <svg> </svg> \x00 \n"
)
SOUP = st.lists(st.sampled_from([" ", *SCRAPS.split(" ")]), max_size=30).map("".join)


@given(SOUP | st.text(max_size=60), st.booleans())
def test_whatever_is_put_in_what_comes_out_is_whole_and_keeps_every_tag(text: str, mixed: bool) -> None:
    out = translate_html(text, shuffled if mixed else list, lambda *_: [])
    tree = parse(out)
    assert starts(tree) == starts(parse(text))
    assert "".join(whole(tree)) == out  # each element has its own end tag, none was made up
    if not re.search(r"<(title|script|style|[!?]|/([^a-z]|$))|\x00", text, re.IGNORECASE):
        Reader(out)  # of the others each version of Python has its own view


def starts(node: object) -> Counter[str]:
    if not isinstance(node, Element):
        return Counter()
    own = Counter([node.start.lower().replace("/>", ">")] if node.start else [])
    return sum((starts(child) for child in node.children), own)


def whole(node: object) -> Iterator[str]:
    """The tree as it was written: end tags are only there if the text had them."""
    if isinstance(node, Element):
        yield node.start
        for child in node.children:
            yield from whole(child)
        yield node.end
    else:
        yield str(getattr(node, "raw", ""))


def depth(node: object) -> int:
    return 1 + max(map(depth, node.children), default=0) if isinstance(node, Element) else 0


# ------------------------------------------------------------------------------------------------- attributes


def shouted(text: str) -> str:
    """HTML with every text in capitals."""
    return translate_html(text, lambda texts: [text.upper() for text in texts], same)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<p>Das <img alt="ein Haus" src=haus.png> hier.</p>', '<p>DAS <img alt="EIN HAUS" src=haus.png> HIER.</p>'),
        ("<div title='Sag &quot;ja&quot;'>Nein</div>", "<div title='SAG \"JA\"'>NEIN</div>"),
        ("<input placeholder=Name value=Wert>", '<input placeholder="NAME" value=Wert>'),
        ("<input type=Submit value=Los>", '<input type=Submit value="LOS">'),
        ('<textarea placeholder="Text" title>Text</textarea>', '<textarea placeholder="TEXT" title>Text</textarea>'),
        (
            '<a aria-label="Mehr" title="Mehr" href="/mehr">X</a>',
            '<a aria-label="MEHR" title="MEHR" href="/mehr">X</a>',
        ),
        ('<meta name="description" content="Kurz">', '<meta name="description" content="KURZ">'),
        ('<meta name="robots" content="none">', '<meta name="robots" content="none">'),
        ('<option label="eins" value="eins">zwei', '<option label="EINS" value="eins">ZWEI</option>'),
        ('<b translate="no" title="Haus">Haus</b>', '<b translate="no" title="Haus">Haus</b>'),
        ('<p class="a notranslate"><i title="Haus">x</i></p>', '<p class="a notranslate"><i title="Haus">x</i></p>'),
        ('<link rel="stylesheet" title="dunkel">', '<link rel="stylesheet" title="dunkel">'),
        ('<b title="a" TITLE="b">x</b>', '<b title="A" TITLE="b">X</b>'),
    ],
)
def test_attributes_that_people_read_are_texts(text: str, expected: str) -> None:
    assert shouted(text) == expected


def test_a_page_can_be_written_with_several_translations() -> None:
    page = HtmlDocument('<p title="ja">Nein</p>')
    assert page.texts == ["Nein", "ja"]
    assert page.tagged == [False, False]
    assert page.translated(["No", "yes"], same) == '<p title="yes">No</p>'
    assert page.translated(["Nope", "yeah"], same) == '<p title="yeah">Nope</p>'
    assert page.translated(page.texts, same) == '<p title="ja">Nein</p>'


def test_a_translated_attribute_cannot_leave_its_quotes() -> None:
    page = HtmlDocument("<i title='ja'></i><i title=ja></i><i title=\"ja\"></i>")
    found = page.translated(["'\"><script>"] * 3, same)
    assert "<script" not in found
    parsed = [value for _, attributes in Seen(found).starts for _, value in attributes]
    assert parsed == ["'\"><script>"] * 3


class Seen(HTMLParser):
    """The start tags of a page, as another parser sees them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.starts: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.starts.append((tag, attrs))
