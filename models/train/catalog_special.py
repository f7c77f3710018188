"""German-English pairs of packages with formats of their own: Chromium, TypeScript, Monaco, VS Code, TiddlyWiki."""

import ast
import json
import re
import struct
from collections.abc import Iterator

Files = dict[str, bytes]
Pairs = Iterator[tuple[str, str]]
SPECIAL = re.compile(
    r"chromium/locales/(de|en-US)\.pak(\.info)?$|lib/(typescript\.js|de/diagnosticMessages\.generated\.json)$"
    r"|package/esm/vs/.*\.js$|package/translations/extensions/.*\.json$|language(s/de-DE|/en-GB)/\w+\.multids$"
)
# Chromium: names of locales and fonts, key words, and texts of others.
NO_TEXT = re.compile(r"_(LOCALE|FONT|ENCODING|ACCEPT_LANG|HTML_ID|PEDAL|SYNONYM|TRIGGER)|third_party")
LOCALIZED = re.compile(r"""localize2?\(\s*(\d{1,5}),\s*("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')""")
DIAGNOSTIC = re.compile(r'diag\(\d+, \d /\* \w+ \*/, ("(?:[^"\\]|\\.)*"), ("(?:[^"\\]|\\.)*")')
WIKI_MARKUP = re.compile(r"<<|\[\[|\{\{")
WIKI_EMPHASIS = re.compile(r"''|(?<!:)//|`")


def special_pairs(files: Files) -> Pairs:
    """The pairs of those of these packages that `files` are from."""
    for reader in (chromium, typescript, monaco, vscode, tiddlywiki):
        yield from reader(files)


def ending(files: Files, end: str) -> bytes | None:
    """The file whose path has this end."""
    return next((content for name, content in files.items() if name.endswith(end)), None)


def chromium(files: Files) -> Pairs:
    """Data packs of both languages, whose texts have the same numbers."""
    german, english, info = (ending(files, f"locales/{name}") for name in ("de.pak", "en-US.pak", "de.pak.info"))
    if german and english and info:
        named = (line.split(",", 2) for line in info.decode().splitlines())
        skipped = {int(number) for name, number, *file in named if NO_TEXT.search(" ".join([name, *file]))}
        left, right = pack(german), pack(english)
        yield from ((left[n], right[n]) for n in left if n in right and n not in skipped)


def pack(content: bytes) -> dict[int, str]:
    """The texts of a data pack, version 5: number and offset of each entry, then aliases (number, index of entry)."""
    count, aliases = struct.unpack_from("<HH", content, 8)
    index = [struct.unpack_from("<HI", content, 12 + 6 * n) for n in range(count + 1)]
    texts = [content[index[n][1] : index[n + 1][1]].decode("utf-8", "replace") for n in range(count)]
    found = {index[n][0]: texts[n] for n in range(count)}
    for n in range(aliases):
        number, entry = struct.unpack_from("<HH", content, 12 + 6 * (count + 1) + 4 * n)
        found[number] = texts[entry]
    return found


def typescript(files: Files) -> Pairs:
    """Diagnostics by name; the English ones stand in the compiler."""
    german, compiler = (ending(files, end) for end in ("de/diagnosticMessages.generated.json", "lib/typescript.js"))
    if german and compiler:
        found = DIAGNOSTIC.findall(compiler.decode())
        english = {ast.literal_eval(name): ast.literal_eval(text) for name, text in found}
        yield from ((text, english[name]) for name, text in json.loads(german).items() if name in english)


def monaco(files: Files) -> Pairs:
    """A list of German texts, and calls that hold the number and the English text."""
    messages = ending(files, "esm/vs/nls/lang/de.js")
    if messages:
        text = messages.decode()
        german, _ = json.JSONDecoder().raw_decode(text, text.index("[", text.index("_NLS_MESSAGES=")))
        for name, content in files.items():
            for number, literal in LOCALIZED.findall(content.decode()) if "/esm/vs/" in name else ():
                if int(number) < len(german) and german[int(number)]:  # && marks the key of a menu
                    yield german[int(number)].replace("&&", ""), ast.literal_eval(literal).replace("&&", "")


def vscode(files: Files) -> Pairs:
    """Texts of extensions, of those that have the English text for a key (with a comment behind it)."""
    for name, content in files.items():
        if "/translations/extensions/" in name:
            for key, german in json.loads(content)["contents"].get("bundle", {}).items():
                if not key.startswith('{"'):
                    yield german, key.split("/{")[0] if '/{"' in key else key


def tiddlywiki(files: Files) -> Pairs:
    """`Key: text` lines; those with links and macros are left out."""
    for name, content in files.items():
        other = files.get(name.replace("languages/de-DE", "core/language/en-GB"))
        if "languages/de-DE" in name and name.endswith(".multids") and other:
            german, english = (dict(re.findall(r"(?m)^([^#\n:]+): (.*)$", each.decode())) for each in (content, other))
            for key in [key for key in german if key in english]:
                if not WIKI_MARKUP.search(german[key] + english[key]):
                    yield WIKI_EMPHASIS.sub("", german[key]), WIKI_EMPHASIS.sub("", english[key])
