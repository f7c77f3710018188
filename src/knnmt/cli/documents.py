"""Whole files for `knnmt translate`: which files are read and written, and what is reported."""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from knnmt import terminal
from knnmt.errors import UsageError

if TYPE_CHECKING:
    from knnmt.decode.settings import TranslateSettings
    from knnmt.documents import Document
    from knnmt.documents.pretranslate import Tally, Translate, Translated
    from knnmt.languages import Languages
    from knnmt.text.glossary import Glossary
    from knnmt.text.inline import Inline
    from knnmt.translate import Translator

TEXT = "text"  # the format that is translated line by line
SHOWN = 20  # problems listed


@dataclass(frozen=True)
class Job:
    """A document to translate; None is standard input or output."""

    input: Path | None
    output: Path | None


@dataclass(frozen=True)
class Plan:
    """What to translate, and how to read it."""

    jobs: tuple[Job, ...]
    format: str | None
    columns: tuple[str, ...]
    everything: bool
    finished: Path | None  # where finished translations are kept until all is done

    def opened(self, job: Job, languages: "Languages | None") -> "Document":
        """Read a document."""
        from knnmt.documents import open_document

        if job.input is None:
            data, name = sys.stdin.buffer.read(), "standard input"
            return open_document(data, self.format, languages=languages, columns=self.columns, name=name)
        format = self.format or format_of(job.input) or TEXT
        return open_document(job.input, format, languages=languages, columns=self.columns)


def planned(
    inputs: Sequence[Path], output: Path | None, format: str | None, columns: str | None, *, everything: bool
) -> Plan | None:
    """The documents that a command names; None where it is to translate plain text, line by line."""
    inputs = [path for path in inputs if str(path) != "-"]
    output = None if output is not None and str(output) == "-" else output
    if format is not None:
        from knnmt.documents.formats import named

        format = named(format).name
    finished: Path | None
    several = len(inputs) > 1 or any(path.is_dir() for path in inputs)
    if not several and (format == TEXT or (format is None and not (inputs and format_of(inputs[0])))):
        if everything or columns:
            raise UsageError("--all and --columns are for documents: plain text is translated as a whole")
        return None
    if several:
        if output is None or output.is_file():
            raise UsageError(f"{inputs[0]}{' …' * (len(inputs) > 1)}: several documents need a folder to write to (-o)")
        jobs = tuple(_several(inputs, output, format))
        finished = output / ".knnmt.part.jsonl"
    else:
        source = inputs[0] if inputs else None
        target = output / source.name if output is not None and output.is_dir() and source is not None else output
        if target is not None:
            terminal.require_writable(target, source)
        jobs = (Job(source, target),)
        finished = target.with_name(f".{target.name}.part.jsonl") if target is not None else None
    return Plan(jobs, format, column_names(columns), everything, finished)


def _several(inputs: Sequence[Path], output: Path, format: str | None) -> Iterator[Job]:
    """The documents among files and in folders, with their places in the output folder."""
    taken: dict[Path, Path] = {}
    for file, inside in _found(inputs, format, output):
        place = output / (inside.with_suffix(".po") if file.suffix == ".pot" else inside)
        if place.exists() and place.samefile(file):
            raise UsageError(f"{place} is an input: write to another folder")
        if place in taken:
            raise UsageError(f"{taken[place]} and {file} would both be written to {place}")
        taken[place] = file
        yield Job(file, place)


def _found(inputs: Sequence[Path], format: str | None, output: Path | None = None) -> Iterator[tuple[Path, Path]]:
    """The documents among files and in folders, with their paths inside these; not what is in the output folder."""
    from knnmt.documents.formats import BY_NAME

    ignored = found = 0
    for given in inputs:
        if not given.exists():
            raise UsageError(f"cannot read {given}: No such file or directory")
        files = sorted(path for path in given.rglob("*") if path.is_file()) if given.is_dir() else [given]
        for file in files:
            inside = file.relative_to(given) if given.is_dir() else Path(file.name)
            hidden = any(part.startswith(".") for part in inside.parts)
            made = output is not None and output.resolve() in file.resolve().parents
            if given.is_dir() and (hidden or made):
                continue
            plain = file.suffix.lower() in BY_NAME[TEXT].suffixes
            if given.is_dir() and format is None and not plain and format_of(file) is None:
                ignored += 1
                continue
            found += 1
            yield file, inside
    if ignored:
        terminal.note(f"{terminal.counted(ignored, 'file')} of other formats ignored")
    if not found:
        raise UsageError(f"{inputs[0]}: no documents of a known format in it; name the format with --format")


def documents_in(
    inputs: Sequence[Path], format: str | None, columns: str | None, languages: "Languages | None"
) -> "list[Document]":
    """All documents among files and in folders, read."""
    from knnmt.documents import open_document

    return [
        open_document(file, format or format_of(file) or TEXT, languages=languages, columns=column_names(columns))
        for file, _ in _found(inputs, format)
    ]


def column_names(columns: str | None) -> tuple[str, ...]:
    """The names of columns that an option gives."""
    return tuple(name.strip() for name in columns.split(",")) if columns else ()


def format_of(path: Path) -> str | None:
    """The name of a document's format, None for plain text."""
    from knnmt.documents.formats import SAMPLE, known

    try:
        with path.open("rb") as file:
            found = known(path, file.read(SAMPLE))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    return None if found is None or found.name == TEXT else found.name


def run(
    plan: Plan, translator: "Translator", settings: "TranslateSettings", langs: str | None, *, as_json: bool,
    glossary: "Glossary | None" = None,
) -> None:  # fmt: skip
    """Translate all documents of a plan, each written when it is whole, and report."""
    from knnmt.decode.batches import ON_GPU
    from knnmt.documents.pretranslate import WINDOW, Tally, finished_in, pretranslate, texts_of
    from knnmt.server.detection import languages_of

    languages = languages_of(translator, langs)
    if settings.n_best > 1:
        raise UsageError("--n-best is for plain text: a document has room for one translation")
    if as_json and any(job.output is None for job in plan.jobs):
        raise UsageError("--json reports on standard output: write the document to a file (-o)")
    first = plan.opened(plan.jobs[0], languages) if len(plan.jobs) == 1 else None
    total, notes = 0, False
    for job in plan.jobs:  # whatever is wrong with one of them is said before any work
        document = first or plan.opened(job, languages)
        total, notes = total + texts_of(document, everything=plan.everything), notes or document.format.notes
    tally = Tally()
    if plan.finished is not None and len(plan.jobs) > 1:
        plan.finished.parent.mkdir(parents=True, exist_ok=True)
    translate = _translate(translator, settings, glossary, notes=notes)
    window = ON_GPU if translator.model.device.type == "cuda" else WINDOW
    with contextlib.ExitStack() as stack:
        made_with = _made_with(translator, settings, languages, glossary)
        finished = stack.enter_context(finished_in(plan.finished, made_with))
        bar = stack.enter_context(terminal.bar("translating", total))
        try:
            for job in plan.jobs:
                document = first or plan.opened(job, languages)
                found = pretranslate(
                    document, translate, everything=plan.everything, finished=finished, glossary=glossary,
                    window=window, progress=bar,
                )  # fmt: skip
                _write(document, job)
                tally.add(found)
        except KeyboardInterrupt:
            if plan.finished is not None and len(finished):
                terminal.note(
                    f"{terminal.counted(len(finished), 'translation')} kept: the same command resumes the work"
                )
            raise
    _report(tally, len(plan.jobs), as_json=as_json)


def _write(document: "Document", job: Job) -> None:
    """Write a document to its place."""
    if job.output is None:
        sys.stdout.buffer.write(document.to_bytes())
        sys.stdout.buffer.flush()
    else:
        job.output.parent.mkdir(parents=True, exist_ok=True)
        document.write(job.output)


def _made_with(
    translator: "Translator", settings: "TranslateSettings", languages: "Languages", glossary: "Glossary | None"
) -> str:
    """What a translation depends on: those of another model, store, glossary or settings are not taken up."""
    retriever = translator.retriever
    chosen = retriever.settings.model_dump_json() if retriever is not None else "base"
    store = str(translator.store.path) if translator.store is not None and retriever is not None else ""
    terms = (glossary.fingerprint,) if glossary else ()
    return " ".join((translator.model.fingerprint, str(languages), store, chosen, settings.model_dump_json(), *terms))


def _report(tally: "Tally", files: int, *, as_json: bool) -> None:
    """The summary of a run, on standard error, or as JSON on standard output."""
    if as_json:
        typer.echo(json.dumps({"files": files, **asdict(tally)}, ensure_ascii=False))
        return
    show_problems(tally.problems)
    parts = [f"{terminal.counted(tally.units, 'unit')} translated ({terminal.counted(tally.words, 'word')})"]
    parts += [f"{tally.exact:,} exact {'match' if tally.exact == 1 else 'matches'}"]
    parts += [f"{tally.kept:,} translated before"] if tally.kept else []
    parts += [f"{tally.left:,} left as they are (ICU messages and the like)"] if tally.left else []
    parts += [terminal.counted(len(tally.problems), "problem")]
    typer.echo(f"{terminal.counted(files, 'file')}: {', '.join(parts)}", err=True)


def show_problems(problems: Sequence[str]) -> None:
    """The first problems on standard error, and how many more there are."""
    for problem in problems[:SHOWN]:
        typer.echo(problem, err=True)
    if len(problems) > SHOWN:
        typer.echo(f"… and {len(problems) - SHOWN:,} more: `knnmt check` lists all", err=True)


def _translate(
    translator: "Translator", settings: "TranslateSettings", glossary: "Glossary | None", *, notes: bool
) -> "Translate":
    """What the translator makes of texts with codes and, for `notes`, how well the store matches them."""
    from knnmt.documents.pretranslate import Translated
    from knnmt.translate.fuzzy import FuzzyIndex

    store = translator.store if notes and translator.retriever is not None else None
    index = FuzzyIndex(store) if store is not None else None

    def translate(units: "Sequence[Inline]") -> "list[Translated]":
        found = translator.translate_inline(units, settings, glossary=glossary)
        matches: list[float | None] = [None] * len(units)
        if index is not None:
            best = index.best([unit.text for unit in units])
            matches = [0.0 if match is None else match.score for match in best]
        return [
            Translated(each.target, each.score, each.match is not None, each.problems, match)
            for each, match in zip(found, matches, strict=True)
        ]

    return translate
