"""Links that another aligner made: a build takes them as they are."""

from pathlib import Path

import numpy as np
import pytest

from knnmt.align.bitext import Links
from knnmt.align.settings import AlignSettings
from knnmt.build.build import build
from knnmt.corpus import Languages, Segment, read
from knnmt.datastore import Datastore
from knnmt.errors import DataError, UsageError
from knnmt.model.checkpoint import Model

from .examples import parallel_text
from .small import PAIRS, SETTINGS, bitext_of, ids_of, leftovers, oracle_segments, part_files, represent_alone, settings


def pharaoh(model: Model, segments: list[Segment], path: Path) -> Links:
    """Write random links for each segment, some without; those the model cannot take get nonsense."""
    rng = np.random.default_rng(2)
    kept: list[list[tuple[int, int]]] = []
    lines = []
    for source, target in ids_of(model, segments):
        if len(source) > 60 or len(target) > 60 or not target:
            lines.append("500-500 501-0")
            continue
        count = 0 if rng.random() < 0.2 else 6
        links = {(int(rng.integers(len(target) + 1)), int(rng.integers(len(source)))) for _ in range(count)}
        kept.append(sorted(links))
        lines.append(" ".join(f"{i}-{j}" for j, i in links))
    path.write_text("".join(f"{line}\n" for line in lines))
    flat = np.array([link for links in kept for link in links], np.int32)
    return Links(flat[:, 1], flat[:, 0], np.cumsum([0, *map(len, kept)]))


@pytest.fixture
def with_long_segments(tmp_path: Path) -> Path:
    """A corpus in which some segments are too long for the model or empty; twice the same is kept."""
    lines = parallel_text(tmp_path / "corpus.tsv", 40).read_text(encoding="utf-8").splitlines()
    lines.insert(0, f"{'Hund ' * 80}\tdog\tlong source")
    lines.insert(7, f"Hund\t{'dog ' * 80}\tlong target")
    lines.insert(20, "Hund\t\tno target")
    lines.insert(21, lines[5])
    lines.append(f"{'Hund ' * 80}\t{'dog ' * 80}\tboth")
    (tmp_path / "corpus.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return tmp_path / "corpus.tsv"


def test_links_of_another_aligner_are_taken_as_they_are(model: Model, with_long_segments: Path, tmp_path: Path) -> None:
    everything = list(read(with_long_segments, Languages("de", "en")))
    links = pharaoh(model, everything, tmp_path / "links.txt")
    chosen = settings(align=AlignSettings(cover=False))
    report = build([with_long_segments], model, tmp_path / "store", "de-en", chosen, alignments=tmp_path / "links.txt")
    kept = [segment for segment in everything if segment.id not in ("long source", "long target", "no target", "both")]
    store = Datastore.open(tmp_path / "store")
    assert list(store.segments()) == kept
    assert report.kept == len(kept) == 41
    assert report.dropped == store.manifest.dropped == {"too long": 3, "empty": 1}
    assert store.manifest.aligner is None
    assert store.manifest.settings["clean"] is None
    list(store.verify())
    pairs = ids_of(model, kept)
    states = represent_alone(model, pairs)
    # the segment that is there twice has the same states twice: tokens are told apart by their cluster's order
    first, second = [number for number, segment in enumerate(kept) if segment.id == "4"]
    assert np.array_equal(states[first][0], states[second][0])
    segments = oracle_segments(model, pairs, states, links)
    expected = sorted(
        (
            segment.source_ids[i],
            sorted({int(store.parts[0]["target_offsets"][n]) + j for o, j in segment.links if o == i}),
        )
        for n, segment in enumerate(segments)
        for i in {i for i, _ in segment.links}
    )
    types = np.repeat(np.arange(len(store.parts[0]["type_offsets"]) - 1), np.diff(store.parts[0]["type_offsets"]))
    linked = np.split(store.parts[0]["link_entries"], store.parts[0]["link_offsets"])[1:-1]
    assert sorted((int(kind), some.tolist()) for kind, some in zip(types, linked, strict=True)) == expected


def test_the_links_of_the_aligner_may_be_given_back_to_it(
    model: Model, corpus: Path, built: Path, tmp_path: Path
) -> None:
    store = Datastore.open(built)
    pairs = ids_of(model, list(store.segments()))
    assert len(store) == PAIRS  # nothing was cleaned away, so that line i is segment i
    links = store.aligner().align(bitext_of(model, pairs))
    lines = (" ".join(f"{i}-{j}" for i, j in links.segment(number)) for number in range(len(pairs)))
    (tmp_path / "links.txt").write_text("".join(f"{line}\n" for line in lines))
    build([corpus], model, tmp_path / "store", "de-en", SETTINGS, alignments=tmp_path / "links.txt")
    ours, given = part_files(built), part_files(tmp_path / "store")
    assert Datastore.open(tmp_path / "store").manifest.aligner is None
    assert {"given_links.npy", "given_offsets.npy"} <= set(given)  # a compaction has no other
    assert {name: content for name, content in given.items() if not name.startswith("given_")} == ours


@pytest.mark.parametrize(("change", "message"), [(-1, "unexpected end of file"), (1, "more lines")])
def test_a_file_of_links_has_a_line_for_each_segment(
    model: Model, with_long_segments: Path, tmp_path: Path, change: int, message: str
) -> None:
    path = tmp_path / "links.txt"
    pharaoh(model, list(read(with_long_segments, Languages("de", "en"))), path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:change] if change < 0 else [*lines, "0-0\n"]))
    with pytest.raises(DataError, match=message):
        build([with_long_segments], model, tmp_path / "store", "de-en", SETTINGS, alignments=path)
    assert not (tmp_path / "store").exists()


def test_a_file_of_links_that_is_not_there_is_a_wrong_call(model: Model, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.txt"):
        build([corpus], model, tmp_path / "store", "de-en", SETTINGS, alignments=tmp_path / "nowhere.txt")
    assert not leftovers(tmp_path)
