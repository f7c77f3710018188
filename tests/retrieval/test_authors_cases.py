"""What the authors' released code gets wrong (METHOD, section 4), one test for each case, on the real code."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from knnmt.align.bitext import Bitext, Links
from knnmt.build import kmeans
from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.csr import offsets_of
from knnmt.datastore import Datastore
from knnmt.decode.beam import search
from knnmt.model.checkpoint import FAMILIES, convert, load
from knnmt.model.tokenizer import SpecialTokens
from knnmt.model.transformer import States
from knnmt.retrieval.session import Retriever
from knnmt.store.entries import group_by_type
from knnmt.systems.settings import RetrievalSettings
from knnmt.translate import TranslateSettings, Translator

from ..build.examples import written
from ..oracle.datastore import Segment, Store
from ..oracle.datastore import build as oracle_build
from .examples import BY_SOURCE, CPU, built

pytestmark = pytest.mark.usefixtures("way")

Folder = Callable[[str], Path]


def one_cluster(count: int, seed: int = 0) -> Store:
    """A store of a single source type with one cluster of `count` tokens, each with an entry of its own."""
    rng = np.random.default_rng(seed)
    targets, ids = rng.normal(size=(count, 2)).astype(np.float16), rng.integers(0, 9, count).astype(np.int32)
    starts, links = np.array([0, count]), np.arange(count, dtype=np.int32)
    ranking = kmeans.rank(targets, ids, starts, np.arange(count + 1), links, None)
    return {
        "target_ids": ids, "target_offsets": starts, "target_keys": targets, "type_offsets": starts,
        "link_offsets": np.arange(count + 1), "link_entries": links, "source_keys": np.zeros((count, 2), np.float16),
        "cluster_offsets": np.array([0, 1]), "cluster_starts": starts, "cluster_source": np.zeros((1, 2), np.float16),
        "cluster_target": ranking.centroids, "ranking_offsets": ranking.offsets, "ranking_entries": ranking.entries,
        "ranking_tokens": ranking.tokens, "ranking_distances": ranking.distances,
    }  # fmt: skip


def find(store: Datastore, system: str, ids: Sequence[int], state: Sequence[float], **settings: Any) -> Any:
    """What a state finds for a sentence whose source states are all zeros."""
    plain = {"system": system, "temperature": 1.0, "adapt": "constant"}
    chosen = RetrievalSettings.model_validate(plain | settings)
    tokens = torch.tensor([list(ids)])
    mask = torch.ones_like(tokens, dtype=torch.bool)
    look = Retriever(store, CPU, chosen).look(tokens, mask, torch.zeros(1, len(ids), 2))
    return look.lookup.find(torch.tensor([[list(state)]]))


@pytest.mark.parametrize("system", ["faster", "faster-exact"])
@pytest.mark.parametrize("length", [1, 2, 40])
def test_1_k_is_k_however_short_the_sentence_and_none_is_the_whole_cluster(
    tmp_path: Path, system: str, length: int
) -> None:
    store = written(one_cluster(30), tmp_path / "store", vocabulary=9)
    for k, count in ((1, 1), (4, 4), (29, 29), (64, 30), (None, 30)):
        found = find(store, system, [0] * length, (0.3, 0.1), k=k)
        assert int((found.entries >= 0).sum()) == count


def test_2_every_label_has_its_own_distance(tmp_path: Path) -> None:
    arrays = one_cluster(200)
    store = written(arrays, tmp_path / "store", vocabulary=9)
    found = find(store, "faster", [0], (0.3, 0.1), k=None)
    entries = found.entries[0, 0].numpy()
    assert sorted(entries.tolist()) == list(range(200))
    centre, keys = arrays["cluster_target"][0].astype(np.float64), arrays["target_keys"].astype(np.float64)
    own = np.square(keys[entries] - centre).sum(axis=1)  # measured anew, from the key of each entry
    near = np.square(np.array([0.3, 0.1]) - centre).sum()
    np.testing.assert_allclose(found.distances[0, 0].numpy(), near + own, rtol=1e-4)
    assert found.tokens[0, 0].tolist() == arrays["target_ids"][entries].tolist()
    assert (np.diff(found.distances[0, 0].numpy()) >= 0).all()


@pytest.mark.parametrize("system", ["fast-clustered", "faster", "faster-exact"])
def test_3_a_cluster_without_entries_is_not_selectable_and_the_next_nearest_is(tmp_path: Path, system: str) -> None:
    # of type 0, cluster 0 lies just where the source token is, and cluster 1 far away
    segments = [
        Segment([0], [1], [(0, 0)], np.array([[0.0, 0.0]]), np.array([[0.0, 0.0]])),
        Segment([0], [2], [(0, 0)], np.array([[8.0, 8.0]]), np.array([[3.0, 0.0]])),
    ]
    whole = written(oracle_build(segments, {(0, 0): 0, (1, 0): 1}, 1, 4), tmp_path / "whole", vocabulary=3)
    assert find(whole, system, [0], (0, 0), k=1).entries.tolist() == [[[0]]]
    # empty from the beginning: the only tokens are in clusters 1 and 2
    gap = written(oracle_build(segments, {(0, 0): 2, (1, 0): 1}, 1, 4), tmp_path / "gap", vocabulary=3)
    found = find(gap, system, [0], (0, 0), k=1)
    assert found.entries.tolist() == [[[0]]]
    assert found.distances.isfinite().all()
    # emptied by what is left out
    chosen = RetrievalSettings(system=system, k=1, temperature=1.0, adapt="constant", weight=0.5)
    retriever = Retriever(whole, CPU, chosen, left_out=[0])
    look = retriever.look(torch.tensor([[0]]), torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, 1, 2))
    found = look.lookup.find(torch.zeros(1, 1, 2))
    assert found.entries.tolist() == [[[1]]]
    assert found.tokens.tolist() == [[[2]]]
    states, logits = torch.zeros(1, 1, 2), torch.zeros(1, 1, 3)
    normaliser = look.mix(States(states, states), logits, torch.tensor([[3.0]]).log())
    np.testing.assert_allclose((logits - normaliser[..., None]).exp()[0, 0], [1 / 6, 1 / 6, 4 / 6], rtol=1e-5)


@pytest.mark.parametrize("system", BY_SOURCE)
@pytest.mark.parametrize("adapt", ["constant", "distance"])
def test_4_a_token_never_seen_gives_nothing_to_any_token_and_alone_leaves_base_mt(
    tmp_path: Path, system: str, adapt: Any
) -> None:
    arrays = one_cluster(30)
    for name in ("type_offsets", "cluster_offsets"):  # one type more, of which there is nothing
        arrays[name] = np.append(arrays[name], arrays[name][-1])
    store = written(arrays, tmp_path / "store", vocabulary=9)
    chosen = RetrievalSettings(system=system, k=30, temperature=1.0, adapt=adapt, reach=9.0, weight=0.9)
    ids = torch.tensor([[1, 1, 1], [1, 0, 1]])
    look = Retriever(store, CPU, chosen).look(ids, torch.ones_like(ids, dtype=torch.bool), torch.zeros(2, 3, 2))
    states, logits = torch.zeros(2, 1, 2), torch.randn(2, 1, 9, generator=torch.Generator().manual_seed(0))
    before, normaliser = logits.clone(), logits.logsumexp(-1)
    after = look.mix(States(states, states), logits, normaliser)
    assert torch.equal(logits[0], before[0])
    assert torch.equal(after[0], normaliser[0])
    # among others, it is as if it were not there: nothing is found near its zeros but what type 0 has
    alone = find(store, system, [0], (0, 0), k=30)
    assert look.lookup.find(states).entries[1].tolist() == alone.entries[0].tolist()
    assert (logits[1] - after[1][:, None]).exp().sum().item() == pytest.approx(1, abs=1e-5)


def test_5_a_segment_without_links_does_not_shift_those_behind_it() -> None:
    pairs = [([4, 5], [7, 8, 0]), ([4, 6, 5], [9, 0]), ([5, 4], [8, 7, 7, 0])]
    linked = [[(0, 0), (1, 1)], [], [(0, 0), (1, 1), (1, 2)]]
    bitext = Bitext.from_pairs(pairs)
    source, target = np.array([pair for some in linked for pair in some], np.int32).T
    links = Links(source, target, offsets_of(np.array([len(some) for some in linked])))
    grouped = group_by_type(bitext, links, vocabulary=10)
    assert np.diff(grouped["type_offsets"]).tolist() == [0, 0, 0, 0, 2, 2, 0, 0, 0, 0]
    # 4 stands first in segment 1 (place 0) and last in segment 3 (place 6), whose targets are entries 5 to 8
    assert grouped["positions"].tolist() == [0, 6, 1, 5]
    entries = [grouped["link_entries"][a:b].tolist() for a, b in pairwise(grouped["link_offsets"])]
    assert entries == [[0], [6, 7], [1], [5]]
    tokens = [[int(bitext.target_ids[entry]) for entry in some] for some in entries]
    assert tokens == [[7], [7, 7], [8], [8]]  # 4 is 7 and 5 is 8, in all segments


def test_6_all_members_of_a_cluster_are_seen_also_those_late_in_the_corpus(tmp_path: Path) -> None:
    arrays = one_cluster(700)
    for late in (513, 699):
        state = arrays["target_keys"][late].tolist()
        folder = tmp_path / str(late)
        found = find(written(arrays, folder, vocabulary=9), "fast-clustered", [0], state, k=700)
        assert found.entries[0, 0, 0].item() == late
        assert sorted(found.entries[0, 0].tolist()) == list(range(700))


def test_7_new_text_is_translated_with_nothing_prepared_for_it(model_folder: Folder, tmp_path: Path) -> None:
    model = load(model_folder("marian"), device="cpu")
    store = built(model, tmp_path)
    before = sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*"))
    text = "im Garten und im Baum schläft klein klein klein die Katze ."
    assert text not in [segment.source for segment in store.segments()]
    retrieval = RetrievalSettings(system="faster", k=4, adapt="constant", weight=0.5)
    (found,) = Translator(model, store, retrieval=retrieval).translate([text], TranslateSettings(beam=2, evidence=True))
    assert all(token.neighbours for token in found.evidence)
    assert sorted((path, path.stat().st_mtime_ns) for path in tmp_path.rglob("*")) == before


class Insisting:
    """A lookup that puts nearly all probability on some tokens."""

    static = False
    normalises = False

    def __init__(self, tokens: list[int]) -> None:
        self.tokens = tokens

    def mix(
        self, states: States, logits: torch.Tensor, normaliser: torch.Tensor | None, over: torch.Tensor
    ) -> torch.Tensor:
        assert normaliser is not None
        logits[:, :, self.tokens] = normaliser[:, :, None] + 20.0
        return normaliser

    def keep(self, rows: torch.Tensor) -> None:
        """All sentences hear the same."""


@pytest.mark.parametrize("beams", [1, 4])
def test_8_what_the_search_bans_or_forces_stays_so_whatever_the_store_says(tiny: Any, ragged: Any, beams: int) -> None:
    bos, pad, end, tag, word = 0, 1, 2, 7, 11
    model = convert(tiny("mbart"), FAMILIES["mbart"])
    special = SpecialTokens(start=end, end=end, pad=pad, prefix=(tag,), forced_end=True, banned=(bos, pad))
    with torch.inference_mode():
        encoded = model.encode(*ragged)
        banned = search(model, encoded, special, [9] * 12, beams=beams, lookup=Insisting([bos, pad]))
        base = search(model, encoded, special, [9] * 12, beams=beams)
        looping = search(model, encoded, special, [9] * 12, beams=beams, lookup=Insisting([bos, pad, word]))
    assert [best.tokens for (best, *_) in banned] == [best.tokens for (best, *_) in base]
    for best, *_ in looping:  # the tag is forced first and the end at the limit; between them is what it insists on
        assert best.tokens == (tag, *[word] * 7, end)


@pytest.mark.parametrize(("family", "langs"), [("m2m_100", "de-en"), ("mbart", "en-de"), ("marian", "de-en")])
def test_8_padding_the_beginning_and_tags_are_never_values(
    model_folder: Folder, tmp_path: Path, family: str, langs: str
) -> None:
    model = load(model_folder(family), langs=langs, device="cpu")
    hf = model.tokenizer._hf
    codes = [*getattr(hf, "lang_code_to_token", {}).values(), *hf.all_special_tokens, "</s>", "<s>", "<pad>"]
    lines = [f"der Hund {code} schläft .\tthe dog {code} sleeps {code}\t{n}\n" for n, code in enumerate(codes[:40])]
    (tmp_path / "corpus.tsv").write_text("".join(lines), encoding="utf-8")
    build([tmp_path / "corpus.tsv"], model, tmp_path / "store", langs, BuildSettings(clean=None, cluster_size=8))
    store = Datastore.open(tmp_path / "store")
    values = set(store.parts[0]["target_ids"].tolist())
    special = {hf.convert_tokens_to_ids(token) for token in codes} - {hf.unk_token_id}
    assert len(special) > 2
    assert values & special == {model.special.end}
    # an end once a segment, as its last entry
    ends = store.parts[0]["target_offsets"][1:] - 1
    assert np.flatnonzero(store.parts[0]["target_ids"] == model.special.end).tolist() == ends.tolist()
    assert set(store.parts[0]["ranking_tokens"].tolist()) <= values
