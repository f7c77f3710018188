"""Translated lines as `knnmt translate` writes them, and the translation of files of any size on a Ray cluster."""

import contextlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from knnmt import files, terminal
from knnmt.cli.documents import show_problems
from knnmt.errors import UsageError, writing_to

if TYPE_CHECKING:
    from knnmt.cluster.connection import ClusterSettings
    from knnmt.decode.settings import TranslateSettings
    from knnmt.translate import Translation


def written(found: "Translation", number: int, n_best: int, *, as_json: bool) -> str:
    """What is written for a line."""
    ranked = (found, *found.alternatives)
    if as_json:
        shown = [{"text": t.text, "score": round(t.score, 5)} | match_of(t) | terms_of(t) for t in ranked]
        return json.dumps({"line": number, "translations": shown}, ensure_ascii=False) + "\n"
    if n_best > 1:
        return "".join(f"{number} ||| {t.text} ||| {t.score:.5f}\n" for t in ranked)
    return found.text + "\n"


def problems_of(found: "Translation", place: str) -> list[str]:
    """What a reviewer should look at in a line."""
    kind = "untranslated" if found.match is None else "placeholder"
    told = [f"{place}: {kind}: {'; '.join(found.problems)}"] if found.problems else []
    return told + [f"{place}: term: {each}" for each in found.unused]


def match_of(found: "Translation") -> dict[str, Any]:
    """The segment of the store that contains a line verbatim, if there is one, for JSON."""
    segment = found.match
    return {} if segment is None else {"match": {"id": segment.id, "origin": segment.origin, "memory": found.memory}}


def terms_of(found: "Translation") -> dict[str, Any]:
    """What became of the glossary's terms in a line, if it has any, for JSON."""
    return {"terms": [each._asdict() for each in found.terms]} if found.terms else {}


def translate_on_ray(
    cluster: "ClusterSettings", input: Path | None, output: Path | None, options: dict[str, Any],
    settings: "TranslateSettings", glossary: Path | None, window: int, *, as_json: bool,
) -> None:  # fmt: skip
    """Translate a file, or standard input, on a cluster; a file that is written is resumed where it was interrupted."""
    from knnmt.cluster.translate import ray_translator

    stores = options["store"]
    if stores is not None:  # workers have folders of their own
        absolute = {path.absolute(): weight for path, weight in stores.items()} if isinstance(stores, dict) else None
        options["store"] = absolute or [path.absolute() for path in stores]
    options["shortlist"] = options["shortlist"] and options["shortlist"].absolute()
    glossary = glossary and glossary.absolute()
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(terminal.reading(input))
        if output is not None:
            terminal.require_writable(output, input)
        total = terminal.count_lines(source)
        translator = stack.enter_context(ray_translator(cluster, options, settings, glossary))
        plan = [
            _identity(input),
            options,
            cluster.precision,
            settings,
            glossary,
            as_json,
            translator.fingerprint,
        ]
        out = stack.enter_context(resumed(output, files.digest(repr(plan).encode())))
        bar = stack.enter_context(terminal.bar("translating", total))
        if out.lines:
            terminal.note(f"resumed after line {out.lines:,}")
            if bar is not None:
                bar(out.lines)
        lines = islice(terminal.lines_of(source, input), out.lines, None)
        problems: list[str] = []
        found_all = translator.stream(lines, window, bar)
        try:
            for number, found in enumerate(found_all, start=out.lines + 1):
                problems += problems_of(found, f"{input or 'standard input'}:{number}")
                out.write(written(found, number, settings.n_best, as_json=as_json))
                if number % window == 0:
                    out.note(number)
        except KeyboardInterrupt:
            if output is not None and out.lines:
                terminal.note(f"{terminal.counted(out.lines, 'line')} kept: the same command resumes the work")
            raise
    show_problems(problems)


def _identity(path: Path | None) -> tuple[str, int, int] | None:
    """What tells a file from another of its name."""
    if path is None or str(path) == "-":
        return None
    found = path.stat()
    return str(path.absolute()), found.st_size, found.st_mtime_ns


class Resumed:
    """An output that notes how far it has come: the lines of input that are done, and the bytes written for them.

    lines: those that were noted last, by this run or the one before
    """

    def __init__(self, file: IO[bytes], notes: Path | None, plan: str, lines: int) -> None:
        self.file, self.notes, self.plan, self.lines = file, notes, plan, lines

    def write(self, text: str) -> None:
        """Write what was made of a line."""
        self.file.write(text.encode())

    def note(self, lines: int) -> None:
        """Note that so many lines of input are done."""
        self.file.flush()
        self.lines = lines
        if self.notes is not None:
            content = {"plan": self.plan, "lines": lines, "bytes": self.file.tell()}
            files.write_whole(self.notes, json.dumps(content).encode())


@contextlib.contextmanager
def resumed(path: Path | None, plan: str) -> Iterator[Resumed]:
    """A file that is moved to its place when it is whole, or standard output.

    What an interrupted run of the same plan has written is kept, up to the lines that it noted.
    """
    if path is None or str(path) == "-":
        with terminal.writing(None) as out:
            yield Resumed(out.buffer, None, plan, 0)  # type: ignore[attr-defined]
        return
    part, notes = (path.with_name(f".{path.name}.{name}") for name in ("part", "part.json"))
    try:
        noted = json.loads(notes.read_bytes())
    except (OSError, ValueError):
        noted = {}
    if noted.get("plan") != plan or not part.exists() or part.stat().st_size < noted["bytes"]:
        noted = {"lines": 0, "bytes": 0}
    try:
        file = part.open("r+b" if noted["lines"] else "wb")
    except OSError as error:
        raise UsageError(f"cannot write {part}: {error.strerror}") from error
    with writing_to(part, "the same command resumes the work"), file:
        file.truncate(noted["bytes"])
        file.seek(noted["bytes"])
        yield Resumed(file, notes, plan, noted["lines"])
    files.put(part, path)
    notes.unlink(missing_ok=True)
