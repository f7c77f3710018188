"""Retrieval inside generate(): a second opinion on our own engine, and the only one for models it does not run."""

import copy
import itertools
import random
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import sentencepiece
import torch
import transformers

from knnmt import TranslateSettings, Translator
from knnmt.build.settings import BuildSettings
from knnmt.datastore import Datastore
from knnmt.decode.beam import Hypothesis, search
from knnmt.errors import ModelError, StoreError, UsageError
from knnmt.hf import Retrieval, Wrapped, wrap
from knnmt.model.checkpoint import Model, load
from knnmt.model.embedded import embedded_path
from knnmt.model.represent import padded, represent
from knnmt.model.transformer import KeyKind
from knnmt.retrieval.gate import Purpose
from knnmt.retrieval.session import Retriever
from knnmt.retrieval.tuned import Tuned
from knnmt.systems import similar as by_segments
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS

from .build.examples import ENGLISH, parallel_text
from .conftest import tiny_model, tiny_tokenizer
from .oracle import prototypes, similar, systems
from .retrieval.examples import random_gate

FAMILIES = ["marian", "fsmt", "m2m_100", "nllb", "bart", "mbart"]
TEXTS = [
    "der Hund sieht die Katze .",
    "ein Haus im Garten",
    "das Haus und der Baum im Garten schläft .",
    "Katze",
]
TASK = "translate German to English: "
LONGEST = 24
DOCS = Path(__file__).parents[1] / "docs" / "hugging-face.md"


def settings_of(system: str, **more: Any) -> RetrievalSettings:
    """A temperature at which several neighbours count, and a weight at which both sides do."""
    given: dict[str, Any] = {"system": system, "k": 8, "c": 8, "weight": 0.6, "adapt": "constant"}
    return RetrievalSettings(**given | more)


def small(key: KeyKind = "ffn_input") -> BuildSettings:
    return BuildSettings(key=key, cluster_size=4, clean=None)


def bart_folder(folder: Path) -> Path:
    """A BART with Marian's tokenizer, since its own would need merges."""
    tokenizer = tiny_tokenizer("marian", folder)
    tiny_model("bart", len(tokenizer)).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder / "model"


def tiny_t5(folder: Path, gated: bool) -> tuple[Any, Any]:
    """A T5 and its tokenizer; its output layer is its embedding, so that states are scaled before it."""
    tiny_tokenizer("marian", folder)
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "pieces.spm"))
    scored = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    scored += [(pieces.id_to_piece(i), pieces.get_score(i)) for i in range(2, len(pieces))]
    tokenizer = transformers.T5Tokenizer(vocab=scored, extra_ids=2)
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0,
        feed_forward_proj="gated-gelu" if gated else "relu",
    )  # fmt: skip
    model = transformers.T5ForConditionalGeneration(config).eval()
    assert model.config.scale_decoder_outputs
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return model, tokenizer


@dataclass(frozen=True)
class Case:
    """A Hugging Face model, the same in our engine where that runs it, and a store of 60 pairs."""

    hf: Any
    wrapped: Wrapped
    ours: Model | None
    store: Datastore
    _plain: dict[int, list[list[int]]] = field(default_factory=dict)

    def plain(self, beams: int) -> list[list[int]]:
        """The tokens of TEXTS without retrieval."""
        if beams not in self._plain:
            self._plain[beams] = self.tokens(self.generate(TEXTS, beams))
        return self._plain[beams]

    def inputs(self, texts: list[str]) -> dict[str, torch.Tensor]:
        pad = self.wrapped.special.pad
        ids, mask = padded(self.wrapped.tokenizer.encode_source(texts), pad, torch.device("cpu"))
        return {"input_ids": ids, "attention_mask": mask.long()}

    def generate(self, texts: list[str], beams: int, **more: Any) -> Any:
        prefix = self.wrapped.special.prefix
        forced = {"forced_bos_token_id": prefix[0]} if prefix else {}
        given = self.inputs(texts) | forced | {"max_length": LONGEST, "do_sample": False} | more
        return self.hf.generate(**given, num_beams=beams)

    def tokens(self, rows: torch.Tensor) -> list[list[int]]:
        """Rows of ids without the start and what stands behind the end."""
        end = self.wrapped.special.end
        return [row[1 : (*row[1:], end).index(end) + 2] for row in rows.tolist()]


@pytest.fixture(scope="module")
def case_of(model_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    """The case of a family; `t5` and `t5-output` are T5s with either kind of key."""
    made: dict[str, Case] = {}

    def make(family: str) -> Case:
        if family not in made:
            folder = tmp_path_factory.mktemp(family)
            if family.startswith("t5"):
                hf, tokenizer = tiny_t5(folder, gated=family == "t5")
                wrapped, ours = wrap(hf, tokenizer, "de-en", prefix=TASK), None
            else:
                path = bart_folder(folder) if family == "bart" else model_folder(family)
                hf = transformers.AutoModelForSeq2SeqLM.from_pretrained(path).eval()
                wrapped = wrap(hf, transformers.AutoTokenizer.from_pretrained(path), "de-en")
                ours = load(path, langs="de-en")
            corpus = parallel_text(folder / "train.tsv", 60)
            key: KeyKind = "output" if family == "t5-output" else "ffn_input"
            store = Datastore.build(corpus, model=wrapped, langs="de-en", out=folder / "store", settings=small(key))
            made[family] = Case(hf, wrapped, ours, store)
        return made[family]

    return make


# --------------------------------------------------------------------------------------------------------- our engine


def engines(case: Case, chosen: Tuned, beams: int, longest: int = LONGEST) -> list[Hypothesis]:
    """What our own search makes of the texts with the same store."""
    assert case.ours is not None
    model = case.ours
    ids, mask = padded(model.tokenizer.encode_source(TEXTS), model.special.pad, model.device)
    encoded = model.transformer.encode(ids, mask)
    lookup = Retriever(case.store, model.device, chosen.settings, gate=chosen.gate).look(ids, mask, encoded.states)
    limits = [longest - 1] * len(TEXTS)
    found = search(
        model.transformer, encoded, model.special, limits, beams=beams, early_stopping=beams == 1, lookup=lookup
    )
    return [best for best, *_ in found]


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("family", FAMILIES)
def test_generate_gives_the_tokens_of_our_engine(case_of: Callable[[str], Case], family: str, system: str) -> None:
    case = case_of(family)
    gate = random_gate(Purpose(system, case.store.manifest.key, case.store.manifest.metric)).leaning(1.0)
    for adapt, beams, longest in (
        ("constant", 1, LONGEST), ("distance", 5, LONGEST), ("constant", 5, 6), ("learned", 5, LONGEST),
    ):  # fmt: skip
        chosen = Tuned(settings_of(system, adapt=adapt), gate)
        asked: dict[str, Any] = {"max_length": longest, "return_dict_in_generate": True, "output_scores": True}
        with Retrieval(case.wrapped, case.store, chosen) as retrieval:
            found = case.generate(TEXTS, beams, logits_processor=[retrieval], **asked)
        ours = engines(case, chosen, beams, longest)
        assert case.tokens(found.sequences) == [list(each.tokens) for each in ours]
        assert case.tokens(found.sequences) != case.plain(beams)  # the store did something
        if beams > 1:
            assert found.sequences_scores.tolist() == pytest.approx([each.score for each in ours], abs=1e-4)


@pytest.mark.parametrize("key", ["ffn_input", "output"])
@pytest.mark.parametrize("family", FAMILIES)
def test_states_are_those_of_our_engine(case_of: Callable[[str], Case], family: str, key: KeyKind) -> None:
    assert_same_states(case_of(family), key)


def assert_same_states(case: Case, key: KeyKind) -> None:
    assert case.ours is not None
    assert case.wrapped.special == case.ours.special
    assert case.wrapped.tokenizer.fingerprint == case.ours.tokenizer.fingerprint
    targets = case.ours.tokenizer.encode_target(["the dog runs .", "a house", "the", "the cat and the dog and a tree"])
    pairs = list(zip(case.ours.tokenizer.encode_source(TEXTS), targets, strict=True))
    for theirs, ours in zip(represent(case.wrapped, pairs, key=key), represent(case.ours, pairs, key=key), strict=True):
        assert theirs.rows == ours.rows
        torch.testing.assert_close(theirs.source, ours.source, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(theirs.target, ours.target, atol=1e-4, rtol=1e-4)


# ---------------------------------------------------------------------------------------------------------------- T5


class Oracle:
    """p of each token of a T5's hypothesis, from scratch: the whole prefix anew, by the slow systems."""

    def __init__(self, case: Case, chosen: RetrievalSettings) -> None:
        self.case, self.chosen = case, chosen
        (part,) = case.store.parts
        # in memory: the oracle reads single numbers, for which a mapped file is slow
        self.arrays = {path.stem: np.array(part[path.stem]) for path in part.folder.glob("*.npy")}
        scale = case.store.manifest.scale
        full = SYSTEMS[chosen.system].complete(chosen, scale)
        self.settings = systems.Settings(
            k=full.k, c=full.c or 0, temperature=full.temperature or 0.0, lam=full.weight or 0.0,
            lam_max=full.weight or 0.0, tau=full.reach if full.adapt == "distance" else None,
        )  # fmt: skip

    @torch.no_grad()
    def mixed(self, source: list[int], before: list[int]) -> np.ndarray:
        """The distribution after some tokens, start included."""
        hf = self.case.hf
        seen: dict[str, torch.Tensor] = {}
        block = hf.decoder.block[-1].layer[-1].DenseReluDense
        hooks = [
            block.register_forward_pre_hook(lambda _, inputs: seen.update(ffn_input=inputs[0])),
            hf.lm_head.register_forward_pre_hook(lambda _, inputs: seen.update(output=inputs[0])),
        ]
        made = hf(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([before]), use_cache=False)
        for hook in hooks:
            hook.remove()
        assert torch.allclose(made.logits, seen["output"] @ hf.shared.weight.T, atol=1e-4)  # the scaling is in it
        state = seen[self.case.store.manifest.key][0, -1].numpy()
        sentence, wanted = (source, made.encoder_last_hidden_state[0].numpy()), self.settings
        if self.chosen.system == "knn":
            found = systems.knn(self.arrays, state, self.settings)
        elif self.chosen.system == "similar":
            limits = similar.Limits(
                self.chosen.segments, by_segments.BEST, by_segments.OFFERED, by_segments.COMMON, by_segments.WORK,
                by_segments.LIKENESS, by_segments.BY_STATE, (by_segments.TAKEN, by_segments.LEAST),
                by_segments.FARTHER * self.case.store.manifest.scale,
            )  # fmt: skip
            found = similar.similar(self.arrays, *sentence, state, wanted, limits)
            wanted = replace(wanted, tau=wanted.tau and by_segments.SHY * wanted.tau)  # the store is small
        else:
            home = prototypes if self.chosen.system == "proto" else systems
            system = getattr(home, self.chosen.system.replace("-", "_"))
            found = system(self.arrays, *sentence, state, self.settings)
        return systems.mixed(made.logits[0, -1].softmax(dim=-1).numpy(), found, wanted)


@pytest.mark.parametrize("family", ["t5", "t5-output"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_t5_generates_by_the_mixed_distribution(case_of: Callable[[str], Case], family: str, system: str) -> None:
    case, chosen = case_of(family), settings_of(system, adapt="distance", weight=0.8)
    oracle, texts = Oracle(case, chosen), TEXTS[:2]
    with Retrieval(case.wrapped, case.store, chosen) as retrieval:
        asked = {"logits_processor": [retrieval], "output_scores": True, "return_dict_in_generate": True}
        greedy, beam = (case.generate(texts, beams, max_length=10, **asked) for beams in (1, 5))
    assert not torch.equal(greedy.sequences, case.generate(texts, 1, max_length=10))
    for row, source in enumerate(case.wrapped.tokenizer.encode_source(texts)):
        tokens = [0, *case.tokens(greedy.sequences)[row]]
        for step in range(1, len(tokens)):
            p = oracle.mixed(source, tokens[:step])
            assert tokens[step] == p.argmax()
            np.testing.assert_allclose(greedy.scores[step - 1][row].softmax(dim=-1), p, atol=1e-4)
        tokens = [0, *case.tokens(beam.sequences)[row]]
        log_p = [np.log(oracle.mixed(source, tokens[:step])[tokens[step]]) for step in range(1, len(tokens))]
        assert float(beam.sequences_scores[row]) == pytest.approx(np.mean(log_p), abs=1e-3)


# -------------------------------------------------------------------------------------------------- other processors


@pytest.mark.parametrize("beams", [1, 5])
@pytest.mark.parametrize("family", ["marian", "fsmt", "t5"])
def test_a_weight_of_nothing_changes_no_bit(case_of: Callable[[str], Case], family: str, beams: int) -> None:
    case = case_of(family)
    asked = {"output_scores": True, "return_dict_in_generate": True}
    plain = case.generate(TEXTS, beams, **asked)
    for system in SYSTEMS:
        with Retrieval(case.wrapped, case.store, settings_of(system, weight=0.0)) as retrieval:
            found = case.generate(TEXTS, beams, logits_processor=[retrieval], **asked)
        assert torch.equal(found.sequences, plain.sequences)
        assert all(map(torch.equal, found.scores, plain.scores))


@pytest.mark.parametrize("beams", [1, 5])
@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_banned_is_never_generated(case_of: Callable[[str], Case], system: str, beams: int) -> None:
    case = case_of("marian")
    # most of what the store holds
    banned = {token for ids in case.wrapped.tokenizer.encode_target(ENGLISH) for token in ids}
    with Retrieval(case.wrapped, case.store, settings_of(system, weight=1.0)) as retrieval:
        free = case.tokens(case.generate(TEXTS, beams, logits_processor=[retrieval]))
        assert all(banned & set(tokens) for tokens in free)
        words = [[case.wrapped.special.pad], *([token] for token in sorted(banned))]
        tied = case.tokens(case.generate(TEXTS, beams, logits_processor=[retrieval], bad_words_ids=words))
        assert not any(banned & set(tokens) for tokens in tied)


def test_rows_are_the_samples_of_each_sentence(case_of: Callable[[str], Case]) -> None:
    case = case_of("marian")
    with Retrieval(case.wrapped, case.store, settings_of("fast")) as retrieval:
        greedy = case.generate(TEXTS, 1, logits_processor=[retrieval])
        sampled = case.generate(
            TEXTS, 1, logits_processor=[retrieval], do_sample=True, top_k=1, temperature=0.5, num_return_sequences=3
        )
    assert torch.equal(sampled, greedy.repeat_interleave(3, dim=0))


def test_other_changes_of_the_scores_are_kept(case_of: Callable[[str], Case]) -> None:
    """A bias that another processor added is there after the mixing too."""
    case = case_of("marian")
    asked = {"max_length": 3, "output_scores": True, "return_dict_in_generate": True}
    with Retrieval(case.wrapped, case.store, settings_of("knn")) as retrieval:
        mixed, biased = (
            case.generate(TEXTS, 1, logits_processor=[retrieval], sequence_bias=bias, **asked).scores[0]
            for bias in (None, {(9,): -2.5})
        )
    torch.testing.assert_close(biased[:, 9], mixed[:, 9] - 2.5)
    assert torch.equal(biased[:, 10:], mixed[:, 10:])


# -------------------------------------------------------------------------------------------------------------- hooks


def hooks_of(hf: Any) -> int:
    tables = ("_forward_hooks", "_forward_pre_hooks")
    return sum(len(getattr(module, table)) for module in hf.modules() for table in tables)


def test_no_hook_outlives_its_block(case_of: Callable[[str], Case]) -> None:
    case = case_of("marian")
    assert hooks_of(case.hf) == 0  # wrapping, building and earlier tests left none
    plain = case.generate(TEXTS, 5)
    retrieval = Retrieval(case.wrapped, case.store, settings_of("fast"))
    with retrieval:
        assert hooks_of(case.hf) > 0
        case.generate(TEXTS, 5, logits_processor=[retrieval])
    assert hooks_of(case.hf) == 0
    with pytest.raises(RuntimeError, match="inside"), retrieval:
        raise RuntimeError("inside")
    assert hooks_of(case.hf) == 0
    with pytest.raises(UsageError, match="inside the `with` block"):
        case.generate(TEXTS, 5, logits_processor=[retrieval])
    assert torch.equal(case.generate(TEXTS, 5), plain)


def test_calls_and_blocks_may_follow_each_other_and_nest(case_of: Callable[[str], Case]) -> None:
    case = case_of("m2m_100")
    fast = Retrieval(case.wrapped, case.store, settings_of("fast"))
    knn = Retrieval(case.wrapped, case.store, settings_of("knn"))

    def found(retrieval: Retrieval, texts: list[str], beams: int) -> list[list[int]]:
        return case.tokens(case.generate(texts, beams, logits_processor=[retrieval]))

    with fast:
        alone = [found(fast, texts, beams) for texts, beams in ((TEXTS, 5), (TEXTS[:1], 1), (TEXTS[1:], 2))]
    with knn, fast, fast:
        with fast:
            assert found(fast, TEXTS, 5) == alone[0]
        other = found(knn, TEXTS, 5)
        assert [found(fast, TEXTS[:1], 1), found(fast, TEXTS[1:], 2)] == alone[1:]
        assert found(knn, TEXTS, 5) == other
        assert other == [list(each.tokens) for each in engines(case, Tuned(settings_of("knn")), 5)]
    assert hooks_of(case.hf) == 0


def test_threads_may_generate_at_the_same_time(case_of: Callable[[str], Case]) -> None:
    case = case_of("marian")
    with Retrieval(case.wrapped, case.store, settings_of("fast")) as retrieval, ThreadPoolExecutor(3) as pool:

        def found(text: str) -> list[list[int]]:
            return case.tokens(case.generate([text], 5, logits_processor=[retrieval]))

        assert list(pool.map(found, TEXTS * 3)) == [found(text) for text in TEXTS] * 3


def test_a_source_that_was_encoded_elsewhere_is_refused(case_of: Callable[[str], Case]) -> None:
    case = case_of("t5")
    one, other = (case.inputs([text]) for text in ("der Hund schläft .", "die Katze sieht ."))
    before = case.hf.get_encoder()(**one)
    with Retrieval(case.wrapped, case.store, settings_of("fast")) as retrieval:
        asked: dict[str, Any] = {"logits_processor": [retrieval], "num_beams": 2, "max_length": 8}
        with pytest.raises(UsageError, match="no encoder pass"):
            case.hf.generate(encoder_outputs=before, attention_mask=one["attention_mask"], **asked)
        whole = case.hf.generate(**one, **asked)
        encoded = case.hf.get_encoder()(**one)
        parted = case.hf.generate(encoder_outputs=encoded, attention_mask=one["attention_mask"], **asked)
        assert torch.equal(whole, parted)
        case.hf.generate(**other, **asked)
        with pytest.raises(UsageError, match="no encoder pass"):
            case.hf.generate(encoder_outputs=encoded, attention_mask=one["attention_mask"], **asked)
        embedded = case.hf.shared(one["input_ids"])
        with pytest.raises(UsageError, match="pass input_ids"):
            case.hf.generate(inputs_embeds=embedded, attention_mask=one["attention_mask"], **asked)


def test_assisted_decoding_is_refused(case_of: Callable[[str], Case]) -> None:
    case = case_of("t5")
    retrieval = Retrieval(case.wrapped, case.store, settings_of("fast"))
    with retrieval, pytest.raises(UsageError, match="assisted decoding"):
        case.generate(TEXTS[:1], 1, logits_processor=[retrieval], prompt_lookup_num_tokens=2)


# ------------------------------------------------------------------------------------------------------------ wrapping


def test_threads_share_a_model(case_of: Callable[[str], Case], tmp_path: Path) -> None:
    case = case_of("fsmt")
    corpus = parallel_text(tmp_path / "train.tsv", 600)
    settings = BuildSettings(systems=("knn",), clean=None, batch_tokens=64)
    one, many = (
        Datastore.build(
            corpus, model=case.wrapped, langs="de-en", out=tmp_path / str(workers), settings=settings, workers=workers
        )
        for workers in (1, 4)
    )
    assert np.array_equal(one.parts[0]["target_keys"], many.parts[0]["target_keys"])
    assert hooks_of(case.hf) == 0


def test_a_store_knows_its_weights(case_of: Callable[[str], Case]) -> None:
    case = case_of("t5")
    changed = copy.deepcopy(case.hf)
    tokenizer = case.wrapped.tokenizer._hf
    assert wrap(changed, tokenizer, "de-en", prefix=TASK).fingerprint == case.wrapped.fingerprint
    Retrieval(wrap(changed, tokenizer, "de-en", prefix=TASK), case.store)
    with pytest.raises(StoreError, match="another tokenizer"):
        Retrieval(wrap(changed, tokenizer, "de-en"), case.store)
    with torch.no_grad():
        changed.decoder.block[0].layer[0].SelfAttention.q.weight *= 1.01
    with pytest.raises(StoreError, match="another model"):
        Retrieval(wrap(changed, tokenizer, "de-en", prefix=TASK), case.store)


class Softened(transformers.T5ForConditionalGeneration):  # type: ignore[misc]
    """Bounds its logits, as some models do."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        made = super().forward(*args, **kwargs)
        made.logits = torch.tanh(made.logits)
        return made


class Foresighted(transformers.MarianMTModel):  # type: ignore[misc]
    """Teacher-forced with its whole target in sight."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        size = kwargs["decoder_input_ids"].size(1)
        return super().forward(*args, **kwargs | {"decoder_attention_mask": torch.zeros(1, 1, size, size)})


def test_models_that_would_give_wrong_states_are_refused(case_of: Callable[[str], Case]) -> None:
    case = case_of("t5")
    t5, tokenizer = copy.deepcopy(case.hf), case.wrapped.tokenizer._hf
    t5.__class__ = Softened
    with pytest.raises(ModelError, match="changed after the output projection"):
        wrap(t5, tokenizer, "de-en")
    with pytest.raises(ModelError, match=r"call model.eval\(\)"):
        wrap(copy.deepcopy(case.hf).train(), tokenizer, "de-en")
    decoder = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=50))
    with pytest.raises(ModelError, match="'gpt2' models have no encoder"):
        wrap(decoder.eval(), tokenizer, "de-en")
    marian = case_of("marian")
    seer = copy.deepcopy(marian.hf)
    seer.__class__ = Foresighted
    with pytest.raises(ModelError, match="not causal"):
        wrap(seer, marian.wrapped.tokenizer._hf, "de-en")


# ------------------------------------------------------------------------------------------------ the embedded model

SUBJECTS = {
    "Der Mann": "The man", "Die Frau": "The woman", "Mein Bruder": "My brother", "Unsere Nachbarin": "Our neighbour",
    "Der alte Lehrer": "The old teacher", "Die Kommission": "The Commission",
}  # fmt: skip
VERBS = {
    "sieht": "beholds", "kennt": "is acquainted with", "verkauft": "is selling", "sucht heute": "today seeks",
    "braucht": "requires", "vergisst immer": "never recalls",
}  # fmt: skip
OBJECTS = {
    "das Haus.": "the building.", "den Bericht über Europa.": "the paper on Europe.", "ein neues Buch!": "a novel!",
    "die Zeitung von gestern.": "yesterday's journal.", "einen Hund und zwei Katzen.": "a hound and two kittens.",
    "die Antwort auf die Frage.": "the reply to the query.", "den Weg zum Bahnhof.": "the route to the station.",
}  # fmt: skip


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, list[str]]:
    """The embedded model with a store of 200 sentences in words that it would not choose, and 24 others."""
    folder = tmp_path_factory.mktemp("embedded")
    sentences = list(itertools.product(SUBJECTS.items(), VERBS.items(), OBJECTS.items()))
    random.Random(0).shuffle(sentences)
    pairs = [tuple(" ".join(words) for words in zip(*parts, strict=True)) for parts in sentences]
    with (folder / "train.tsv").open("w", encoding="utf-8") as file:
        file.writelines(f"{source}\t{target}\n" for source, target in pairs[:200])
    hf = transformers.MarianMTModel.from_pretrained(embedded_path(), dtype=torch.float32).eval()
    wrapped = wrap(hf, transformers.MarianTokenizer.from_pretrained(embedded_path()), "de-en")
    settings = BuildSettings(cluster_size=16)
    store = Datastore.build(folder / "train.tsv", model=wrapped, langs="de-en", out=folder / "store", settings=settings)
    return Case(hf, wrapped, load(), store), [source for source, _ in pairs[200:224]]


@pytest.mark.parametrize("key", ["ffn_input", "output"])
def test_the_embedded_model_gives_the_same_states(embedded: tuple[Case, list[str]], key: KeyKind) -> None:
    assert_same_states(embedded[0], key)


@pytest.mark.parametrize("beams", [1, 5])
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_embedded_model_gives_the_same_tokens(embedded: tuple[Case, list[str]], system: str, beams: int) -> None:
    case, texts = embedded
    assert case.ours is not None
    retriever = Retriever(case.store, case.ours.device, RetrievalSettings(system=system))
    with patch.object(Datastore, "check"):  # the same weights, in files of another fingerprint
        translator = Translator(case.ours, retriever=retriever)
    ours = translator.translate(texts, TranslateSettings(beam=beams, max_length=63, exact=False))
    with Retrieval(case.wrapped, case.store, RetrievalSettings(system=system)) as retrieval:
        search = {} if beams == 1 else {"length_penalty": retrieval.length_penalty}
        found = case.generate(texts, beams, max_length=64, logits_processor=[retrieval], **search)
    assert case.tokens(found) == [list(each.tokens) for each in ours]


def test_the_example_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    (tmp_path / "models").symlink_to(embedded_path().parent)
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    promised = example.rsplit("# ", 1)[1].strip()
    exec(compile(example, str(DOCS), "exec"), {})
    assert capsys.readouterr().out.strip() == promised


def test_settings_that_the_store_was_tuned_to_are_used_unless_others_are_given(
    model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    folder = model_folder("marian")
    wrapped = wrap(AutoModelForSeq2SeqLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder), "de-en")
    corpus = parallel_text(tmp_path / "corpus.tsv", 12)
    store = Datastore.build(corpus, out=tmp_path / "store", langs="de-en", model=wrapped)
    assert Retrieval(wrapped, store).retriever.settings.weight == SYSTEMS["similar"].defaults.weight
    scale = store.manifest.scale
    tuned = RetrievalSettings(system="fast", k=3, temperature=2.5, weight=0.25, adapt="constant")
    Tuned(tuned).save(store.path / "settings.json")
    assert Retrieval(wrapped, store).retriever.settings == SYSTEMS["fast"].complete(tuned, scale)
    given = RetrievalSettings(system="knn", k=5)
    assert Retrieval(wrapped, store, given).retriever.settings == SYSTEMS["knn"].complete(given, scale)
