"""Times beside base MT: of the same work, in the same number of steps, stage by stage."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from knnmt.datastore import Datastore
from knnmt.errors import DataError, UsageError
from knnmt.lab.bench import batch_size, engines, speed
from knnmt.lab.bench.batch_size import largest_batches
from knnmt.lab.bench.clock import STAGES, Clock, Steps
from knnmt.lab.bench.first_pass import first_pass
from knnmt.lab.bench.runner import Run, Runner, Variant, retriever_of, served
from knnmt.lab.bench.settings import BenchSettings, Sweep
from knnmt.lab.bench.speed import interleaved, measure, of_length
from knnmt.model.checkpoint import Model
from knnmt.model.transformer import States
from knnmt.retrieval.session import Retriever, SentenceLookup
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS
from knnmt.trace import NO_TRACE, Trace
from knnmt.translate import TranslateSettings, Translator

from ...retrieval.examples import built

CPU = torch.device("cpu")
SMALL = BenchSettings(pairs=2, beam=2, batch_size=4, k=4, first_pass=False)


@pytest.fixture(scope="module")
def store(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return built(model, tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def texts() -> list[str]:
    words = "der Hund sieht die Katze und das Haus im Garten schläft".split()
    return [" ".join(words[start : start + 2 + start % 5]) for start in range(9)]


def test_every_system_does_all_its_work_at_so_small_a_weight(model: Model, store: Datastore, texts: list[str]) -> None:
    options = TranslateSettings(beam=2, batch_size=4)
    base_steps = Steps()
    base = Translator(model, trace=base_steps).translate(texts, options)
    for system in served(store):
        steps, chosen = Steps(), RetrievalSettings(system=system, k=4, weight=BenchSettings().weight)
        translator = Translator(model, store, retrieval=chosen, trace=steps)
        looked_up = mixed = 0
        original = SentenceLookup.mix

        def count(
            self: SentenceLookup, states: States, logits: Tensor, *others: Tensor | None, original: Any = original
        ) -> Tensor:
            nonlocal looked_up, mixed
            looked_up += 1
            found = self.lookup.neighbours(self.query(states))
            assert bool((found.log_p > -torch.inf).any())
            mixed += int((self.weight(found, logits, logits.logsumexp(dim=2)) > 0).any())
            after: Tensor = original(self, states, logits, *others)
            return after

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SentenceLookup, "mix", count)
            found = translator.translate(texts, options)
        assert [each.tokens for each in found] == [each.tokens for each in base]
        assert steps.sentences == base_steps.sentences
        assert looked_up == len(steps.sentences)
        assert mixed


def test_rows_of_all_systems(model: Model, store: Datastore, texts: list[str]) -> None:
    rows, skipped = measure(model, store, texts, SMALL)
    assert [row.system for row in rows] == ["base", *SYSTEMS]
    assert not skipped
    for row in rows:
        assert (row.ratio is None) == (row.system == "base")
        assert row.same == row.segments == len(texts)
        assert row.steps == rows[0].steps > 0
        assert len(row.times) == 2
        assert row.seconds.low <= row.seconds.median <= row.seconds.high
        assert set(row.split) <= set(STAGES)
        assert min(row.split.values()) > 0
    assert set(rows[0].split) == {"text", "encode", "decode"}
    assert set(rows[1].split) == set(STAGES)
    assert rows[0].k is None
    assert {row.system for row in rows if row.c is not None} == {"fast", "proto"}  # that of similar is by sentence


def test_ratios_are_of_rounds(model: Model, texts: list[str]) -> None:
    """A clock that ticks by what runs: twice the ticks are a ratio of 2, and its interval is as narrow as it gets."""
    time = 0.0

    def taking(seconds: float) -> Run:
        def run(some: list[str], trace: Trace = NO_TRACE, /) -> list[str]:
            nonlocal time
            time += seconds * len(some)
            return some

        return run

    seconds = {"a": 1.0, "b": 2.0, "c": 1.0}
    made = [Runner(Variant(name, SMALL), taking(spent), lambda: taking(0.0)) for name, spent in seconds.items()]
    rows = interleaved(model, made, texts, now=lambda: time)
    assert rows[1].ratio is not None
    assert rows[2].ratio is not None
    assert rows[1].ratio.mean == rows[1].ratio.low == pytest.approx(2.0)
    assert rows[2].ratio.low <= 1.0 <= rows[2].ratio.high
    assert rows[0].times == [len(texts)] * 2


def test_everyone_goes_first_as_often(model: Model, texts: list[str]) -> None:
    order: list[str] = []

    def noting(name: str) -> Run:
        def run(some: list[str], trace: Trace = NO_TRACE, /) -> list[str]:
            order.append(name)
            return some

        return run

    settings = BenchSettings(pairs=2, batch_size=3, first_pass=False)
    made = [Runner(Variant(name, settings), noting(name), lambda: lambda some, _=NO_TRACE, /: some) for name in "abc"]
    interleaved(model, made, texts)
    timed = order[9:27]  # after the warm-up of three batches, before the pass for the stages
    assert [timed[at] for at in range(0, 18, 3)] == ["a", "b", "c", "b", "c", "a"]
    assert all(sorted(timed[at : at + 3]) == ["a", "b", "c"] for at in range(0, 18, 3))


def test_stages_add_up_to_the_whole() -> None:
    ticks = iter(range(100))
    clock = Clock(CPU, now=lambda: float(next(ticks)))
    with clock.stage("text"):
        with clock.stage("decode"):
            for _ in range(2):
                with clock.stage("lookup"):
                    pass
        with clock.stage("encode"):
            pass
    assert sum(clock.seconds.values()) == 9  # ten looks at the clock
    assert clock.seconds == {"text": 3, "decode": 3, "lookup": 2, "encode": 1}


def test_a_trace_changes_nothing_and_its_stages_are_those_of_the_whole(
    model: Model, store: Datastore, texts: list[str]
) -> None:
    plain = Translator(model, store, system="fast")
    clock = Clock(CPU)
    traced = Translator(model, retriever=plain.retriever, trace=clock)
    began = clock.now()
    found = traced.translate(texts)
    whole = clock.now() - began
    assert found == plain.translate(texts)
    assert set(clock.seconds) == set(STAGES)
    assert min(clock.seconds.values()) > 0
    assert 0.9 * whole < sum(clock.seconds.values()) <= whole
    seconds = sum(clock.seconds.values())
    assert list(traced.stream(texts)) == found
    assert sum(clock.seconds.values()) > seconds


def test_a_ready_retriever_takes_the_place_of_its_settings(model: Model, store: Datastore, texts: list[str]) -> None:
    ready = Retriever(store, model.device, RetrievalSettings(system="knn", k=2), left_out=[0, 1])
    translator = Translator(model, retriever=ready)
    assert (translator.store, translator.retriever, translator.left_out) == (store, ready, frozenset({0, 1}))
    same = Translator(model, store, retrieval=ready.settings, left_out=[0, 1])
    assert translator.translate(texts) == same.translate(texts)
    with pytest.raises(UsageError, match="give either it or those"):
        Translator(model, store, retriever=ready)


def test_sweeps_over_retrieval_share_one_base(model: Model, store: Datastore, texts: list[str]) -> None:
    settings = SMALL.model_copy(update={"systems": ("fast", "faster")})
    rows, skipped = measure(model, store, texts, settings, Sweep.parse("k=1,2,400"))
    assert [(row.system, row.k) for row in rows] == [
        ("base", None), ("fast", 1), ("faster", 1), ("fast", 2), ("faster", 2), ("fast", 400),
    ]  # fmt: skip
    assert [(left.system, left.what) for left in skipped] == [("faster", "k=400")]
    assert "k_max" in skipped[0].why
    rows, _ = measure(model, store, texts, settings, Sweep.parse("c=2,4"))
    assert [(row.system, row.c) for row in rows] == [("base", None), ("fast", 2), ("faster", None), ("fast", 4)]
    rows, _ = measure(model, None, texts, settings, Sweep.parse(f"store={store.path}"))
    assert [row.entries for row in rows] == [None, *[store.sizes["entries"]] * 2]


def test_sweeps_over_decoding_measure_base_each_time(model: Model, store: Datastore, texts: list[str]) -> None:
    settings = SMALL.model_copy(update={"systems": ("faster",)})
    rows, _ = measure(model, store, texts, settings, Sweep.parse("batch-size=1,8"))
    assert [(row.system, row.batch_size) for row in rows] == [("base", 1), ("faster", 1), ("base", 8), ("faster", 8)]
    assert rows[0].steps > rows[2].steps  # a batch's steps are made for all of it at once
    rows, _ = measure(model, store, texts, settings, Sweep.parse("beam=1,3"))
    assert [row.beam for row in rows] == [1, 1, 3, 3]
    rows, _ = measure(model, store, texts, settings, Sweep.parse("length=6,12"))
    assert rows[0].length < 6.01 < rows[2].length < 12.01


def test_texts_of_a_length(model: Model, texts: list[str]) -> None:
    lengths = [len(ids) for ids in model.tokenizer.encode_source(of_length(model, texts, 20))]
    assert len(lengths) == len(texts)
    assert all(10 < length <= 20 for length in lengths)
    with pytest.raises(UsageError, match="the model takes"):
        of_length(model, texts, 10_000)


def test_largest_batch(model: Model, store: Datastore, texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The peak is made up: a megabyte a text, so that just 4 fit into 5."""
    monkeypatch.setattr(batch_size, "_tried", lambda model, variant, some: (len(some) << 20, 3.0))
    rows = largest_batches(model, store, texts, SMALL, 5 << 20)
    assert [row.system for row in rows] == ["base", *SYSTEMS]
    assert {(row.batch_size, row.peak, row.next_peak) for row in rows} == {(4, 4 << 20, 8 << 20)}
    assert largest_batches(model, None, texts, SMALL, 1)[0].batch_size == 0


def test_largest_batch_is_measured(model: Model, store: Datastore, texts: list[str]) -> None:
    settings = SMALL.model_copy(update={"systems": ("fast",)})
    monkey = pytest.MonkeyPatch()
    with monkey.context() as patch:
        patch.setattr(batch_size, "MOST", 4)
        rows = largest_batches(model, store, texts, settings, 1 << 33)
    assert [(row.system, row.batch_size) for row in rows] == [("base", 4), ("fast", 4)]
    assert all(row.per_second is not None and row.per_second > 0 for row in rows)


def test_refusals(model: Model, store: Datastore, texts: list[str]) -> None:
    with pytest.raises(DataError, match="no text to translate"):
        measure(model, store, ["", "  "], SMALL)
    with pytest.raises(UsageError, match="without a store"):
        measure(model, None, texts, SMALL.model_copy(update={"systems": ("fast",)}))
    for bad in ("q=1", "k", "k=", "k=a", "c=0"):
        with pytest.raises(UsageError, match="cannot sweep"):
            Sweep.parse(bad)
    assert served(store) == list(SYSTEMS)


def test_an_index_is_timed_and_swept_for_the_system_that_searches_by_it(
    model: Model, texts: list[str], tmp_path: Path
) -> None:
    pytest.importorskip("faiss")
    store = built(model, tmp_path, index=True)
    settings = SMALL.model_copy(update={"systems": ("knn", "faster"), "index": True})
    rows, _ = measure(model, store, texts[:2], settings, Sweep.parse("nprobe=2,4"))
    assert [(row.system, row.nprobe) for row in rows] == [("base", None), ("knn", 2), ("faster", None), ("knn", 4)]
    made = retriever_of(model, Variant("knn", settings, store))
    assert made is not None
    assert made.settings.index


def test_a_first_pass_runs_in_a_process_of_its_own(
    model: Model, store: Datastore, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing of this process but what it is told: the model as it was loaded, the system, the texts."""
    variant = Variant("fast", SMALL, store)
    assert (first_pass(model, variant, [texts[:4], texts[4:]]) or 0.0) > 0

    told: list[tuple[str, int]] = []

    def noting(model: Model, variant: Variant, batches: list[list[str]]) -> float:
        told.append((variant.system, sum(map(len, batches))))
        return 7.0

    monkeypatch.setattr(speed, "first_pass", noting)
    settings = SMALL.model_copy(update={"systems": ("faster",), "first_pass": True})
    rows, _ = measure(model, store, texts, settings)
    assert told == [("base", len(texts)), ("faster", len(texts))]
    assert [row.first for row in rows] == [7.0, 7.0]


def test_other_engines_are_asked_whether_they_can(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: Model, settings: BenchSettings) -> Run:
        raise ValueError("no such architecture\nat line 3")

    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    monkeypatch.setitem(engines.ENGINES, "generate()", refuse)
    runners, skipped = engines.other_engines(model, SMALL)
    assert not runners
    assert [(left.system, left.why) for left in skipped] == [
        ("generate()", "cannot run this model: ValueError: no such architecture"),
        ("ctranslate2 float32", "not installed: pip install ctranslate2"),
        ("ctranslate2 int8", "not installed: pip install ctranslate2"),
    ]
