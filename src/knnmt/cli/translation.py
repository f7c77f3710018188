"""Commands that translate: translate, explain."""

import contextlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from knnmt import terminal
from knnmt.cli.app import (
    ColumnsOption,
    DeviceOption,
    FormatOption,
    GlossaryOption,
    JsonOption,
    LangsOption,
    ModelOption,
    PrecisionOption,
    SettingsOption,
    ShortlistOption,
    StoresNeeded,
    StoresOption,
    StoreWeightsOption,
    SystemOption,
    ThreadsOption,
    app,
    load_glossary,
    retrieval_settings,
    use_threads,
    weighted,
)
from knnmt.cli.cluster import RayOption, RayWorkersOption, cluster_settings, seen_by_all
from knnmt.cli.documents import planned, run, show_problems
from knnmt.cli.lines import match_of, problems_of, terms_of, translate_on_ray, written
from knnmt.cli.options import Command, Fields, options
from knnmt.errors import UsageError

if TYPE_CHECKING:
    from rich.text import Text

    from knnmt.decode.settings import TranslateSettings
    from knnmt.evidence import Neighbour, TokenEvidence
    from knnmt.retrieval.tuned import Tuned
    from knnmt.store.memories import AnyStore, Paths
    from knnmt.translate import Translator

NARROW = 45  # columns of a table of evidence, without its texts
GAP = 2  # columns between two of its columns


@app.command(cls=Command)
@options(
    retrieval=Fields(
        "systems.settings:RetrievalSettings",
        "k", "c", "temperature", "weight", "adapt", "probe", "index", "nprobe", given_only=True,
    ),
    settings=Fields(
        "decode.settings:TranslateSettings",
        "exact", "beam", "n_best", "length_penalty", "max_length", "batch_size", "long",
        "sentences", "spans", "protect",
    ),
)  # fmt: skip
def translate(
    *,
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(help="Text, one segment per line; documents; folders of them. [default: standard input]"),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Output file or folder. [default: standard output]")
    ] = None,
    format: FormatOption = None,
    all_units: Annotated[bool, typer.Option("--all", help="Also translate units that have a translation.")] = False,
    columns: ColumnsOption = None,
    model: ModelOption = "mini",
    langs: LangsOption = None,
    store: StoresOption = None,
    store_weights: StoreWeightsOption = None,
    system: SystemOption = None,
    settings_file: SettingsOption = None,
    glossary: GlossaryOption = None,
    retrieval: dict[str, Any],
    leave_out_own: Annotated[
        bool, typer.Option("--leave-out-own", help="Ignore segments of the store that overlap the input.")
    ] = False,
    settings: "TranslateSettings",
    window: Annotated[int, typer.Option(min=1, help="Maximum lines read ahead; 1 for interactive use.")] = 1024,
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    shortlist: ShortlistOption = None,
    threads: ThreadsOption = None,
    ray: RayOption = None,
    ray_workers: RayWorkersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Translate lines of text, documents or folders. PO, XLIFF, DOCX, HTML, Markdown, JSON and others.

    Text is translated line by line: empty lines stay, and --n-best writes `line number ||| text ||| score`. In a
    document only untranslated and fuzzy units are translated, and marked for review; everything else stays as it is.

    With --ray, a Ray cluster translates lines in blocks of --window; --threads sets the threads of each worker
    (default: 1). The same command resumes an interrupted run. All machines must share the folders of model and stores.
    """
    from knnmt.datastore import open_stores

    if leave_out_own and not store:
        raise UsageError("--leave-out-own needs a store (--store)")
    plan = planned(inputs or [], output, format, columns, everything=all_units)
    cluster = cluster_settings(ray, ray_workers, threads, device, precision)
    if cluster is not None:
        if leave_out_own:
            raise UsageError("--leave-out-own is not for --ray: evaluate on one machine")
        if plan is not None:
            raise UsageError("--ray is for plain text, one segment per line: translate documents without it, and if "
                             "they are many, a share on each machine (an interrupted run resumes)")  # fmt: skip
        chosen, stores = retrieval_settings(settings_file, **retrieval), weighted(store, store_weights)
        options: dict[str, Any] = {"model": seen_by_all(model), "store": stores, "system": system, "retrieval": chosen}
        options |= {"langs": langs, "shortlist": shortlist}
        translate_on_ray(
            cluster, inputs[0] if inputs else None, output, options, settings, glossary, window, as_json=as_json
        )
        return
    if plan is not None:
        if leave_out_own:
            raise UsageError("--leave-out-own is for plain text")
        chosen, stores = retrieval_settings(settings_file, **retrieval), weighted(store, store_weights)
        translator = _translator(model, stores, system, chosen, langs, device, precision, threads)
        run(plan, translator, settings, langs, as_json=as_json, glossary=load_glossary(glossary, translator))
        return
    input = inputs[0] if inputs else None
    with contextlib.ExitStack() as stack:
        source, out = stack.enter_context(terminal.reading(input)), stack.enter_context(terminal.writing(output, input))
        chosen = retrieval_settings(settings_file, **retrieval)
        typing = input is None and source.isatty()
        total = terminal.count_lines(source)
        texts: Iterable[str] = terminal.lines_of(source, input)
        stores = weighted(store, store_weights)
        opened = open_stores(stores) if stores else None
        left_out: frozenset[int] = frozenset()
        if leave_out_own and opened is not None:
            texts = list(texts)
            left_out = _own(opened, texts)
        translator = _translator(model, opened, system, chosen, langs, device, precision, threads, left_out, shortlist)
        terms = load_glossary(glossary, translator)
        bar = stack.enter_context(terminal.bar("translating", total, quiet=typing))
        problems: list[str] = []
        ahead = 1 if typing else window
        found_all = translator.stream(texts, settings, glossary=terms, window=ahead, progress=bar)
        for number, found in enumerate(found_all, start=1):
            problems += problems_of(found, f"{input or 'standard input'}:{number}")
            out.write(written(found, number, settings.n_best, as_json=as_json))
            out.flush()
    show_problems(problems)


@app.command(cls=Command)
@options(settings=Fields("decode.settings:TranslateSettings", "beam"))
def explain(
    *,
    text: Annotated[str, typer.Argument(help="Text to translate.")],
    store: StoresNeeded,
    model: ModelOption = "mini",
    langs: LangsOption = None,
    store_weights: StoreWeightsOption = None,
    system: SystemOption = None,
    settings_file: SettingsOption = None,
    glossary: GlossaryOption = None,
    neighbours: Annotated[int, typer.Option(min=0, max=8, help="Training segments shown per token.")] = 2,
    settings: "TranslateSettings",
    device: DeviceOption = "auto",
    precision: PrecisionOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain a translation token by token. The model's probability, the store's, and the segments behind it."""
    if system == "base":
        raise UsageError("base MT uses no store, so there is nothing to explain: name another --system, or none")
    stores, retrieval = weighted(store, store_weights), retrieval_settings(settings_file)
    translator = _translator(model, stores, system, retrieval, langs, device, precision, threads)
    terms = load_glossary(glossary, translator)
    found = translator.translate([text], settings.model_copy(update={"evidence": True}), glossary=terms)[0]
    if as_json:
        tokens = [asdict(each) | {"memory": each.memory} for each in found.evidence]
        content = {"text": found.text, "score": found.score, **match_of(found), **terms_of(found), "tokens": tokens}
        typer.echo(json.dumps(content, ensure_ascii=False, indent=2))
        return
    terminal.show(_evidence_table(found.evidence, neighbours, several=len(store) > 1))
    typer.echo(found.text)
    if found.match is not None:
        terminal.note(f"the store contains this text verbatim ({found.match.origin or found.match.id or 'no origin'})")


def _evidence_table(evidence: "tuple[TokenEvidence, ...]", neighbours: int, *, several: bool) -> Any:
    """A line per neighbour, cut around its token to the width of the terminal; of several stores, with its store."""
    from rich.text import Text

    shown = [each.neighbours[:neighbours] for each in evidence]
    numbers, stores = ("p", "p_MT", "p_kNN", "λ"), ["store"] if several else []
    table = terminal.table("token", *numbers, "memory", *stores, "training segments behind it", numbers=numbers)
    room = terminal.width() - NARROW - max(5, *(len(each.token.strip()) for each in evidence))
    if several:
        room -= GAP + max(len("store"), *(len(one.memory) for some in shown for one in some))
    for each, some in zip(evidence, shown, strict=True):
        values = [f"{value:.2f}" for value in (each.p, each.p_mt, each.p_knn, each.weight)]
        names = ["\n".join(one.memory for one in some)] if several else []
        by_glossary = [Text("by the glossary", "bold")] if each.term else []
        lines = Text("\n").join([*by_glossary, *(_excerpt(one, max(24, room)) for one in some)])
        table.add_row(each.token.strip() or "⏎", *values, "█" * round(6 * each.memory), *map(Text, names), lines)
    return table


def _excerpt(neighbour: "Neighbour", room: int) -> "Text":
    """The share of p_kNN that a neighbour has, and its token among its words, in a line of this width."""
    from rich.text import Text

    token = neighbour.token or " ⏎"
    left = room - len(f"{1:4.0%} ") - len(token)
    before, after = neighbour.before, neighbour.after
    if len(before) > (most := max(left - len(after), 2 * left // 3, 2)):
        before = "…" + before[1 - most :]
    if len(after) > (most := max(left - len(before), 2)):
        after = after[: most - 1] + "…"
    return Text.assemble(f"{neighbour.weight:4.0%} ", before, (token, "bold reverse"), after)


# ------------------------------------------------------------------------------------------- around the commands


def _own(store: "AnyStore", texts: list[str]) -> frozenset[int]:
    """The segments of a store whose source is one of these texts."""
    from knnmt.overlap import overlaps

    found = overlaps(store, texts)
    terminal.note(f"the store contains {found} of {len(texts):,} lines: ignoring {len(found.segments):,} segments")
    return found.segments


def _translator(
    model: str, store: "Paths | AnyStore | None", system: str | None, retrieval: "Tuned | None",
    langs: str | None, device: str, precision: str, threads: int | None, left_out: frozenset[int] = frozenset(),
    shortlist: Path | None = None,
) -> "Translator":  # fmt: skip
    from knnmt.translate import Translator

    use_threads(threads)
    return Translator(
        model,
        store,
        system=system,
        retrieval=retrieval,
        left_out=left_out,
        langs=langs,
        device=device,
        precision=precision,
        shortlist=shortlist,
    )
