"""Make parliamentary text a little more like the text people translate.

Europarl and Tatoeba hold next to no software strings, headlines or markup, so a model trained on them alone
drops `%(name)s`, shouts back prose at ALL CAPS and ends every label with a full stop. Here a share of the
pairs is changed on both sides alike, so that the model learns to carry such things over.
"""

import random
import re
from collections.abc import Sequence

QUOTES = str.maketrans({**dict.fromkeys("„“”‟»«″", '"'), **dict.fromkeys("‚‘’‛´`ʼ′", "'")})
INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2028-\u202e\u2060\ufeff\x00-\x08\x0b-\x1f\x7f-\x9f]")
SPACES = re.compile(r"\s+")
ENGLISH_QUOTE = re.compile(r"(?<!\w)‘([^‘’]+)’(?!\w)")  # ‘so’, where the German side says „so“
SPLIT = re.compile(r"(?<=[,;:–])\s|\s(?=[–-]\s)")
NAME = re.compile(r"\w*\d|[A-ZÄÖÜ]\w\w")  # what looks like a number or a name
FINAL = ".!?"
NAMES = "name user count number file title page url size date object field value email total path item".split()
ATTRIBUTES = ('target="_blank"', 'rel="noopener"', 'class="button"', 'title="help"', 'data-id="7"')
WORD = re.compile(r"[A-Za-z]{3,12}")
TAGS = "b i em strong code a span p li h1 u tt guilabel emphasis".split()


def normalise(text: str) -> str:
    """Straight quotes, plain spaces, nothing invisible: what keyboards and most references hold."""
    text = ENGLISH_QUOTE.sub(r'"\1"', INVISIBLE.sub("", text))
    return SPACES.sub(" ", text.translate(QUOTES)).strip()


def placeholder(rng: random.Random, words: Sequence[str]) -> str:
    """A piece of text that every translation must carry over unchanged.

    Most names are words of the pair: a model that only ever sees `%(title)s` translates `%(product)s`.
    """
    name, other = (rng.choice(words if words and rng.random() < 0.7 else NAMES) for _ in range(2))
    word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 8)))
    number = rng.randint(0, 9999)
    return rng.choice(
        (
            "%s", "%s", "%d", "%1", f"%{number % 4 + 1}$s", "%i", "%%", f"%({name})s", f"%({name})s", f"%({word})d",
            f"%({word}_{name})s", f"%({name}_{word})d", f"%{number % 4 + 1}", f"%{{{word}}}", f":{word}", "%@", "%.1f",
            "%n", "{}", "{0}", f"{{{number % 4}}}", f"{{{name}}}", f"{{{word}_{name}}}", f"{{{{ {word} }}}}",
            f"{{{{{name}}}}}", f"${word}", f"${{{name.upper()}}}", f"[{name}]", f"@{word}", f"`{word} {name}`",
            f"__{name}__", f"<{number % 4}>", f"{number % 97} %", f"{number % 97} MB",
            f"{number % 13}:{number % 60:02}", f"v{number % 9}.{number % 17}.0",
            f"<{rng.choice(TAGS)}>", f"<{rng.choice(TAGS)}/>", f'<a href="{word}.html">', "&nbsp;", f"&{word};",
            f'<a href="%({word}_{name})s" {rng.choice(ATTRIBUTES)}>', f'<{word} {rng.choice(ATTRIBUTES)} {name}="">',
            f'<a class="{word}-{name}" href="#{other}" data-{word}-{other}="{name}">',
            f'<a href="https://{word}.org/{name}/%({other})s/" {rng.choice(ATTRIBUTES)}>',
            f"%({name}_{other})s", f"{{{name}_{other}}}", f"%({name}_{other}_{word})s",
            f"https://www.{word}.org/{name}", f"http://{word}.com/{word}?{name}={number}", f"{word}@{name}.net",
            f"{word}_{name}", f"{word}.{name}()", f"/usr/{word}/{name}.conf", f"--{word}", f"{name}.{word[:3]}",
            word.capitalize() + name.capitalize(), f"{word.upper()}_{number}", str(number), f"{number}.{number % 97}",
            f"#{number}", chr(rng.randint(0x390, 0x3CF)), chr(rng.randint(0x410, 0x44F)),
            chr(rng.randint(0x4E00, 0x9FFF)), rng.choice("→•✓©™€😀×"),
        )
    )  # fmt: skip


def hold(source: str, target: str, rng: random.Random) -> tuple[str, str]:
    """Put placeholders where both sides share a word (a name, a number), or else at an end of both."""
    left, right = source.split(" "), target.split(" ")
    words = [word.lower() for word in WORD.findall(f"{source} {target}")]
    shared = [w for w in set(left) & set(right) if NAME.match(w) and left.count(w) == right.count(w) == 1]
    if not shared:
        held, place = placeholder(rng, words), rng.random()
        if place < 0.4:
            return f"{held} {source}", f"{held} {target}"
        if place < 0.6:
            tag = rng.choice(TAGS)
            return f"<{tag}>{source}</{tag}>", f"<{tag}>{target}</{tag}>"
        joint = rng.choice((" ", ": ", " (", " - "))
        close = ")" if joint == " (" else ""
        end = source[-1:] if source[-1:] in FINAL and target[-1:] == source[-1:] else ""
        return tuple(f"{s[: len(s) - len(end)]}{joint}{held}{close}{end}" for s in (source, target))  # type: ignore[return-value]
    for word in sorted(shared)[: rng.randint(1, 3)]:
        core = word.rstrip(".,;:!?")
        tag = rng.choice(TAGS)
        held = f"<{tag}>{core}</{tag}>" if rng.random() < 0.3 else placeholder(rng, words)
        left[left.index(word)] = right[right.index(word)] = held + word[len(core) :]
    return " ".join(left), " ".join(right)


def fragment(source: str, target: str, rng: random.Random) -> tuple[str, str]:
    """One clause of a pair whose clauses match one to one: short text that is not a sentence."""
    left, right = SPLIT.split(source), SPLIT.split(target)
    if not 1 < len(left) == len(right) < 6:
        return source, target
    pairs = [(s, t) for s, t in zip(left, right, strict=True) if s and t and 0.6 < len(s) / len(t) < 1.7]
    if len(pairs) < len(left):
        return source, target
    bare = " ,;:–-." if rng.random() < 0.8 else " "
    s, t = (side.strip(bare) for side in rng.choice(pairs))
    return (s[:1].upper() + s[1:], t[:1].upper() + t[1:]) if s and t and rng.random() < 0.7 else (s, t)


def several(first: tuple[str, str], second: tuple[str, str]) -> tuple[str, str] | None:
    """Two pairs as one segment, where both are whole sentences and together not long."""
    whole = all(side[-1:] in FINAL for side in (*first, *second))
    short = max(map(len, (*first, *second))) < 150
    return (f"{first[0]} {second[0]}", f"{first[1]} {second[1]}") if whole and short else None


def misspell(text: str, rng: random.Random) -> str:
    """One or two slips of the keyboard."""
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(max(1, len(text) - 1))
        slip = rng.choice((text[at + 1 : at + 2] + text[at : at + 1], "", text[at : at + 1] * 2))
        text = text[:at] + slip + text[at + (2 if len(slip) == 2 and slip[0] != slip[1] else 1) :]
    return text


def perturb(source: str, target: str, rng: random.Random) -> tuple[str, str]:
    """A pair as it is (three times of four), or changed in one of the ways above."""
    kind = rng.random()
    if kind < 0.13:
        source, target = hold(source, target, rng)
    elif kind < 0.16:
        source, target = fragment(source, target, rng)
    elif kind < 0.19 and source[-1:] in FINAL and target[-1:] in FINAL:
        end = rng.choice(("", "", "", "…", "...", ":"))
        source, target = source[:-1] + end, target[:-1] + end
    elif kind < 0.20:
        source, target = source.upper(), target.upper()
    elif kind < 0.205:
        source = source.lower()
    elif kind < 0.215:
        source = misspell(source, rng)
    elif kind < 0.235:
        opening, closing = rng.choice(("„“", "»«", "“”", "«»"))
        source = re.sub(r'"([^"]*)"', rf"{opening}\1{closing}", source).replace("'", "’").replace(" - ", " – ")
    return source, target
