"""Commands that translate: translate, explain."""

import contextlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from knnmt import terminal
from knnmt.cli.app import (
    DeviceOption,
    DtypeOption,
    IndexOption,
    JsonOption,
    LangsOption,
    ModelOption,
    NprobeOption,
    SettingsOption,
    StoreNeeded,
    StoreOption,
    SystemOption,
    ThreadsOption,
    app,
    checked,
    retrieval_settings,
)
from knnmt.errors import UsageError

if TYPE_CHECKING:
    from rich.text import Text

    from knnmt.corpus.segment import Segment
    from knnmt.datastore import Datastore
    from knnmt.evidence import Neighbour, TokenEvidence
    from knnmt.retrieval.tuned import Tuned
    from knnmt.translate import Translator

NARROW = 45  # columns of a table of evidence, without its texts


@app.command()
def translate(
    input: Annotated[Path | None, typer.Argument(help="Text, one segment a line; standard input if left out.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where to write; standard output if left out.")
    ] = None,
    model: ModelOption = "mini-de-en",
    langs: LangsOption = None,
    store: StoreOption = None,
    system: SystemOption = None,
    settings_file: SettingsOption = None,
    k: Annotated[int | None, typer.Option("-k", help="Neighbours. [default: 16]")] = None,
    c: Annotated[
        int | None, typer.Option("-c", help="Tokens or prototypes that a source token sees. [default: by the system]")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Of the softmax over distances. [default: by the store]")
    ] = None,
    weight: Annotated[
        float | None, typer.Option("--lambda", help="Share of what is retrieved, at most. [default: by the system]")
    ] = None,
    adapt: Annotated[
        Literal["constant", "distance"] | None,
        typer.Option(help="That share is constant, or falls with the distance. [default: distance]"),
    ] = None,
    probe: Annotated[int | None, typer.Option(help="Clusters that are ranked together (faster). [default: 1]")] = None,
    index: IndexOption = None,
    nprobe: NprobeOption = None,
    leave_out_own: Annotated[
        bool, typer.Option("--leave-out-own", help="Do not use what the store has of these very lines: to measure.")
    ] = False,
    exact: Annotated[bool, typer.Option(help="Take a line that the store has word for word from the store.")] = True,
    beam: Annotated[int, typer.Option(help="Beams; 1 is greedy search.")] = 5,
    n_best: Annotated[
        int, typer.Option(help="Translations of each line, written as «line number ||| text ||| score».")
    ] = 1,
    length_penalty: Annotated[
        float | None, typer.Option(help="Divide scores by length to this power. [default: the model's]")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(help="Most tokens of a translation. [default: by the source's length]")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Lines translated together.")] = 32,
    long: Annotated[
        Literal["split", "refuse"], typer.Option(help="Cut lines that are too long for the model, or refuse them.")
    ] = "split",
    window: Annotated[int, typer.Option(min=1, help="Most lines read ahead; 1 answers each line at once.")] = 1024,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Translate text, one segment a line. Empty lines stay empty, and the order is kept."""
    from knnmt.datastore import Datastore
    from knnmt.translate import TranslateSettings

    settings = checked(
        TranslateSettings,
        beam=beam,
        n_best=n_best,
        length_penalty=length_penalty,
        max_length=max_length,
        batch_size=batch_size,
        long=long,
        exact=exact,
    )
    if leave_out_own and store is None:
        raise UsageError("--leave-out-own is about a store: name one (--store)")
    with contextlib.ExitStack() as stack:
        source, out = stack.enter_context(terminal.reading(input)), stack.enter_context(terminal.writing(output, input))
        chosen = retrieval_settings(
            settings_file, k=k, c=c, temperature=temperature, adapt=adapt, probe=probe, index=index,
            nprobe=nprobe, **{"lambda": weight},
        )  # fmt: skip
        typing = input is None and source.isatty()
        total = terminal.count_lines(source)
        texts: Iterable[str] = terminal.lines_of(source, input)
        opened = Datastore.open(store) if store is not None else None
        left_out: frozenset[int] = frozenset()
        if leave_out_own and opened is not None:
            texts = list(texts)
            left_out = _own(opened, texts)
        translator = _translator(model, opened, system, chosen, langs, device, dtype, threads, left_out)
        bar = stack.enter_context(terminal.bar("translating", total, quiet=typing))
        found_all = translator.stream(texts, settings, window=1 if typing else window, progress=bar)
        for number, found in enumerate(found_all, start=1):
            ranked = (found, *found.alternatives)
            if as_json:
                shown = [{"text": t.text, "score": round(t.score, 5)} | _match(t.match) for t in ranked]
                out.write(json.dumps({"line": number, "translations": shown}, ensure_ascii=False) + "\n")
            elif n_best > 1:
                out.writelines(f"{number} ||| {t.text} ||| {t.score:.5f}\n" for t in ranked)
            else:
                out.write(found.text + "\n")
            out.flush()


@app.command()
def explain(
    text: Annotated[str, typer.Argument(help="A text to translate.")],
    store: StoreNeeded,
    model: ModelOption = "mini-de-en",
    langs: LangsOption = None,
    system: SystemOption = None,
    settings_file: SettingsOption = None,
    neighbours: Annotated[int, typer.Option(min=0, max=8, help="Training segments shown for each token.")] = 2,
    beam: Annotated[int, typer.Option(help="Beams; 1 is greedy search.")] = 5,
    device: DeviceOption = "auto",
    dtype: DtypeOption = "auto",
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show why each word of a translation was chosen. What the model thought, what the store did, by which segments."""
    from knnmt.translate import TranslateSettings

    if system == "base":
        raise UsageError("base MT uses no store, so there is nothing to explain: leave --system out, or name another")
    settings = checked(TranslateSettings, beam=beam, evidence=True)
    translator = _translator(model, store, system, retrieval_settings(settings_file), langs, device, dtype, threads)
    found = translator.translate([text], settings)[0]
    if as_json:
        tokens = [asdict(each) | {"memory": each.memory} for each in found.evidence]
        content = {"text": found.text, "score": found.score, **_match(found.match), "tokens": tokens}
        typer.echo(json.dumps(content, ensure_ascii=False, indent=2))
        return
    terminal.show(_evidence_table(found.evidence, neighbours))
    typer.echo(found.text)
    if found.match is not None:
        terminal.note(f"the store has this text word for word ({found.match.origin or found.match.id or 'no origin'})")


def _evidence_table(evidence: "tuple[TokenEvidence, ...]", neighbours: int) -> Any:
    """A line for each neighbour, cut to the width of the terminal around its token."""
    from rich.text import Text

    numbers = ("p", "p_MT", "p_kNN", "λ")
    table = terminal.table("token", *numbers, "memory", "training segments behind it", numbers=numbers)
    room = max(24, terminal.width() - NARROW - max(5, *(len(each.token.strip()) for each in evidence)))
    for each in evidence:
        lines = [_excerpt(neighbour, room) for neighbour in each.neighbours[:neighbours]]
        values = [f"{value:.2f}" for value in (each.p, each.p_mt, each.p_knn, each.weight)]
        table.add_row(each.token.strip() or "⏎", *values, "█" * round(6 * each.memory), Text("\n").join(lines))
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


def _match(segment: "Segment | None") -> dict[str, Any]:
    """The segment of the store that a line was found in word for word, for JSON; nothing where there is none."""
    return {} if segment is None else {"match": {"id": segment.id, "origin": segment.origin}}


def _own(store: "Datastore", texts: list[str]) -> frozenset[int]:
    """The segments that a store has of these very texts."""
    from knnmt.overlap import overlaps

    found = overlaps(store, texts)
    terminal.note(f"the store has {found} of {len(texts):,} lines: left out {len(found.segments):,} of its segments")
    return found.segments


def _translator(
    model: str, store: "Path | Datastore | None", system: str | None, retrieval: "Tuned | None",
    langs: str | None, device: str, dtype: str, threads: int | None, left_out: frozenset[int] = frozenset(),
) -> "Translator":  # fmt: skip
    import torch

    from knnmt.translate import Translator

    if threads is not None:
        torch.set_num_threads(threads)
    return Translator(
        model, store, system=system, retrieval=retrieval, left_out=left_out, langs=langs, device=device, dtype=dtype
    )
