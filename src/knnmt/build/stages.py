"""The stages of a build. Each reads what the stages before it left and writes arrays: to `part` what the store may
keep, to `scratch` what only later stages need. A stage that was cut off is run again from its beginning; `represent`,
the long one, goes on with the first shard that is not on disk yet.
"""

import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt import host
from knnmt.align import Bitext, Links, cover, train
from knnmt.allocator import trim
from knnmt.build import kmeans
from knnmt.build.settings import BuildSettings
from knnmt.build.workers import parallel
from knnmt.corpus import CleanReport, Languages, Reason, Segment, cleaned, unfit
from knnmt.csr import Int64, offsets_of, ranges, runs
from knnmt.errors import DataError
from knnmt.files import write_whole
from knnmt.model.represent import StateModel, represent
from knnmt.optional import require
from knnmt.search import pq
from knnmt.store import arrays, digests
from knnmt.store.entries import group_by_type, stored
from knnmt.store.manifest import ALIGNER, INDEX
from knnmt.store.pieces import fits

TOGETHER = 1000  # segments that are tokenized together
SHARD = 16  # batches of tokens that are represented, and kept or done again, together
SYNC_SECONDS = 10.0  # the work that a crash of the machine may cost
MEASURED = 1 << 14  # keys whose lengths are taken together
INDEX_FROM = 39 * 256  # keys; FAISS wants as many to train a product quantizer, and fewer are searched at once
INDEX_SAMPLE = 64  # more for each list, to train the lists on

Progress = Callable[[str, int, int | None], None]
"""Called with a stage's name, the work done since the last call, and the whole of it where that is known."""


Read = Callable[[Callable[[DataError], None] | None], Iterator[Segment]]
"""Gives all segments, and tells what could not be read, or raises it where nobody wants to be told."""


GivenLinks = Callable[[Bitext, Sequence[int], int], Links]
"""Gives the links of a bitext that were made elsewhere, of the segments with these numbers of so many in the corpus."""


@dataclass(frozen=True)
class Job:
    """A build: what goes in, and where things are made."""

    read: Read
    links: GivenLinks | None
    model: StateModel
    languages: Languages
    settings: BuildSettings
    part: Path
    scratch: Path
    workers: int
    progress: Progress | None
    lessons: frozenset[int] = frozenset()  # segments that are searched exactly, and are in no prototype

    @property
    def batch_tokens(self) -> int:
        """Tokens that the model sees at once: as many as its device works best with."""
        return self.settings.batch_tokens or (1024 if self.model.device.type == "cpu" else 16384)

    def watch(self, stage: str, total: int | None = None) -> Callable[[int], None]:
        """Something that a stage calls with the work it has done."""

        def advance(done: int) -> None:
            if self.progress is not None:
                self.progress(stage, done, total)

        advance(0)
        return advance

    def bitext(self) -> Bitext:
        """The tokens of all segments, `</s>` at the end of both sides."""
        folders = {"source": self.scratch, "target": self.part}
        names = [(folders[side], f"{side}_{what}.npy") for side in folders for what in ("ids", "offsets")]
        return Bitext(*(np.asarray(arrays.read(folder / name, "c")) for folder, name in names))


# ------------------------------------------------------------------------------------------------------- read


def read_corpus(job: Job) -> CleanReport:
    """Corpus to clean segments: their texts, and their tokens."""
    report, advance = CleanReport(), job.watch("read")
    special = job.model.special
    numbers, texts, sources, targets = (array("q") for _ in range(4))  # in the corpus, and lengths
    sides = {side: array("Q") for side in ("source", "target")}
    with (
        arrays.Stream(job.part / "text.npy", "uint8") as text,
        arrays.Stream(job.scratch / "source_ids.npy", "int32") as source_ids,
        arrays.Stream(job.part / "target_ids.npy", "int32") as target_ids,
    ):
        for number, segment, source, target in _tokenized(job, report):
            numbers.append(number)
            fields = [field.encode() for field in (segment.source, segment.target, segment.origin, segment.id or "")]
            text.extend(b"".join(fields))
            texts.extend(map(len, fields))
            for side, found in sides.items():
                found.append(digests.digest(getattr(segment, side)))
            source_ids.extend(source)
            sources.append(len(source))
            target_ids.extend([*target, special.end])
            targets.append(len(target) + 1)
            if len(numbers) % TOGETHER == 0:
                advance(TOGETHER)
    if not numbers and not report.seen:
        raise DataError("there is nothing to store: the corpus has no segments")
    if not numbers:
        raise DataError(f"there is nothing to store: {report}; look into the corpus, or build without cleaning")
    arrays.write(job.part / "text_offsets.npy", offsets_of(np.array(texts)))
    for side, found in sides.items():
        in_order, order = digests.index(found)
        arrays.write(job.part / f"{side}_digests.npy", in_order)
        arrays.write(job.part / f"{side}_order.npy", order)
    arrays.write(job.scratch / "source_offsets.npy", offsets_of(np.array(sources)))
    arrays.write(job.part / "target_offsets.npy", offsets_of(np.array(targets)))
    arrays.write(job.scratch / "numbers.npy", np.append(numbers, report.seen))
    return report


def _tokenized(job: Job, report: CleanReport) -> Iterator[tuple[int, Segment, list[int], list[int]]]:
    """The segments that go into the store, with their numbers in the corpus and the tokens of both sides.

    The texts are as they were read; the tokens are of normalised texts, where cleaning is to normalise them.
    """

    def unreadable(fault: DataError) -> None:
        report.dropped[Reason.UNREADABLE] += 1

    model, settings = job.model, job.settings.clean
    segments = job.read(unreadable if settings is not None else None)
    pairs: Iterator[tuple[Segment, Segment]] = ((segment, segment) for segment in segments)
    if settings is not None:  # lengths are judged below, in the model's own tokens
        others = settings.model_copy(update={"max_tokens": None, "max_ratio": None})
        pairs = cleaned(segments, job.languages, others, report=report)
    numbered = enumerate(pairs)
    while some := list(islice(numbered, TOGETHER)):
        sources = model.tokenizer.encode_source([seen.source for _, (_, seen) in some])
        targets = model.tokenizer.encode_target([seen.target for _, (_, seen) in some])
        for (number, (segment, _)), source, target in zip(some, sources, targets, strict=True):
            report.kept += settings is None
            fault = unfit(len(source), len(target), settings) if settings is not None else None
            if fault is None and not fits(model, source, target):
                fault = Reason.TOO_LONG
            if fault is None and not target:
                fault = Reason.EMPTY
            if fault is None:
                yield number, segment, source, target
            else:
                report.kept -= 1
                report.dropped[fault] += 1


# ------------------------------------------------------------------------------------------------------ align


def align_tokens(job: Job) -> None:
    """Links between the tokens; the source tokens that have any, sorted by type, become the tokens of the store."""
    bitext = job.bitext()
    links = _links(job, bitext)
    if not len(links.source):
        raise DataError("no token of the corpus could be aligned: are the two sides translations of each other?")
    vocabulary = job.model.transformer.architecture.source_vocabulary
    for name, found in group_by_type(bitext, links, vocabulary).items():
        arrays.write(job.scratch / f"{name}.npy", found)
    arrays.write(job.part / "type_offsets.npy", arrays.read(job.scratch / "type_offsets.npy"))


def _links(job: Job, bitext: Bitext) -> Links:
    """The links that were given, or those of an aligner that is trained on the corpus and kept."""
    settings, advance = job.settings.align, job.watch("align", 2 * len(bitext))
    if job.links is not None:
        *numbers, total = arrays.read(job.scratch / "numbers.npy").tolist()
        links = job.links(bitext, numbers, total)
        links = cover(links, bitext) if settings.cover else links
        # nothing could make them again: a compaction needs them
        arrays.write(job.part / "given_links.npy", np.stack((links.source, links.target), axis=1))
        arrays.write(job.part / "given_offsets.npy", links.offsets)
        return links
    aligner = train(bitext, settings, _steps(advance, len(bitext)))
    aligner.save(job.scratch / ALIGNER)
    return aligner.align(bitext, _steps(advance, len(bitext)))


def _steps(advance: Callable[[int], None], share: int) -> Callable[[int, int], None]:
    """From (done, whole) to increments that add up to a share."""
    before = 0

    def progress(done: int, whole: int) -> None:
        nonlocal before
        now = share * done // whole
        advance(now - before)
        before = now

    return progress


# -------------------------------------------------------------------------------------------------- represent


def represent_tokens(job: Job) -> None:
    """The states of all tokens: keys in corpus order, source states in the order of the store's tokens."""
    width = job.model.transformer.architecture.width
    bitext, positions = job.bitext(), arrays.read(job.scratch / "positions.npy")
    place = np.full(bitext.source_ids.size, -1, np.int64)  # where each source token stands in the store
    place[positions] = np.arange(positions.size)
    files = job.part / "target_keys.npy", job.scratch / "source_states.npy"
    shapes = (bitext.target_ids.size, width), (positions.size, width)
    journal = job.scratch / "represented"
    if not journal.exists():
        for file, shape in zip(files, shapes, strict=True):
            arrays.create(file, "float16", shape)
            host.sync(file)
        journal.touch()
    keys, states = (arrays.mapped(file, "float16", shape, "r+") for file, shape in zip(files, shapes, strict=True))
    done = {int(line) for line in journal.read_text().split("\n")[:-1] if line.isdigit()}
    write_whole(journal, "".join(f"{first}\n" for first in done).encode())  # less a last line that was cut off
    shards = [shard for shard in _shards(bitext, SHARD * job.batch_tokens) if shard[0] not in done]
    advance = job.watch("represent", sum(last - first for first, last in shards))

    def work(shard: tuple[int, int]) -> None:
        _represent_shard(job, bitext, place, shard, keys, states)

    fresh: list[int] = []

    def note() -> None:
        for rows in (keys, states):
            if isinstance(rows, np.memmap):
                rows.flush()
        with journal.open("a") as file:
            file.writelines(f"{first}\n" for first in fresh)
        fresh.clear()
        trim()  # batches of all sizes leave holes, and more of them the longer this goes on

    workers = job.workers if job.model.device.type == "cpu" else 1
    noted = time.monotonic()
    try:
        for (first, last), _ in parallel(work, ((shard, 0) for shard in shards), workers):
            fresh.append(first)
            advance(last - first)
            if time.monotonic() - noted > SYNC_SECONDS:
                note()
                noted = time.monotonic()
    finally:
        note()


def _shards(bitext: Bitext, tokens: int) -> Iterator[tuple[int, int]]:
    """Runs of segments with about so many tokens on their longer sides; they depend on nothing else."""
    sizes = offsets_of(np.maximum(bitext.source_lengths, bitext.target_lengths))
    first = 0
    while first < len(bitext):
        last = max(first + 1, int(np.searchsorted(sizes, sizes[first] + tokens, side="right")) - 1)
        yield first, last
        first = last


def _represent_shard(
    job: Job, bitext: Bitext, place: Int64, shard: tuple[int, int], keys: NDArray[Any], states: NDArray[Any]
) -> None:
    """Fill in the states of segments first..last."""
    first, last = shard
    bounds = (pairwise(o[first : last + 1].tolist()) for o in (bitext.source_offsets, bitext.target_offsets))
    pairs = [
        (bitext.source_ids[s0:s1].tolist(), bitext.target_ids[t0 : t1 - 1].tolist())  # the end is implied
        for (s0, s1), (t0, t1) in zip(*bounds, strict=True)
    ]
    unit = job.settings.metric == "cosine"
    for some in represent(job.model, pairs, key=job.settings.key, batch_tokens=job.batch_tokens):
        source = place[runs(bitext.source_offsets, first + np.array(some.rows))]
        target = runs(bitext.target_offsets, first + np.array(some.rows))
        linked = source >= 0
        states[source[linked]] = stored(some.source[torch.from_numpy(linked).to(some.source.device)], unit)
        keys[target] = stored(some.target, unit)


# ---------------------------------------------------------------------------------------------------- cluster


def cluster_tokens(job: Job) -> None:
    """Clusters of each type's tokens; the tokens are put in their order, with links and states."""
    settings, unit = job.settings, job.settings.metric == "cosine"
    states = arrays.read(job.scratch / "source_states.npy")
    types = arrays.read(job.part / "type_offsets.npy")
    link_offsets, link_entries = (arrays.read(job.scratch / f"{name}.npy") for name in ("link_offsets", "link_entries"))
    advance = job.watch("cluster", 4 * len(states))
    made = kmeans.cluster(
        states, types, settings.cluster_size,
        seed=settings.seed, memory=settings.memory, workers=job.workers, progress=advance,
    )  # fmt: skip
    link_entries = link_entries[runs(link_offsets, made.order)]
    link_offsets = offsets_of(np.diff(link_offsets)[made.order])
    keys = arrays.create(job.part / "source_keys.npy", "float16", states.shape)
    arrays.permute(states, made.order, keys, advance)
    clusters, width = made.starts.size - 1, states.shape[1]
    source, target, coarse = (
        arrays.create(job.part / f"{name}.npy", "float16", (count, width))
        for name, count in {
            "cluster_source": clusters,
            "cluster_target": clusters,
            "coarse_source": len(made.coarse_ranges),
        }.items()
    )
    kmeans.centroids(keys, np.arange(len(keys)), made.starts, unit, job.workers, source)
    begin, end = made.starts[made.coarse_ranges].T
    kmeans.centroids(keys, ranges(begin, end - begin), offsets_of(end - begin), unit, job.workers, coarse)
    advance(len(states))
    ranking = kmeans.rank(
        arrays.read(job.part / "target_keys.npy"), np.asarray(arrays.read(job.part / "target_ids.npy")), made.starts,
        link_offsets, link_entries, settings.k_max, unit, job.workers, target,
    )  # fmt: skip
    for name, values in {
        "link_offsets": link_offsets,
        "link_entries": link_entries,
        "cluster_offsets": made.offsets,
        "cluster_starts": made.starts,
        "ranking_offsets": ranking.offsets,
        "ranking_entries": ranking.entries,
        "ranking_tokens": ranking.tokens,
        "ranking_distances": ranking.distances,
        "coarse_offsets": made.coarse_offsets,
        "coarse_ranges": made.coarse_ranges,
    }.items():
        arrays.write(job.part / f"{name}.npy", values)
    advance(len(states))


# --------------------------------------------------------------------------------------------- keys and index


def finish_keys(job: Job) -> None:
    """The keys of both sides as the store is to have them, product-quantized or not, and their squared lengths."""
    sides = {side: arrays.read(job.part / f"{side}_keys.npy") for side in ("target", "source")}
    advance = job.watch("keys", sum(map(len, sides.values())) * (2 if job.settings.keys == "pq" else 1))
    for side, keys in sides.items():
        lengths = np.empty(len(keys), np.float32)
        if job.settings.keys == "pq":
            parts = pq.subspaces(keys.shape[1])
            codebooks = pq.train(keys, subspaces=parts, seed=job.settings.seed)
            codes = arrays.create(job.part / f"{side}_codes.npy", "uint8", (len(keys), parts))
            pq.encode(keys, codebooks, codes, workers=job.workers, progress=advance)
            arrays.write(job.part / f"{side}_codebooks.npy", codebooks)
        for start in range(0, len(keys), MEASURED):
            some = slice(start, start + MEASURED)
            rows = torch.from_numpy(np.array(keys[some]))
            if job.settings.keys == "pq":
                rows = pq.decode(torch.from_numpy(np.array(codes[some])), torch.from_numpy(codebooks))
            lengths[some] = rows.float().square().sum(dim=-1).numpy()
            advance(len(rows))
        arrays.write(job.part / f"{side}_norms.npy", lengths)


def index_keys(job: Job) -> None:
    """A FAISS index of all target keys, for kNN-MT, where the store is to have one."""
    if not job.settings.index:
        return
    faiss = require("faiss", extra="faiss")
    keys = arrays.read(job.part / "target_keys.npy")
    advance = job.watch("index", len(keys))
    kind = f"IVF{round(len(keys) ** 0.5)},PQ{pq.subspaces(keys.shape[1])}"
    index = faiss.index_factory(keys.shape[1], kind if len(keys) >= INDEX_FROM else "Flat")
    sample = min(len(keys), INDEX_FROM + INDEX_SAMPLE * round(len(keys) ** 0.5))
    rows = np.random.default_rng(job.settings.seed).choice(len(keys), sample, replace=False)
    index.train(keys[np.sort(rows)].astype(np.float32))
    for start in range(0, len(keys), 1 << 16):
        block = keys[start : start + (1 << 16)].astype(np.float32)
        index.add(block)
        advance(len(block))
    faiss.write_index(index, str(job.part / INDEX))
