"""From parallel text to a datastore, in stages that leave what they made in a work folder.

read ▶ align ▶ link ▶ count, over the whole corpus; then part by part: cut ▶ represent ▶ scale ▶ the stages of the
systems ▶ seal; then publish. Stretches of the corpus are linked, and parts are made, in pieces that a runner runs: in
this process, or on a cluster. A build is resumable: the same command continues where it was stopped. The result
depends on the plan alone (texts, model, settings), not on interruptions nor on the number of workers: parts and runs
of segments have fixed bounds, types have fixed seeds, and each worker computes with one thread.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from knnmt import __version__, files, host
from knnmt.align.fastalign import Aligner
from knnmt.align.pharaoh import read_pharaoh
from knnmt.allocator import hold_little
from knnmt.build import plan as planning
from knnmt.build.align import ALIGNER, count_corpus, fit_aligner, join_links, link_given, link_stretch
from knnmt.build.context import Context, Progress, batch_tokens
from knnmt.build.cut import Shard, cut, shards, stretches
from knnmt.build.pieces import Here, Piece, Runner
from knnmt.build.read import Corpus, read_corpus
from knnmt.build.represent import represent_tokens
from knnmt.build.seal import seal_part, sealed_part
from knnmt.build.settings import BuildSettings
from knnmt.build.similar import find_projections
from knnmt.build.stages import needed
from knnmt.corpus import Languages, read_all
from knnmt.csr import Int64
from knnmt.errors import KnnmtError, StoreError, UsageError, writing_to
from knnmt.model.represent import StateModel
from knnmt.optional import require
from knnmt.retrieval.tuned import gate_file
from knnmt.store.entries import SCALE_SAMPLE, scale_of, scale_pairs
from knnmt.store.manifest import (
    MANIFEST,
    TUNED,
    FrequentType,
    Manifest,
    aligner_name,
    journal_name,
    publish,
    read_manifest,
    seal_file,
    work_folder,
)  # fmt: skip
from knnmt.systems.table import require_system

FREQUENT = 20  # types that the manifest names
PUBLISHING = ("part-", "journal-", "aligner-", f".{MANIFEST}.")  # in a store's folder before its manifest is there


@dataclass
class BuildReport:
    """What a build did. A stage that an earlier, interrupted run finished has no seconds."""

    seconds: dict[str, float] = field(default_factory=dict)
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    size: int = 0  # bytes of the store


def build(
    corpus: Sequence[Path],
    model: StateModel,
    out: Path,
    langs: str,
    settings: BuildSettings | None = None,
    *,
    alignments: Path | None = None,
    replace: bool = False,
    workers: int | None = None,
    runner: Runner | None = None,
    progress: Progress | None = None,
) -> BuildReport:
    """Make a store at `out`, or finish what an interrupted build of the same plan began.

    `alignments` is a Pharaoh file with a line for each segment of the corpus, which then is not cleaned: segments the
    model cannot take are left out, nothing else. `workers` are threads of this process, by default one a core;
    `runner` runs the pieces elsewhere.
    """
    settings, runner = settings or BuildSettings(), runner or Here(model)
    for name in settings.systems:
        require_system(name)
    if settings.index:
        require("faiss", extra="faiss")  # now, not after an hour
    if alignments is not None:
        settings = settings.model_copy(update={"clean": None})
    languages = Languages.parse(langs)
    plan = planning.plan_of(corpus, model, runner.device, runner.precision, languages, settings, alignments)
    folder = work_folder(out)
    if already_there(out, plan, replace):
        if planning.left_over(folder):
            with planning.locked(folder):
                planning.remove(folder)
        found = read_manifest(out)
        return BuildReport({}, found.kept, found.dropped, found.size)
    identify = settings.clean is not None and settings.clean.check_language
    given = Corpus(
        lambda bad: read_all(corpus, languages, bad=bad, identify=identify),
        languages, None if alignments is None else partial(read_pharaoh, alignments),
    )  # fmt: skip
    with planning.locked(folder), writing_to(folder, planning.RESUME):
        planning.begin(folder, plan)
        hold_little()
        # batches suit the device that computes the states, which this process may not have
        sized = settings.model_copy(update={"batch_tokens": settings.batch_tokens or batch_tokens(runner.device)})
        work = planning.Work(folder, model, sized, workers or host.cores(), progress)
        manifest = _make(work, runner, given, plan, settings)
        for tuned in (out / TUNED, gate_file(out / TUNED)):  # of a store that this one replaces
            tuned.unlink(missing_ok=True)
        made = {part.name: folder / f"part-{number}" for number, part in enumerate(manifest.parts)}
        if manifest.aligner is not None:
            made[aligner_name(manifest.aligner)] = folder / "shared" / ALIGNER
        publish(out, manifest, made)
        planning.remove(folder)
    return BuildReport(work.seconds, manifest.kept, manifest.dropped, manifest.size)


def _make(work: planning.Work, runner: Runner, corpus: Corpus, plan: str, settings: BuildSettings) -> Manifest:
    """Do what is left of a build before it is published, and describe it."""
    described = work.folder / "manifest"
    if described.exists():  # parts may have moved to the store
        return Manifest.model_validate_json(described.read_bytes())
    whole = work.context("corpus")
    try:
        folders = _make_parts(work, runner, whole, corpus)
    except KnnmtError:
        if not work.is_done(whole, "read"):  # the corpus is refused: there is nothing to resume
            planning.remove(work.folder)
        raise
    model, sealed = work.model, [sealed_part(folder) for folder in folders]
    kept, dropped = json.loads((whole.folder / "report").read_bytes())
    manifest = Manifest(
        made_by=f"knnmt {__version__}",
        plan=plan,
        model=model.name,
        model_fingerprint=model.fingerprint,
        tokenizer_fingerprint=model.tokenizer.fingerprint,
        languages=str(corpus.languages),
        key=settings.key,
        metric=settings.metric,
        scale=_scale(work, folders),
        settings=settings.model_dump(mode="json"),
        kept=kept,
        dropped=dropped,
        frequent_types=frequent_types(model, whole.common("type_tokens")),
        parts=sealed,
        aligner=seal_file(whole.shared / ALIGNER) if corpus.links is None else None,
        journal=journal_name(sealed),
    )
    files.write_whole(described, manifest.model_dump_json().encode())
    return manifest


def _make_parts(work: planning.Work, runner: Runner, whole: Context, corpus: Corpus) -> list[Path]:
    """Make the parts of a corpus; gives their folders, in order."""
    read(work, runner, whole, corpus)
    work.do(whole, "count", count_corpus)
    every, pieces = shards(whole), []
    for number, shard in enumerate(every):
        folder, label = f"part-{number}", f"{number + 1}/{len(every)}" if len(every) > 1 else ""
        content = partial(_content, folder=folder, label=label, shard=shard, given=corpus.links is not None)
        pieces += [
            Piece(f"content of {folder}", folder, partial(content, first=not number)),
            Piece(
                folder, folder, partial(_finish, folder=folder, label=label),
                needs=(f"content of {folder}", "content of part-0"),
            ),
        ]  # fmt: skip
    runner.run(work, pieces)
    return [work.folder / f"part-{number}" for number in range(len(every))]


def _content(work: planning.Work, folder: str, label: str, shard: Shard, given: bool, first: bool) -> None:
    """Give a part its content; the first one finds what `similar` projects the states of all parts with."""
    context, whole = work.context(folder, label=label), work.context("corpus")
    if work.is_done(context, "seal"):
        return
    fill(work, context, whole, shard, given)
    work.do(context, "scale", partial(_sample, whole=whole, shard=shard))
    if first and "similar" in (stage.name for stage in needed(work.settings)):
        work.do(context, "project", find_projections)


def _finish(work: planning.Work, folder: str, label: str) -> None:
    """Make and seal a part that has its content."""
    context = work.context(folder, label=label)
    if not work.is_done(context, "seal"):
        finish(work, context)


def read(work: planning.Work, runner: Runner, whole: Context, corpus: Corpus) -> None:
    """Read and align a corpus."""
    work.do(whole, "read", partial(read_corpus, corpus=corpus))
    work.do(whole, "align", partial(fit_aligner, corpus=corpus))
    if corpus.links is not None:
        work.do(whole, "link", partial(link_given, corpus=corpus))
        return
    cuts = stretches(whole)
    folders = [f"{whole.folder.name}-links-{number}" for number in range(len(cuts))]
    if not work.is_done(whole, "join"):
        labels = [f"{number}/{len(cuts)}" if len(cuts) > 1 else "" for number in range(1, len(cuts) + 1)]
        runner.run(
            work,
            [
                Piece(folder, folder, partial(_link, folder=folder, whole=whole.folder.name, label=label,
                                              first=first, last=last, aligner=corpus.aligner))
                for folder, label, (first, last) in zip(folders, labels, cuts, strict=True)
            ],
        )  # fmt: skip
        work.do(whole, "join", partial(join_links, stretches=[work.context(folder) for folder in folders]))
    for folder in folders:
        host.discard(work.folder / folder)


def _link(
    work: planning.Work, folder: str, whole: str, label: str, first: int, last: int, aligner: Aligner | None
) -> None:
    """Link a stretch of a corpus."""
    context = work.context(folder, label=label)
    link = partial(link_stretch, whole=work.context(whole), first=first, last=last, aligner=aligner)
    work.do(context, "link", link)


def fill(work: planning.Work, context: Context, whole: Context, shard: Shard, given: bool) -> None:
    """Give a part its content: texts, tokens, links and states of a shard of a corpus."""
    work.do(context, "cut", partial(cut, whole=whole, shard=shard, given=given))
    work.do(context, "represent", represent_tokens)


def finish(work: planning.Work, context: Context, known: Mapping[str, int] | None = None) -> None:
    """Make the arrays of the systems of a part that has its content, and seal it."""
    for stage in needed(work.settings):
        work.do(context, stage.name, stage.run)
    work.do(context, "seal", partial(seal_part, known=known or {}))


# ----------------------------------------------------------------------------------------------------- of all parts


def _sample(context: Context, whole: Context, shard: Shard) -> None:
    """Write the keys of those of the scale's entries that are in a part: its keys may not be kept."""
    entries = scale_pairs(int(whole.common("totals")[1]), context.settings.seed)
    first, last = whole["target_offsets"][[shard.first, shard.last]]
    inside = (entries >= first) & (entries < last)
    name = f"scale-{context.folder.name}"
    context.share(**{f"{name}-places": np.flatnonzero(inside), name: context["target_keys"][entries[inside] - first]})


def _scale(work: planning.Work, folders: Sequence[Path]) -> float:
    """The median squared distance of two random keys."""
    context = work.context("corpus")
    keys = np.empty((2 * SCALE_SAMPLE, context.width), np.float32)
    for name in (f"scale-{folder.name}" for folder in folders):
        keys[context.common(f"{name}-places")] = context.common(name)
    return scale_of(keys.reshape(2, SCALE_SAMPLE, -1))


def frequent_types(model: StateModel, counts: Int64) -> list[FrequentType]:
    """The types with the most tokens, as the tokenizer writes them. counts: (V,)."""
    order = np.argsort(-counts, kind="stable")[:FREQUENT]
    pieces = model.tokenizer.pieces([int(kind) for kind in order if counts[kind]])
    return [FrequentType(piece=p, tokens=int(counts[kind])) for p, kind in zip(pieces, order, strict=False)]


# --------------------------------------------------------------------------------------------------- before the work


def already_there(out: Path, plan: str, replace: bool) -> bool:
    """Whether this very store is there; what else stands in its place, and is not to be replaced, is an error."""
    if not out.parent.is_dir():
        raise UsageError(f"cannot build {out}: there is no folder {out.parent}")
    if out.exists() and not out.is_dir():
        raise UsageError(f"cannot build {out}: there is a file of that name")
    if not (out / MANIFEST).exists():
        if out.exists() and not all(path.name.startswith(PUBLISHING) for path in out.iterdir()):
            raise UsageError(f"cannot build {out}: it is a folder with other files in it")
        return False
    if replace or planning.is_of(work_folder(out), plan):  # a build that was to replace it, or had just published it
        return False
    try:
        same = read_manifest(out).plan == plan
    except StoreError as error:
        raise UsageError(f"{error}; to build here all the same, replace it (--replace)") from None
    if not same:
        raise UsageError(f"{out} holds another datastore: choose another folder, or replace it (--replace)")
    return True
