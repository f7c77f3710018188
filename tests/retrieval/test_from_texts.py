"""kNN-MT, Fast and Faster find what the texts themselves say: built, taught, with something removed, and compacted."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from knnmt.align.bitext import Bitext
from knnmt.build.settings import BuildSettings
from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.model.checkpoint import load
from knnmt.retrieval.live import LiveStore
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Found, Source
from knnmt.systems.table import SYSTEMS

from ..build.examples import parallel_text
from ..oracle import texts
from ..oracle.texts import Name, Near, Seen

K, C = 6, 2
ASKED: list[Name] = [("der Hund schläft im Garten .", "the dog sleeps in the garden ."), ("groß und klein", "big")]


class Oracle:
    """The same changes, made to texts."""

    def __init__(self, folder: Path, store: Datastore) -> None:
        self.hf = transformers.MarianMTModel.from_pretrained(folder).eval()
        self.tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
        self.aligner = store.aligner()
        self.part = [self.see(name) for name in names(store.segments())]
        self.lessons: list[Seen] = []
        self.hidden: set[Name] = set()

    def see(self, name: Name) -> Seen:
        source, target = self.tokenizer(name[0])["input_ids"], self.tokenizer(text_target=name[1])["input_ids"]
        links = self.aligner.align(Bitext.from_pairs([(source, target)])).segment(0)
        return texts.see(self.hf, self.tokenizer, name, links)

    def teach(self, name: Name) -> None:
        self.lessons = [seen for seen in self.lessons if seen.name[0] != name[0]] + [self.see(name)]

    def remove(self, name: Name) -> None:
        self.hidden.add(name)
        self.lessons = [seen for seen in self.lessons if seen.name != name]

    def compact(self) -> None:
        """What was removed is gone. Lessons, in a part of their own now, are found as lessons only, as before."""
        self.part = [seen for seen in self.part if seen.name not in self.hidden]
        self.hidden = set()

    def found(self, system: str, of_lessons: bool, ids: list[int], states: Any, state: Any) -> list[Near]:
        part, hidden = (self.lessons, set[Name]()) if of_lessons else (self.part, self.hidden)
        match system:
            case "knn":
                return texts.knn(part, hidden, state, K)
            case "fast":
                return texts.fast(part, hidden, ids, states, state, K, C)
            case _:
                return texts.faster(part, hidden, ids, state, K)


def names(segments: Any) -> list[Name]:
    return [(segment.source, segment.target) for segment in segments]


def agree(store: Datastore, oracle: Oracle) -> None:
    """Each system finds the same entries with the same tokens and distances, in the part and among the lessons."""
    live = LiveStore(store, torch.device("cpu"))
    lessons, taught = store.lesson_part, live.taught
    for name in ASKED:
        asked = oracle.see(name)
        source, states = texts.states_of(oracle.hf, asked.source_ids, asked.target_ids)
        ids = torch.tensor([asked.source_ids])
        look = Source(ids, torch.ones_like(ids, dtype=torch.bool), torch.from_numpy(source)[None])
        for system in ("knn", "fast", "faster"):
            settings = RetrievalSettings(system=system, k=K, c=C, temperature=1.0)
            beside = [(taught, torch.from_numpy(lessons.entries))] if taught and lessons else []
            for within, numbers in ((live.view, None), *beside):
                # lessons have no clusters: they are searched by their tokens
                how = "fast" if numbers is not None and system == "faster" else system
                found = SYSTEMS[how].select(within, look, settings).find(torch.from_numpy(states)[None])
                for place, state in enumerate(states):
                    expected = oracle.found(how, numbers is not None, asked.source_ids, source, state)
                    same(shown(store, found, place, numbers), expected)


def shown(store: Datastore, found: Found, place: int, numbers: Any) -> list[Near]:
    """What was found for a state, by the texts."""
    entries = found.entries[0, place]
    kept = entries >= 0
    real = entries[kept] if numbers is None else numbers[entries[kept]]
    segments, places = store.where(real.numpy())
    tokens, distances = (column[0, place][kept].tolist() for column in (found.tokens, found.distances))
    every = zip(names(store.segment(n) for n in segments.tolist()), places.tolist(), tokens, distances, strict=True)
    return [Near(*each) for each in every]


def same(ours: Sequence[Near], theirs: Sequence[Near]) -> None:
    """The same entries, in order; of two that are as far as each other but for rounding, either may come first."""
    np.testing.assert_allclose([near.distance for near in ours], [near.distance for near in theirs], atol=0.01)
    edge = max((near.distance for near in theirs), default=0.0) - 0.02
    clear, expected = ({near[:3] for near in some if near.distance < edge} for some in (ours, theirs))
    assert clear == expected


def test_stores_find_what_the_texts_say(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    folder = model_folder("marian")
    model = load(folder, langs="de-en", device="cpu", precision="float32")
    settings = BuildSettings(clean=None, cluster_size=10_000, k_max=None)
    corpus = parallel_text(tmp_path / "corpus.tsv", 16)
    store = Datastore.build(corpus, out=tmp_path / "store", langs="de-en", model=model, settings=settings)
    assert (np.diff(store.parts[0]["cluster_offsets"]) <= 1).all()  # a type is a cluster
    assert len(set(names(store.segments()))) == 16
    oracle = Oracle(folder, store)
    agree(store, oracle)
    lessons = [("der Hund im Garten", "the big cat"), ("die Katze schläft", "a tree"), ("der Hund im Garten", "a dog")]
    for name in lessons:
        store.add([Segment(*name, "")], model)
        oracle.teach(name)
    agree(store, oracle)
    gone = list(store.segments())[4]
    store.remove([gone.id or ""])
    oracle.remove((gone.source, gone.target))
    agree(store, oracle)
    store.compact(model)
    oracle.compact()
    agree(store, oracle)
    # and on from there: one more, a folded lesson replaced, another removed
    (small,) = store.add([Segment("klein", "small", "")], model).ids
    store.add([Segment("die Katze schläft", "the cat sleeps", "")], model)
    oracle.teach(("klein", "small"))
    oracle.hidden.add(("die Katze schläft", "a tree"))
    oracle.teach(("die Katze schläft", "the cat sleeps"))
    agree(store, oracle)
    store.remove([small, store.recent()[-1].id or ""])
    oracle.remove(("klein", "small"))
    oracle.remove(("der Hund im Garten", "a dog"))
    agree(store, oracle)
    store.compact(model)
    oracle.compact()
    agree(Datastore.open(store.path), oracle)
