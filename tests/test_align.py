"""The aligner against a slow plain one, on random bitexts and on one where the answer is plain to see."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors.numpy import load_file, save_file

from knnmt import align, align_kernels
from knnmt.align import Aligner, AlignSettings, Bitext, Links
from knnmt.errors import DataError, UsageError

from .oracle import align as oracle

FLOOR = float(np.exp(align.LOG_FLOOR))

sides = st.lists(st.integers(0, 4), max_size=5)
corpora = st.lists(st.tuples(sides, sides), min_size=1, max_size=5)
settings_drawn = st.builds(
    AlignSettings,
    iterations=st.integers(2, 4),
    p0=st.sampled_from([0.0, 0.08, 0.4]),
    alpha=st.sampled_from([0.01, 0.5]),
    tension=st.sampled_from([0.5, 4.0, 12.0]),
    optimise_tension=st.booleans(),
    variational_bayes=st.booleans(),
    cover=st.just(False),
)


def bitext_of(corpus: oracle.Corpus) -> Bitext:
    return Bitext.from_sequences([source for source, _ in corpus], [target for _, target in corpus])


def links_of(segments: list[set[oracle.Point]]) -> Links:
    ordered = [sorted(segment, key=lambda point: point[::-1]) for segment in segments]
    flat = np.array([point for segment in ordered for point in segment], np.int32).reshape(-1, 2)
    offsets = np.cumsum([0, *map(len, ordered)])
    return Links(flat[:, 0].copy(), flat[:, 1].copy(), offsets)


def segments_of(links: Links) -> list[list[oracle.Point]]:
    return [links.segment(index) for index in range(len(links))]


def swapped(corpus: oracle.Corpus) -> oracle.Corpus:
    return [(target, source) for source, target in corpus]


def fit_oracle(corpus: oracle.Corpus, chosen: AlignSettings) -> tuple[oracle.Direction, oracle.Direction]:
    arguments = (
        chosen.iterations - 1,
        chosen.p0,
        chosen.alpha,
        chosen.tension,
        chosen.optimise_tension,
        chosen.variational_bayes,
    )
    return oracle.fit(corpus, *arguments), oracle.fit(swapped(corpus), *arguments)


def same(one: Aligner, other: Aligner) -> bool:
    pairs = [(getattr(one, field.name), getattr(other, field.name)) for field in fields(Aligner)]
    return all(np.array_equal(a, b) and getattr(a, "dtype", None) == getattr(b, "dtype", None) for a, b in pairs)


@pytest.fixture(scope="module")
def dictionary() -> tuple[Bitext, list[list[oracle.Point]]]:
    """Sentences of words w ↦ w + 10 in shuffled order around the diagonal, each ended by 0."""
    rng = np.random.default_rng(7)
    sources, targets, truth = [], [], []
    for _ in range(300):
        length = int(rng.integers(2, 8))
        words = rng.choice(np.arange(1, 11), length, replace=False)
        order = np.argsort(np.arange(length) + rng.uniform(0, 2, length))
        sources.append([*words.tolist(), 0])
        targets.append([*(words[order] + 10).tolist(), 0])
        truth.append([(int(i), j) for j, i in enumerate([*order.tolist(), length])])
    return Bitext.from_sequences(sources, targets), truth


def test_an_obvious_alignment_is_found(dictionary: tuple[Bitext, list[list[oracle.Point]]]) -> None:
    bitext, truth = dictionary
    links = align.train(bitext).align(bitext)
    assert segments_of(links) == truth


@given(corpora, settings_drawn)
@settings(max_examples=80, deadline=None)
def test_trained_parameters_are_the_oracles(corpus: oracle.Corpus, chosen: AlignSettings) -> None:
    aligner = align.train(bitext_of(corpus), chosen)
    forward, backward = fit_oracle(corpus, chosen)
    assert aligner.tensions == pytest.approx([forward.tension, backward.tension], rel=1e-6)

    row = np.repeat(np.arange(aligner.rows.size - 1), np.diff(aligner.rows))
    kept = list(zip(row.tolist(), aligner.targets.tolist(), strict=True))
    for at, (e, f) in enumerate(kept):
        expected = [forward.probability[e, f], backward.probability[f, e]]
        found = [aligner.log_forward[at], aligner.log_backward[at]]
        assert found == pytest.approx(np.log(np.maximum(expected, FLOOR)), abs=1e-4)
    for (origin, f), p in forward.probability.items():
        if origin is None:
            assert aligner.target_null[f] == pytest.approx(np.log(max(p, FLOOR)), abs=1e-4)
        elif (origin, f) not in kept:
            assert max(p, backward.probability[f, origin]) <= FLOOR * 1.001
    for (origin, e), p in backward.probability.items():
        if origin is None:
            assert aligner.source_null[e] == pytest.approx(np.log(max(p, FLOOR)), abs=1e-4)


unfamiliar = st.lists(st.integers(0, 8), max_size=6)


@given(corpora, st.lists(st.tuples(unfamiliar, unfamiliar), max_size=4), settings_drawn)
@settings(max_examples=80, deadline=None)
def test_best_positions_are_the_oracles_also_of_new_segments(
    corpus: oracle.Corpus, new: oracle.Corpus, chosen: AlignSettings
) -> None:
    """Several positions may score alike: what is chosen must score like the best, to rounding."""
    models = fit_oracle(corpus, chosen)
    forward, backward = align.train(bitext_of(corpus), chosen).best(bitext_of(new))
    found = [iter(forward.tolist()), iter(backward.tolist())]
    for source, target in new:
        for model, positions, given_side, side in zip(models, found, (source, target), (target, source), strict=True):
            for j in range(len(side)):
                chosen_at = next(positions)
                if not given_side:
                    assert chosen_at == -1
                    continue
                scores = oracle.scores(model, given_side, side, j, chosen.p0, FLOOR)
                assert scores[chosen_at] >= max(scores.values()) - 1e-4
    assert [list(rest) for rest in found] == [[], []]


def test_ties_go_to_the_null_word_and_then_to_the_first() -> None:
    """Source 7 7 7 7 beside a target that lies between its second and third token."""
    corpus: oracle.Corpus = [([7, 7, 7, 7], [5, 5, 5, 5])]
    aligner = align.train(bitext_of(corpus), AlignSettings(p0=0.0, cover=False))
    forward, backward = aligner.best(bitext_of([([7, 7, 7, 7], [5, 5, 5, 5, 5, 5, 5, 5])]))
    assert forward.tolist() == [0, 0, 0, 1, 1, 2, 2, 3]
    assert backward.tolist() == [1, 3, 5, 7]
    # Never seen, one token a side: the prior of a single position is 1, so p0 alone decides.
    for p0, expected in ((0.5, -1), (0.4999, 0)):
        aligner = align.train(bitext_of(corpus), AlignSettings(p0=p0))
        forward, backward = aligner.best(bitext_of([([8], [9])]))
        assert (forward.tolist(), backward.tolist()) == ([expected], [expected])


@st.composite
def directions(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]]]:
    """For each segment a source position (or -1) a target token, and the reverse."""
    forward, backward = [], []
    for _ in range(draw(st.integers(0, 3))):
        n, m = draw(st.integers(0, 7)), draw(st.integers(0, 7))
        forward.append(draw(st.lists(st.integers(-1, n - 1), min_size=m, max_size=m)))
        backward.append(draw(st.lists(st.integers(-1, m - 1), min_size=n, max_size=n)))
    return forward, backward


@given(directions())
@settings(max_examples=300, deadline=None)
def test_symmetrisation_is_the_oracles(both: tuple[list[list[int]], list[list[int]]]) -> None:
    forward, backward = both
    bitext = Bitext.from_sequences([[0] * len(b) for b in backward], [[0] * len(f) for f in forward])
    flat = [np.array([i for part in side for i in part], np.int32) for side in both]
    links = align.symmetrise(bitext, *flat)
    expected = [
        oracle.grow_diag_final_and(
            {(i, j) for j, i in enumerate(f) if i >= 0}, {(i, j) for i, j in enumerate(b) if j >= 0}
        )
        for f, b in zip(forward, backward, strict=True)
    ]
    assert segments_of(links) == segments_of(links_of(expected))


def test_symmetrisation_by_hand() -> None:
    """(0,0) is common; (1,1) grows from it; (3,3) has free ends; (3,0) is far, its target taken."""
    bitext = Bitext.from_sequences([[0] * 4], [[0] * 4])
    forward = np.array([0, 1, -1, 3], np.int32)
    backward = np.array([0, -1, -1, 0], np.int32)
    assert align.symmetrise(bitext, forward, backward).segment(0) == [(0, 0), (1, 1), (3, 3)]


@st.composite
def linked(draw: st.DrawFn) -> tuple[Bitext, Links]:
    sizes = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=5))
    points = []
    for n, m in sizes:
        cells = [(i, j) for i in range(n) for j in range(m)]
        points.append(draw(st.sets(st.sampled_from(cells), max_size=4)) if cells else set())
    bitext = Bitext.from_sequences([[0] * n for n, _ in sizes], [[0] * m for _, m in sizes])
    return bitext, links_of(points)


@given(linked())
@settings(max_examples=300, deadline=None)
def test_covering_is_the_oracles(drawn: tuple[Bitext, Links]) -> None:
    bitext, links = drawn
    covered = align.cover(links, bitext)
    sizes = zip(bitext.source_lengths.tolist(), bitext.target_lengths.tolist(), strict=True)
    expected = [oracle.cover(set(links.segment(index)), n, m) for index, (n, m) in enumerate(sizes)]
    assert segments_of(covered) == segments_of(links_of(expected))


def test_an_unaligned_token_joins_its_nearest_neighbour_and_the_left_of_two() -> None:
    bitext = Bitext.from_sequences([[1] * 4, [1] * 3, []], [[1] * 6, [1] * 6, [1]])
    links = links_of([{(3, 1), (2, 1), (0, 3)}, set(), set()])
    first, second, third = segments_of(align.cover(links, bitext))
    assert first == [(2, 0), (3, 0), (2, 1), (3, 1), (2, 2), (3, 2), (0, 3), (0, 4), (0, 5)]
    assert second == [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (2, 5)]
    assert third == []


def test_covering_wants_links_of_the_same_segments() -> None:
    with pytest.raises(DataError, match="links of 1 segments, but the bitext has 2"):
        align.cover(links_of([set()]), Bitext.from_sequences([[1], [2]], [[1], [2]]))


def test_aligning_covers_where_the_settings_say_so() -> None:
    bitext = Bitext.from_sequences([[1, 0]] * 20, [[5, 6, 7, 8, 9, 0]] * 20)
    bare = align.train(bitext, AlignSettings(cover=False, p0=0.5)).align(bitext)
    covered = align.train(bitext, AlignSettings(cover=True, p0=0.5)).align(bitext)
    assert len({j for _, j in bare.segment(0)}) < 6
    assert {j for _, j in covered.segment(0)} == set(range(6))
    assert segments_of(covered) == segments_of(align.cover(bare, bitext))


@given(linked())
@settings(max_examples=100, deadline=None)
def test_pharaoh_files_round_trip(tmp_path_factory: pytest.TempPathFactory, drawn: tuple[Bitext, Links]) -> None:
    bitext, links = drawn
    path = tmp_path_factory.mktemp("pharaoh") / "links"
    align.write_pharaoh(links, path)
    assert len(path.read_text().splitlines()) == len(bitext)
    back = align.read_pharaoh(path, bitext)
    assert segments_of(back) == segments_of(links)
    assert [array.dtype.name for array in (back.source, back.target, back.offsets)] == [
        "int32",
        "int32",
        "int64",
    ]


def test_pharaoh_lines_of_other_tools(tmp_path: Path) -> None:
    """Unsorted and repeated links, CRLF, spaces, an empty line within, no newline at the end."""
    path = tmp_path / "links"
    path.write_bytes(b" 2-0 0-1\t0-0 0-1 \r\n\r\n0-0")
    bitext = Bitext.from_sequences([[1] * 3, [1], [1]], [[1] * 2, [1], [1]])
    assert segments_of(align.read_pharaoh(path, bitext)) == [[(0, 0), (2, 0), (0, 1)], [], [(0, 0)]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"0-0\n0-0 1:0\n", r"links, line 2: '1:0' is no link"),
        (b"0-0\n0-0-0\n", r"line 2: '0-0-0' is no link"),
        (b"-1-0\n0-0\n", r"line 1: '-1-0' is no link"),
        (b"0-\xff\n0-0\n", r"line 1: '0-\ufffd' is no link"),
        (b"0-0\n9999999999-0\n", r"line 2: '9999999999-0' is no link"),
        (b"0-0\n0-0 2-0\n", r"line 2: link 2-0 is outside .* 2 source and 3 target"),
        (b"0-3\n\n", r"line 1: link 0-3 is outside"),
        (b"0-0\n", r"line 2: the file ends here, but the corpus has 2 segments"),
        (b"0-0\n0-0\n\n", r"line 3: more lines than the corpus has segments, which is 2"),
    ],
)
def test_a_wrong_pharaoh_file_is_refused_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "links"
    path.write_bytes(content)
    bitext = Bitext.from_sequences([[1, 1], [1, 1]], [[1, 1, 1], [1, 1, 1]])
    with pytest.raises(DataError, match=message):
        align.read_pharaoh(path, bitext)


def test_a_wrong_line_is_named_beyond_the_first_batch_of_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(align, "_LINES_AT_ONCE", 2)
    path = tmp_path / "links"
    bitext = Bitext.from_sequences([[1]] * 5, [[1]] * 5)
    path.write_text("0-0\n\n\n0-0\n0-0\n")
    assert segments_of(align.read_pharaoh(path, bitext)) == [[(0, 0)], [], [], [(0, 0)], [(0, 0)]]
    for line, message in (("0-1", "line 4: link 0-1"), ("x", "line 4: 'x'")):
        path.write_text(f"0-0\n\n\n{line}\n0-0\n")
        with pytest.raises(DataError, match=message):
            align.read_pharaoh(path, bitext)


def test_saved_parameters_align_as_trained_ones(
    tmp_path: Path, dictionary: tuple[Bitext, list[list[oracle.Point]]]
) -> None:
    bitext, _ = dictionary
    aligner = align.train(bitext, AlignSettings(cover=False))
    path = tmp_path / "aligner.safetensors"
    aligner.save(path)
    loaded = Aligner.load(path)
    assert same(aligner, loaded)
    new = Bitext.from_sequences([[3, 4, 99], [], [5]], [[14, 13, 12, 99], [1], []])
    for text in (bitext, new):
        assert segments_of(loaded.align(text)) == segments_of(aligner.align(text))
    assert [entry.name for entry in tmp_path.iterdir()] == ["aligner.safetensors"]


def test_parameters_that_cannot_be_right_are_refused(
    tmp_path: Path, dictionary: tuple[Bitext, list[list[oracle.Point]]]
) -> None:
    good = tmp_path / "good.safetensors"
    align.train(dictionary[0]).save(good)
    arrays = load_file(good)
    metadata = {"format": "knnmt-align", "version": "1", "settings": "{}"}
    path = tmp_path / "bad.safetensors"

    def refused(message: str, **changes: object) -> None:
        changed = {name: np.asarray(changes.get(name, array)) for name, array in arrays.items()}
        save_file(changed, path, {key: str(changes.get(key, value)) for key, value in metadata.items()})
        with pytest.raises(DataError, match=message):
            Aligner.load(path)

    refused("not a file of alignment parameters", format="other")
    refused("of version 2; this knnmt reads version 1", version="2")
    refused("damaged settings: Extra inputs are not permitted", settings='{"beam": 3}')
    refused("rows do not rise", rows=arrays["rows"] + 1)
    refused("targets do not rise", targets=arrays["targets"] * 0)
    refused("targets do not rise", targets=arrays["targets"] - 100)
    refused("log_forward is float64", log_forward=arrays["log_forward"].astype(np.float64))
    refused("not finite", source_null=arrays["source_null"] * np.nan)
    refused("one probability a pair", log_backward=arrays["log_backward"][1:])
    refused("tensions are", tensions=np.array([4.0, 40.0]))

    save_file({"rows": arrays["rows"]}, path, metadata)
    with pytest.raises(DataError, match="damaged"):
        Aligner.load(path)
    path.write_bytes(good.read_bytes()[:-10])
    with pytest.raises(DataError, match="damaged"):
        Aligner.load(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        Aligner.load(tmp_path / "none")
    with pytest.raises(UsageError, match="no such file"):
        align.read_pharaoh(tmp_path / "none", Bitext.from_sequences([], []))


def test_a_segment_with_an_empty_side_teaches_nothing(
    dictionary: tuple[Bitext, list[list[oracle.Point]]],
) -> None:
    full, _ = dictionary
    corpus = [
        (full.source_ids[s:t].tolist(), full.target_ids[u:v].tolist())
        for s, t, u, v in zip(
            full.source_offsets,
            full.source_offsets[1:],
            full.target_offsets,
            full.target_offsets[1:],
            strict=False,
        )
    ]
    with_empty = bitext_of([([], [11, 12]), *corpus[:100], ([1, 2], []), ([], []), *corpus[100:]])
    aligner = align.train(with_empty)
    assert same(aligner, align.train(full))
    assert [segment for segment in segments_of(aligner.align(with_empty)) if not segment] == [[], [], []]


@pytest.mark.parametrize("corpus", [[], [([], [])], [([1], []), ([], [2])]])
def test_nothing_to_learn_from_links_by_the_diagonal(corpus: oracle.Corpus) -> None:
    aligner = align.train(bitext_of(corpus))
    assert segments_of(aligner.align(bitext_of(corpus))) == [[] for _ in corpus]
    assert aligner.align(bitext_of([([1, 2, 3], [4, 5, 6])])).segment(0) == [(0, 0), (1, 1), (2, 2)]


def test_neither_blocks_nor_threads_change_the_result(
    dictionary: tuple[Bitext, list[list[oracle.Point]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    bitext, _ = dictionary
    before = align.train(bitext)
    links = before.align(bitext)
    for size, kept, threads in ((30, 0, 3), (1000, 5000, 1)):
        monkeypatch.setattr(align, "BLOCK_SIZE", size)
        monkeypatch.setattr(align, "KEPT_CELLS", kept)
        monkeypatch.setattr(align, "_threads", lambda threads=threads: threads)
        after = align.train(bitext)
        assert same(before, after)
        assert segments_of(after.align(bitext)) == segments_of(links)


def test_a_long_segment_is_aligned_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """All words occur once, so only the diagonal speaks; the segment is larger than a block."""
    monkeypatch.setattr(align, "BLOCK_SIZE", 1000)
    long = np.arange(900).tolist()
    bitext = Bitext.from_sequences([[901, 902], long, [903]], [[901], long, [902, 903]])
    assert align.train(bitext).align(bitext).segment(1) == [(i, i) for i in long]


def test_what_is_remembered_between_iterations_is_bounded(
    dictionary: tuple[Bitext, list[list[oracle.Point]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    bitext, _ = dictionary
    monkeypatch.setattr(align, "KEPT_CELLS", int(bitext.source_lengths[:10] @ bitext.target_lengths[:10]))
    with ThreadPoolExecutor(1) as pool:
        pairs = align._Pairs(bitext, pool)
        assert pairs.slots(0, 10) is pairs.slots(0, 10)
        assert pairs.slots(10, 20) is not pairs.slots(10, 20)
        assert np.array_equal(pairs.slots(10, 20), pairs.slots(10, 20))


@pytest.mark.parametrize("x", [0.01, 0.3, 1.0, 2.5, 5.999, 6.0, 40.0, 1e6])
def test_digamma(x: float) -> None:
    assert align_kernels.digamma(x) == pytest.approx(oracle.digamma(x), rel=1e-9, abs=1e-9)


def test_progress_rises_to_the_whole(
    dictionary: tuple[Bitext, list[list[oracle.Point]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(align, "BLOCK_SIZE", 1000)
    seen: list[tuple[int, int]] = []
    align.train(dictionary[0], AlignSettings(iterations=3), lambda done, whole: seen.append((done, whole)))
    assert len(seen) > 4
    assert seen == sorted(set(seen))
    assert seen[-1] == (600, 600)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (([-1], [0, 1], [1], [0, 1]), "source id -1 is negative"),
        (([1], [0, 2], [1], [0, 1]), "source offsets do not rise from 0 to the 1 source ids"),
        (([1], [0, 1], [1, 1], [0, 3, 2]), "target offsets do not rise"),
        (([1], [1], [1], [0, 1]), "source offsets do not rise"),
        (([1], [0, 1], [1], [0, 0, 1]), "1 source segments, but 2 target segments"),
        (([1.5], [0, 1], [1], [0, 1]), "source ids are float64"),
        (([[1]], [0, 1], [1], [0, 1]), "source ids are int64 of 2 dimensions"),
        (([2**31], [0, 1], [1], [0, 1]), "source ids have 2147483648, which is too large"),
    ],
)
def test_a_bitext_that_is_none_is_refused(arrays: tuple[list[int], ...], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Bitext(*(np.array(array) for array in arrays))


@pytest.mark.parametrize("wrong", [{"iterations": 1}, {"p0": 1.0}, {"alpha": 0.0}, {"tension": 20.0}, {"beam": 3}])
def test_settings_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        AlignSettings.model_validate(wrong)


def test_without_numba_links_are_read_and_covered_and_training_says_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "links"
    path.write_text("0-1\n")
    program = f"""
import sys
sys.modules["numba"] = None
from knnmt import align, errors
bitext = align.Bitext.from_sequences([[1]], [[1, 2]])
print(align.cover(align.read_pharaoh({str(path)!r}, bitext), bitext).segment(0))
try:
    align.train(bitext)
except errors.MissingExtraError as error:
    print(error)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[0] == "[(0, 0), (0, 1)]"
    assert "pip install numba" in run.stdout.splitlines()[1]
