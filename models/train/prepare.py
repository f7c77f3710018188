"""Everything before the GPU: clean the text, train a joint SentencePiece model, encode the text with noise."""

import argparse
import gzip
import lzma
import multiprocessing
import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from noise import normalise, perturb, several

Pair = tuple[str, str]
EOS = 0
MAX_TOKENS = 128
HELD_OUT = 2000
JOINED = 0.03  # of the pairs become a segment of two sentences
SIDES = ("source", "target")
REQUIRED = "".join(map(chr, range(33, 127))) + "ÄÖÜäöüßéèáàçñ„“”‚‘’»«–—…€£§°©®™²³½×·•→←"


def read_pairs(paths: list[Path], *, swap: bool = False) -> list[Pair]:
    """Cleaned pairs, each once, shuffled; `swap` reads the target from the first column."""
    pairs: dict[Pair, None] = {}
    with multiprocessing.Pool() as pool:
        for path in paths:
            opener: Any = {".xz": lzma.open, ".gz": gzip.open}.get(path.suffix, open)
            with opener(path, "rt", encoding="utf-8") as lines:
                for pair in pool.imap(clean, lines, chunksize=5000):
                    if pair:
                        pairs[pair[::-1] if swap else pair] = None
    unique = list(pairs)
    random.Random(1).shuffle(unique)
    return unique


def clean(line: str) -> Pair | None:
    """Both sides of a line, or nothing: an empty side, a copy, lengths that no translation has."""
    source, target = [*line.rstrip("\n").split("\t"), ""][:2]  # a third column says where it is from
    source, target = normalise(source), normalise(target)
    longer, shorter = max(len(source), len(target)) + 8, min(len(source), len(target)) + 8
    copied = source == target and len(source) > 12
    return (source, target) if source and target and longer < 2.2 * shorter and not copied else None


def train_sentencepiece(pairs: list[Pair], prefix: Path, size: int) -> None:
    """A joint unigram model that can spell anything (byte fallback) and never joins digits."""
    sample = random.Random(1).sample(pairs, min(len(pairs), 250_000))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(side for pair in sample for side in pair),
        model_prefix=str(prefix), vocab_size=size - 1, model_type="unigram", character_coverage=0.9999,
        byte_fallback=True, split_digits=True, required_chars=REQUIRED, normalization_rule_name="identity",
        eos_id=EOS, unk_id=1, bos_id=-1, pad_id=-1, num_threads=multiprocessing.cpu_count(), minloglevel=1,
    )  # fmt: skip


def encode_chunk(job: tuple[str, list[Pair], int | None]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Ids and lengths of both sides of some pairs; a seed asks for noise and, now and then, another segmentation."""
    model, pairs, seed = job
    rng = random.Random(seed)
    pieces = sentencepiece.SentencePieceProcessor(model_file=model)
    sentencepiece.set_random_generator_seed(seed or 0)
    sides: tuple[list[list[int]], list[list[int]]] = ([], [])
    for number, pair in enumerate(pairs):
        joined = several(pair, pairs[number - 1]) if seed is not None and rng.random() < JOINED else None
        source, target = joined or pair
        if seed is not None:
            source, target = perturb(source, target, rng)
        sampled = seed is not None and rng.random() < 0.05
        left = [*pieces.encode(source, enable_sampling=sampled, alpha=0.2, nbest_size=-1), EOS]
        right = [*pieces.encode(target), EOS]
        if 1 < len(left) <= MAX_TOKENS and 1 < len(right) <= MAX_TOKENS:
            sides[0].append(left)
            sides[1].append(right)
    return [
        (np.array([i for ids in side for i in ids], np.uint16), np.array(list(map(len, side)), np.int64))
        for side in sides
    ]


def encode(pairs: list[Pair], model: Path, out: Path, seed: int | None = None) -> None:
    """Write the ids of all pairs as flat arrays, with the end of each sentence."""
    size = 10_000
    seeds = [None if seed is None else seed * 1_000_003 + i for i in range(0, len(pairs), size)]
    jobs = [(str(model), pairs[i * size : (i + 1) * size], s) for i, s in enumerate(seeds)]
    with multiprocessing.Pool() as pool:
        chunks = pool.map(encode_chunk, jobs)
    arrays = {}
    for side, name in enumerate(SIDES):
        arrays[name] = np.concatenate([chunk[side][0] for chunk in chunks])
        arrays[name + "_ends"] = np.cumsum(np.concatenate([chunk[side][1] for chunk in chunks]))
    np.savez(out.with_suffix(".part.npz"), **arrays)  # type: ignore[arg-type]
    out.with_suffix(".part.npz").rename(out)


def prepare(options: argparse.Namespace) -> multiprocessing.Process | None:
    """All that needs no GPU: `spm.model`, the text to watch, and `train-0.npz`; a process makes the other versions.

    A version is what a teacher translated (all of it), a share of the original pairs, and the short strings several
    times, all with noise of its own.
    """
    work, model = options.work, options.work / "spm.model"
    versions = [(seed, work / f"train-{seed}.npz") for seed in range(options.versions)]
    missing = [(seed, path) for seed, path in versions if not path.exists()]
    if not missing:
        return None
    pairs = read_pairs(options.data, swap=options.swap)
    log(f"{len(pairs):,} pairs after cleaning")
    if not model.exists() and options.pieces:
        shutil.copyfile(options.pieces, model)
    elif not model.exists():
        train_sentencepiece(pairs, work / "spm-part", options.vocabulary)
        (work / "spm-part.model").rename(model)
        log("SentencePiece trained")
    held_out, pairs = pairs[:HELD_OUT], pairs[HELD_OUT:]
    encode(held_out, model, work / "valid-held-out.npz")
    for path in options.valid:
        encode(read_pairs([path], swap=options.swap), model, work / f"valid-{path.stem}.npz")
    unseen = {source for source, _ in held_out}
    distilled = [pair for pair in read_pairs(options.distilled) if pair[0] not in unseen]  # never swapped
    short = read_pairs(options.short, swap=options.swap)
    log(f"{len(distilled):,} pairs by a teacher, {len(short):,} short strings")

    def make(seed: int, path: Path) -> None:
        rng = random.Random(seed)
        own = rng.sample(pairs, int(len(pairs) * options.original)) if distilled else pairs
        mixed = [*distilled, *own, *(short * options.short_times)]
        rng.shuffle(mixed)
        encode(mixed, model, path, seed)
        log(f"encoded {path.name}: {len(mixed):,} pairs")

    def make_others() -> None:
        for seed, path in missing[1:]:
            make(seed, path)

    make(*missing[0])
    others = multiprocessing.Process(target=make_others)
    others.start()
    return others


def log(message: str) -> None:
    """Print with the time."""
    print(f"[{time.strftime('%H:%M:%S')}] {message}", flush=True)
