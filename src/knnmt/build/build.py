"""From parallel text to a datastore, in stages that leave what they made in a work folder.

read ▶ align ▶ represent ▶ cluster ▶ prototypes ▶ similar ▶ keys ▶ index ▶ seal ▶ publish. A build that was stopped at
any point is taken up by the same command where it was. The result depends on the plan alone (texts, model, settings),
not on interruptions nor on the number of workers: shards have fixed bounds, types have fixed seeds, and each worker
computes with one thread.
"""

import contextlib
import json
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from knnmt import __version__, host
from knnmt.align import read_pharaoh
from knnmt.allocator import hold_little, trim
from knnmt.build import prototypes, similar, stages
from knnmt.build.settings import BuildSettings
from knnmt.corpus import Languages, files_of, read_all
from knnmt.corpus.files import require_readable
from knnmt.errors import KnnmtError, StoreError, UsageError, writing_to
from knnmt.files import checksum, digest, write_whole
from knnmt.model.represent import StateModel
from knnmt.optional import require
from knnmt.retrieval.tuned import gate_file
from knnmt.store import arrays
from knnmt.store.manifest import (
    ALIGNER,
    FORMAT,
    INDEX,
    MANIFEST,
    TUNED,
    FrequentType,
    Manifest,
    aligner_name,
    journal_name,
    publish,
    read_manifest,
    seal,
    seal_file,
    work_folder,
)  # fmt: skip
from knnmt.systems import SYSTEMS, require_system

_log = logging.getLogger(__name__)

SCALE_SAMPLE = 4000  # pairs of keys whose median distance is the scale of temperatures
# kept for evidence and 100% matches, whatever the systems
ALWAYS = (
    "text", "text_offsets", "source_digests", "source_order", "target_digests", "target_order",
    "target_ids", "target_offsets",
)  # fmt: skip
GIVEN = ("given_links", "given_offsets")  # kept for a compaction, where there are any
RESUME = "what is done so far is kept there, and the same command goes on from it"  # after a full disk
FREQUENT = 20  # types that the manifest names
PUBLISHING = (
    "part-",
    "journal-",
    "aligner-",
    f".{MANIFEST}.",
)  # names in the folder of a store whose manifest is not there yet


@dataclass
class BuildReport:
    """What a build did. A stage that an earlier, interrupted run finished has no seconds."""

    seconds: dict[str, float] = field(default_factory=dict)
    kept: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    size: int = 0  # bytes of the store
    left_out: int = 0  # bytes of what was made and is not needed by the systems asked for


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
    progress: stages.Progress | None = None,
) -> BuildReport:
    """Make a store at `out`, or finish what an interrupted build of the same plan began.

    `alignments` is a Pharaoh file with a line for each segment of the corpus, which then is not cleaned: segments the
    model cannot take are left out, nothing else. `workers` are threads, by default one a core.
    """
    settings = settings or BuildSettings()
    for name in settings.systems:
        require_system(name)
    if settings.index:
        require("faiss", extra="faiss")  # now, not after an hour
    if alignments is not None:
        settings = settings.model_copy(update={"clean": None})
    languages = Languages.parse(langs)
    plan = _plan(corpus, model, languages, settings, alignments)
    work = work_folder(out)
    if _already_there(out, plan, replace):
        if _left_over(work):
            with locked(work):
                remove(work)
        manifest = read_manifest(out)
        return BuildReport({}, manifest.kept, manifest.dropped, manifest.size, 0)
    identify = settings.clean is not None and settings.clean.check_language
    with locked(work), writing_to(work, RESUME):
        begin(work, plan)
        job = stages.Job(
            lambda bad: read_all(corpus, languages, bad=bad, identify=identify),
            None if alignments is None else partial(read_pharaoh, alignments), model, languages, settings,
            work / "part", work / "scratch", workers or host.cores(), progress,
        )  # fmt: skip
        try:
            report, manifest = run_stages(job, plan, work)
        except KnnmtError:
            if not (work / "read.done").exists():  # the corpus is refused: there is nothing to go on with
                remove(work)
            raise
        for tuned in (out / TUNED, gate_file(out / TUNED)):  # of a store that this one replaces
            tuned.unlink(missing_ok=True)
        publish(out, manifest, made_in(work, manifest))
        remove(work)
    return report


def made_in(work: Path, manifest: Manifest) -> dict[str, Path]:
    """What a build has made, by its names in the store."""
    made = {manifest.parts[0].name: work / "part"}
    return made if manifest.aligner is None else made | {aligner_name(manifest.aligner): work / "scratch" / ALIGNER}


def run_stages(job: stages.Job, plan: str, work: Path) -> tuple[BuildReport, Manifest]:
    """Do what is left of a job; its part is then sealed, and described by the manifest that comes with the report."""
    hold_little()
    report, synced = BuildReport(), set[Path]()
    for name, stage in _stages(job, plan, work).items():
        began = time.perf_counter()
        if not (work / f"{name}.done").exists():
            stage()
            made = {*job.part.iterdir(), *job.scratch.iterdir()}
            for path in made - synced:  # a machine that crashes after this has the arrays, not just the word for it
                host.sync(path)
            synced |= made
            write_whole(work / f"{name}.done", b"")
            report.seconds[name] = time.perf_counter() - began
            trim()  # the largest stage decides what a build takes, not all of them together
    manifest = Manifest.model_validate_json((work / "manifest").read_bytes())
    report.kept, report.dropped, report.size = manifest.kept, manifest.dropped, manifest.size
    report.left_out = json.loads((work / "sizes").read_bytes())["left_out"]
    return report, manifest


def _stages(job: stages.Job, plan: str, work: Path) -> dict[str, Callable[[], None]]:
    """The stages by name, in their order."""

    def read() -> None:
        report = stages.read_corpus(job)
        write_whole(work / "report", json.dumps([report.kept, report.dropped]).encode())

    return {
        "read": read,
        "align": partial(stages.align_tokens, job),
        "represent": partial(stages.represent_tokens, job),
        "cluster": partial(stages.cluster_tokens, job),
        "prototypes": partial(prototypes.make_prototypes, job),
        "similar": partial(similar.make_similar, job),
        "keys": partial(stages.finish_keys, job),
        "index": partial(stages.index_keys, job),
        "seal": partial(_seal, job, plan, work),
    }


# --------------------------------------------------------------------------------------- before and around the work


def _plan(
    corpus: Sequence[Path], model: StateModel, languages: Languages, settings: BuildSettings, alignments: Path | None
) -> str:
    """A digest of all that the result depends on."""
    files = files_of(corpus, languages)
    files += [require_readable(alignments)] if alignments is not None else []
    precision = str(model.transformer.dtype)
    content = {
        "format": FORMAT,
        "files": [(str(path), checksum(path)) for path in files],  # segments name the file they come from
        "model": [model.fingerprint, model.tokenizer.fingerprint, model.device.type, precision],
        "languages": str(languages),
        "settings": settings.model_dump(mode="json"),
    }
    return digest(json.dumps(content, sort_keys=True).encode())


def _already_there(out: Path, plan: str, replace: bool) -> bool:
    """Whether this very store is there; what else stands in its place, and is not to be replaced, is an error."""
    if not out.parent.is_dir():
        raise UsageError(f"cannot build {out}: there is no folder {out.parent}")
    if out.exists() and not out.is_dir():
        raise UsageError(f"cannot build {out}: there is a file of that name")
    if not (out / MANIFEST).exists():
        if out.exists() and not all(path.name.startswith(PUBLISHING) for path in out.iterdir()):
            raise UsageError(f"cannot build {out}: it is a folder with other files in it")
        return False
    begun = work_folder(out) / "plan"
    resumed = begun.exists() and begun.read_text() == plan  # a build that was to replace it, or had just published it
    if replace or resumed:
        return False
    try:
        same = read_manifest(out).plan == plan
    except StoreError as error:
        raise UsageError(f"{error}; to build here all the same, replace it (--replace)") from None
    if not same:
        raise UsageError(f"{out} holds another datastore: choose another folder, or replace it (--replace)")
    return True


@contextlib.contextmanager
def locked(work: Path) -> Iterator[None]:
    """Have a work folder for one build alone; it goes when nothing is left in it."""
    work.mkdir(exist_ok=True)
    if not (work / "lock").exists() and any(work.iterdir()):
        raise UsageError(f"{work} is in the way, a folder that no build has made: move it, or build elsewhere")
    empty = False
    try:
        with host.lock(work / "lock") as lock:
            if lock is None:
                raise UsageError(f"another build is at work in {work}: wait for it, or stop it")
            if lock.gone:
                raise UsageError(f"another build has just ended in {work}: give the command again")
            try:
                yield
            finally:
                if empty := [path.name for path in work.iterdir()] == ["lock"]:
                    lock.remove()
    finally:
        if empty:
            with contextlib.suppress(OSError):  # the next build may have begun in it
                work.rmdir()


def begin(work: Path, plan: str) -> None:
    """Make the work folder that of a plan; what another plan left in it is removed."""
    begun = work / "plan"
    found = begun.read_text() if begun.exists() else None
    if found == plan:
        return
    if found is not None:
        _log.warning("%s was left by a build with other texts, model or settings: starting again", work)
    remove(work)
    (work / "part").mkdir()
    (work / "scratch").mkdir()
    write_whole(begun, plan.encode())


def remove(work: Path) -> None:
    """Remove all but the lock, the plan first: without it, nothing that is left is taken up again."""
    (work / "plan").unlink(missing_ok=True)
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "lock":
            path.unlink()


def _left_over(work: Path) -> bool:
    """Whether this is what a removal that was cut off has left."""
    names = {path.name for path in work.iterdir()} if work.is_dir() else {"plan"}
    return "plan" not in names and ("lock" in names or not names)


# ------------------------------------------------------------------------------------------------------------- seal


def _seal(job: stages.Job, plan: str, work: Path) -> None:
    """Leave out what the systems do not need, and describe the rest in the manifest."""
    if not (work / "sizes").exists():  # once this is written, arrays may be gone
        needed = {INDEX, *(f"{name}.npy" for name in (*GIVEN, *_needed(job.settings)))}
        unneeded = [path for path in job.part.iterdir() if path.name not in needed]  # or half of a file, cut off
        described = {
            "left_out": sum(path.stat().st_size for path in unneeded),
            "unneeded": [path.name for path in unneeded],
            "scale": _scale(arrays.read(job.part / "target_keys.npy"), job.settings.seed),
            "sizes": _sizes(job),
        }
        write_whole(work / "sizes", json.dumps(described).encode())
    described = json.loads((work / "sizes").read_bytes())
    for name in described["unneeded"]:
        (job.part / name).unlink(missing_ok=True)
    kept, dropped = json.loads((work / "report").read_bytes())
    parts, aligner = [seal(job.part, described["sizes"])], job.scratch / ALIGNER
    manifest = Manifest(
        made_by=f"knnmt {__version__}",
        plan=plan,
        model=job.model.name,
        model_fingerprint=job.model.fingerprint,
        tokenizer_fingerprint=job.model.tokenizer.fingerprint,
        languages=str(job.languages),
        key=job.settings.key,
        metric=job.settings.metric,
        scale=described["scale"],
        settings=job.settings.model_dump(mode="json"),
        kept=kept,
        dropped=dropped,
        frequent_types=_frequent_types(job),
        parts=parts,
        aligner=seal_file(aligner) if aligner.exists() else None,
        journal=journal_name(parts),
    )
    write_whole(work / "manifest", manifest.model_dump_json().encode())


def _needed(settings: BuildSettings) -> set[str]:
    """The arrays that the systems open."""
    needed = {*ALWAYS, *(name for system in settings.systems or SYSTEMS for name in SYSTEMS[system].arrays)}
    if settings.keys == "pq":
        for side in ("target", "source"):
            if f"{side}_keys" in needed:
                needed = needed - {f"{side}_keys"} | {f"{side}_codes", f"{side}_codebooks"}
    return needed


def _sizes(job: stages.Job) -> dict[str, int]:
    """The sizes that the shapes of a part's arrays are made of."""
    shape = {path.stem: arrays.read(path).shape for path in job.part.glob("*.npy")}
    width = shape["target_keys"][1]
    subspaces = shape.get("target_codes", (0, 1))[1]
    architecture = job.model.transformer.architecture
    return {
        "bytes": shape["text"][0],
        "segments": shape["target_offsets"][0] - 1,
        "entries": shape["target_ids"][0],
        "tokens": shape["source_keys"][0],
        "links": shape["link_entries"][0],
        "clusters": shape["cluster_source"][0],
        "ranked": shape["ranking_entries"][0],
        "coarse": shape["coarse_source"][0],
        "prototypes": shape["proto_tokens"][0],
        "members": shape["proto_members"][0],
        "target_small": shape.get("small_target", (0, 0))[1],
        "source_small": shape.get("small_source", (0, 0))[1],
        "width": width,
        "subspaces": subspaces,
        "subwidth": width // subspaces,
        "source_vocabulary": architecture.source_vocabulary,
        "target_vocabulary": architecture.target_vocabulary,
    }


def _scale(keys: arrays.Rows, seed: int) -> float:
    """The median squared distance of two random keys."""
    one, other = np.random.default_rng(seed).integers(len(keys), size=(2, SCALE_SAMPLE))
    differences = keys[one].astype(np.float32) - keys[other].astype(np.float32)
    return max(float(np.median(np.square(differences).sum(axis=1))), 1e-6)


def _frequent_types(job: stages.Job) -> list[FrequentType]:
    """The types with the most tokens, as the tokenizer writes them."""
    counts = np.diff(arrays.read(job.scratch / "type_offsets.npy"))
    order = np.argsort(-counts, kind="stable")[:FREQUENT]
    pieces = job.model.tokenizer.pieces([int(kind) for kind in order if counts[kind]])
    return [FrequentType(piece=p, tokens=int(counts[kind])) for p, kind in zip(pieces, order, strict=False)]
