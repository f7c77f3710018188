# ruff: noqa: E501, W291
"""A file of each format with the corners of the format, and a stand-in for a translator."""

from knnmt.documents import Document, State, open_document
from knnmt.languages import Languages
from knnmt.text.inline import Inline

from .xml_examples import ANDROID, QT, TMX, XLIFF12, XLIFF20

EN_RU = Languages("en", "ru")

PO = rb"""# Translations of a program.
# Copyright
msgid ""
msgstr ""
"Project-Id-Version: x 1.0\n"
"Language: \n"
"MIME-Version: 1.0\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Content-Transfer-Encoding: 8bit\n"

#. a note of the programmer
#: src/a.c:1 src/b.c:2
#, c-format
msgid "Hello %s"
msgstr ""

# of the translator
msgctxt "menu"
msgid   "Open \"file\"\tnow\\"
msgstr   ""

msgid "Two lines\n"
"and the second\n"
msgstr ""

#, fuzzy, c-format
#| msgid "One file"
#| msgid_plural "%d file"
msgid "One file"
msgid_plural "%d files"
msgstr[0] "alt"
msgstr[1] "alte"

#, fuzzy
msgid "Review me"
msgstr "\xc3\xa4lter"

msgid "Done"
msgstr "Fertig"

#, no-wrap
msgid ""
"A long text that was wrapped by gettext at the usual column, because it "
"was too long for a line."
msgstr ""

#, fuzzy
#~ msgid "Gone"
#~ msgstr "Weg"

msgid "After the obsolete one"
msgstr ""
#~ msgid "The end"
#~ msgstr "Ende"
"""

HTML = b"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="description" content='A "good" page'><title>The &amp; title</title>
<style>p { color: red }</style><script>if (a < b) { document.write("<p>no</p>") }</script></head>
<body class='x' title="Tip &amp; trick">
<!-- a comment -->
<h1>Welcome   to
  <em>our</em> page</h1>
<p>Click <a href="x?a=1&b=2">here &gt; there</a> or press <kbd>Enter</kbd>.<br>New&nbsp;line <code>do not</code> <img src=a.png alt="A picture">
<form><input type=submit value="Send it"><input placeholder=Name value="keep"></form>
<p class="notranslate">Keep this</p>
<pre>  keep   this too </pre>
<ul><li>One<li>Two <b>bold</ul>
<table><tr><td>Cell</td><td>12</td></tr></table>
a < b and more
<div translate="no">Not <div>this</div> either</div> tail
<?php echo "no"; ?>
</body></html>
"""

MARKDOWN = b"""---
title: Keep this
---

# A title with `code` #

A paragraph with **bold text**, *emphasis*, a [link](http://example.org/a_b "title"),
a [reference][ref], a [short] one and <b>a tag</b>.
It has snake_case and \\*stars\\*.  
A hard break.

> A quote
> of two lines with `code  span`.

- First item
  goes on
- [ ] Second ![image](a.png)
  1. Nested

| Head | Other \\| one |
|------|:-----:|
| Cell | `code` x |

```python
print("keep")
```

    indented code

<div>
html block
</div>

Setext heading
==============

[ref]: http://example.org "Keep"
[short]: http://example.org/short
"""

JSON = b"""{
  "title": "Hello {{name}}",
  "nested": {"deep": ["First", "Sec\\u00f6nd", 3, null], "empty": ""},
  "url": "https://example.org/x",
  "plural": "{n, plural, one {# file} other {# files}} in {m, plural, one {a folder} other {folders}}",
  "quote": "Say \\"hi\\"\\n\\/now",
  "item_one": "{{count}} item",
  "n": 1.50e3
}
"""

ARB = b"""{
  "@@locale": "en",
  "hello": "Hello",
  "@hello": {"description": "Keep this"}
}
"""

CHROME = b"""{"ext": {"message": "An extension", "description": "Keep this"}}"""

YAML = b"""# a comment
en:
  title: Hello there   # why
  single: 'It''s here'
  double: "Say \\"hi\\" \\u00e4"
  list:
    - First
    - &anchor Second
    - *anchor
  literal: |
    Line one
    Line two
  folded: >-
    Folded text
    goes on

  number: 12
  yes: no
  count: "{n, plural, one {x} other {y}} of {m, plural, one {x} other {y}}"
  colon: "a: b"
"""

PROPERTIES = b"""# a comment
! another
title = Hello there
empty=
long : A text \\
       that goes on
key\\ with\\:spaces=Don''t move {0}
plain=Don't move
unicode=Sch\\u00f6n
path=C:\\\\temp\\ttab
"""

STRINGS = b"""/* a comment */
"title" = "Hello \\"you\\" %@";
// another
"multi" = "Line one\\nLine two";
bare_key = "Bare";
"number" = "12";
"""

XCSTRINGS = b"""{
  "sourceLanguage" : "en",
  "strings" : {
    "" : {

    },
    "Hello %@" : {

    },
    "KEY" : {
      "comment" : "why",
      "localizations" : {
        "en" : {
          "stringUnit" : {
            "state" : "translated",
            "value" : "A value"
          }
        }
      }
    },
    "done" : {
      "localizations" : {
        "ru" : {
          "stringUnit" : {
            "state" : "needs_review",
            "value" : "xx"
          }
        }
      }
    },
    "files" : {
      "localizations" : {
        "en" : {
          "variations" : {
            "plural" : {
              "one" : {
                "stringUnit" : {
                  "state" : "translated",
                  "value" : "%d file"
                }
              },
              "other" : {
                "stringUnit" : {
                  "state" : "translated",
                  "value" : "%d files"
                }
              }
            }
          }
        }
      }
    },
    "keep" : {
      "shouldTranslate" : false
    }
  },
  "version" : "1.0"
}
"""

SRT = b"""1
00:00:01,000 --> 00:00:02,500
<i>Hello</i> there,
how are you today?

2
00:00:03,000 --> 00:00:04,000
- Fine.
- {\\an8}Good.

3
00:00:05,000 --> 00:00:06,000
...
"""

VTT = b"""WEBVTT - a title

STYLE
::cue { color: red }

NOTE keep this

intro
00:01.000 --> 00:02.000 align:start
<v Bob>Hello <00:01.500>&amp; welcome

00:00:03.000 --> 00:00:04.000
Two lines
of text
"""

CSV = b'''id,source,target,note
1,Hello,,keep
2,"Quoted, with ""quotes""",,"keep ""this"""
3,Done,\xd0\x93\xd0\xbe\xd1\x82,
4,"Two
lines",,

5,12,,
'''

TSV = b'en\tru\tid\nHello "you"\t\t1\nDone\t\xd0\x93\t2\n'

TEXT = b"First line\n\n  indented line \n12\nlast"

EXAMPLES: dict[str, bytes] = {
    "app.po": PO, "app.xlf": XLIFF12, "app2.xliff": XLIFF20, "memory.tmx": TMX, "app.ts": QT, "strings.xml": ANDROID,
    "page.html": HTML, "page.md": MARKDOWN, "app.json": JSON, "app_en.arb": ARB, "messages.json": CHROME,
    "en.yml": YAML, "app.properties": PROPERTIES, "app.strings": STRINGS, "app.xcstrings": XCSTRINGS,
    "film.srt": SRT, "film.vtt": VTT, "table.csv": CSV, "table.tsv": TSV, "text.txt": TEXT,
}  # fmt: skip


def opened(name: str, data: bytes | None = None, languages: Languages = EN_RU) -> Document:
    """An example, or another file of its format."""
    return open_document(EXAMPLES[name] if data is None else data, languages=languages, name=name)


def shout(text: Inline) -> Inline:
    """A stand-in for a translator: capitals in place of letters of plain words, everything else as it is."""
    shouted = "".join(letter.upper() if len(letter.upper()) == 1 else letter for letter in text.text)
    return Inline(shouted, text.codes)


def translate(document: Document, state: State = State.FUZZY, note: str = "score -0.5") -> bytes:
    """Translate every unit, and write."""
    for unit in document.units:
        unit.set(shout(unit.source), state=state, note=note)
    return document.to_bytes()
