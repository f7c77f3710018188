"""One store of several: their parts, as they are, one after the other, and all that was taught and removed.

It is what `Memories` searches when the same stores are opened together, on disk. Parts never change: where both stores
are on one disk, files are linked and no bytes are copied. No model is needed.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from knnmt import __version__, files, host
from knnmt.build import plan as planning
from knnmt.build.build import FREQUENT, already_there
from knnmt.errors import StoreError, UsageError, writing_to
from knnmt.store.journal import Journal
from knnmt.store.lessons import Lesson, Record
from knnmt.store.manifest import (
    FrequentType,
    Manifest,
    aligner_name,
    aligner_of,
    journal_name,
    publish,
    read_manifest,
    work_folder,
)
from knnmt.store.memories import Memories
from knnmt.store.records import to_bytes
from knnmt.store.store import Store
from knnmt.systems.table import SYSTEMS, serves


def merge_stores(stores: Sequence[Path], out: Path, *, replace: bool = False) -> Manifest:
    """Make one store of several, or finish what an interrupted merge of the same stores began."""
    if len(stores) < 2:
        raise UsageError("name at least two stores to merge")
    if out.exists() and any(out.resolve() == path.resolve() for path in stores):
        raise UsageError(f"{out} is one of the stores to merge: name another folder")
    opened = Memories.open(stores)
    manifest = _manifest(opened)
    if already_there(out, manifest.plan, replace):
        return read_manifest(out)
    folder = work_folder(out)
    with planning.locked(folder), writing_to(folder, planning.RESUME):
        planning.begin(folder, manifest.plan)
        made = {}
        for store in opened.stores:
            for sealed in store.manifest.parts:
                made[sealed.name] = _linked(store.path / sealed.name, folder / sealed.name)
        if (aligner := aligner_of(opened.last.path, opened.last.manifest)) is not None:
            made[aligner_name(aligner[1])] = _linked(aligner[0], folder / aligner_name(aligner[1]))
        out.mkdir(exist_ok=True)
        (out / manifest.journal).unlink(missing_ok=True)
        if (record := _record(opened.stores)) != Record():
            Journal(out / manifest.journal).append(to_bytes(record))
        publish(out, manifest, made)
        planning.remove(folder)
    return manifest


def _manifest(opened: Memories) -> Manifest:
    """That of all stores together; the last one's alignment model aligns what is taught."""
    each = [store.manifest for store in opened.stores]
    parts = [part for manifest in each for part in manifest.parts]
    if twice := [name for name, times in Counter(part.name for part in parts).items() if times > 1]:
        raise StoreError(f"several of these stores hold the same part ({twice[0]}): merge only what differs")
    record = files.digest(to_bytes(_record(opened.stores)))
    content = [[part.name for part in parts], [manifest.plan for manifest in each], record]
    frequent: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    for manifest in each:
        frequent.update({kind.piece: kind.tokens for kind in manifest.frequent_types})
        dropped.update(manifest.dropped)
    settings = dict(opened.manifest.settings)
    if any(manifest.settings.get("systems") for manifest in each):
        settings["systems"] = [name for name in SYSTEMS if serves(opened, name)]
    aligner = aligner_of(opened.last.path, opened.last.manifest)
    return opened.manifest.model_copy(
        update={
            "made_by": f"knnmt {__version__}",
            "plan": files.digest(json.dumps(content).encode()),
            "settings": settings,
            "kept": sum(manifest.kept for manifest in each),
            "dropped": dict(dropped),
            "frequent_types": [FrequentType(piece=p, tokens=n) for p, n in frequent.most_common(FREQUENT)],
            "parts": parts,
            "aligner": None if aligner is None else aligner[1],
            "journal": journal_name(parts),
        }
    )


def _record(stores: Sequence[Store]) -> Record:
    """All that was taught and removed, by the numbers that segments have in stores that are opened together.

    Of two lessons with one id the later store's counts, as if it had been taught after the other.
    """
    taught: dict[str, Lesson] = {}
    removed: set[int] = set()
    for store in stores:
        record = store.lessons.record()
        removed.update(record.removed)
        for lesson in record.taught:
            replaced = taught.pop(lesson.id, None)
            if replaced is not None and replaced.folded is not None:
                removed.add(replaced.folded)
            taught[lesson.id] = lesson
    return Record(tuple(taught.values()), (), tuple(sorted(removed)))


def _linked(source: Path, target: Path) -> Path:
    """The same files at another place: linked where that is possible, else copied and on disk."""
    if target.exists():
        return target
    unfinished = target.with_name(f".{target.name}.part")
    host.discard(unfinished)
    try:
        if source.is_dir():
            shutil.copytree(source, unfinished, copy_function=_link)
        else:
            _link(str(source), str(unfinished))
    except (FileNotFoundError, shutil.Error) as error:
        raise StoreError(f"{source.parent} changed while it was merged: run the command again") from error
    host.sync(unfinished)
    host.replace(unfinished, target)
    return target


def _link(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another disk, or one without links
        shutil.copyfile(source, target)
        host.sync(Path(target))
    return target
