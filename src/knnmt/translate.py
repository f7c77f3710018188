"""`Translator`: text in, translations out, in order, however they are sorted and batched on the way."""

import itertools
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from knnmt.align.bitext import Bitext
from knnmt.corpus.fuzzy import FUZZY, similarity
from knnmt.corpus.segment import Segment
from knnmt.corpus.split import split
from knnmt.datastore import open_stores
from knnmt.decode.batches import ON_GPU, batches
from knnmt.decode.beam import Hypothesis, search
from knnmt.decode.rehearsal import rehearse
from knnmt.decode.repetition import SPARE, longest_run
from knnmt.decode.settings import TranslateSettings as TranslateSettings  # callers find it here
from knnmt.errors import DataError, UsageError
from knnmt.evidence import TokenEvidence, explain
from knnmt.model.checkpoint import EMBEDDED, Model, load
from knnmt.model.represent import padded
from knnmt.ready import ready, searched, want
from knnmt.retrieval.session import Retriever
from knnmt.retrieval.tuned import Tuned, chosen_for
from knnmt.store.digests import one_line
from knnmt.store.memories import AnyStore, Paths
from knnmt.store.numbering import Match
from knnmt.store.store import Added
from knnmt.systems.settings import SILENT, RetrievalSettings
from knnmt.systems.table import SYSTEMS
from knnmt.trace import NO_TRACE, Trace

KEPT = 16  # bytes that retrieval needs for each sentence and segment of a store, while it selects
CACHED = 1.0  # seconds in which compiled loops are read from the cache on disk
WARM_TOKENS = 60  # of each sentence that prepares a GPU
FIRST_WINDOW = 64  # texts of a stream that are translated first, so that something comes out soon


@dataclass(frozen=True)
class Translation:
    """A translated text; alternatives are other translations of the same.

    `score` is its log-probability over length^penalty: with the usual penalty of 1, the mean of its tokens.
    `evidence` says where each token comes from, if that was asked for. `match` is the segment of the store that the
    text was found in word for word: its target is the translation then, and `score` is 0, that of a certain one;
    `memory` is the name of the store that it is from.
    """

    text: str
    score: float
    tokens: tuple[int, ...] = ()
    alternatives: tuple["Translation", ...] = ()
    evidence: tuple[TokenEvidence, ...] = ()
    match: Segment | None = None
    memory: str = ""

    def __repr__(self) -> str:
        return f"Translation({self.text!r}, score={self.score:.3f})"


class Translator:
    """Translates with a pretrained model and, where one is given, with a store of translations.

    >>> Translator().translate(["Guten Morgen!"])[0].text
    >>> Translator("mini-de-en", "store", system="fast").translate(["Klicken Sie auf Speichern."])[0].text

    Several stores are searched as one, and the last of them learns: `Translator(model, ["company", "project"])`, or
    `{"company": 1, "project": 2}` with their weights in p_kNN.
    `system` is `base` or one of those that retrieve; `retrieval` sets more than its name; by default both are what the
    store was tuned for, if it was. `left_out` are numbers of the store's segments that are not used, as
    `Overlaps.segments` gives them. A ready `retriever` takes the place of store, system, retrieval and left_out.
    `trace` observes the work (`knnmt.trace`).
    """

    def __init__(
        self,
        model: str | Path | Model = EMBEDDED,
        store: str | Path | Paths | AnyStore | None = None,
        *,
        system: str | None = None,
        retrieval: RetrievalSettings | Tuned | None = None,
        left_out: Collection[int] = (),
        retriever: Retriever | None = None,
        trace: Trace = NO_TRACE,
        device: str = "auto",
        precision: str = "auto",
        langs: str | None = None,
    ) -> None:
        if store is not None and not isinstance(store, AnyStore):
            store = open_stores(store)
        if retriever is not None:
            if store is not None or system is not None or retrieval is not None or left_out:
                raise UsageError("a retriever has its own store and settings: give either it or those")
            store, left_out = retriever.store, retriever.live.left_out
        if system not in (None, "auto", "base", *SYSTEMS):
            raise UsageError(f"there is no system {system!r}: use auto, base, {', '.join(SYSTEMS)}")
        if store is None and system not in (None, "base"):
            raise UsageError(f"the system {system} needs a store: make one with `knnmt build`")
        self.model = model if isinstance(model, Model) else load(model, device=device, precision=precision, langs=langs)
        self.store, self.left_out = store, frozenset(left_out)
        self.retriever, self.trace = retriever, trace
        rehearse(self.model.transformer, self.model.special)
        if store is not None:
            store.check(self.model)
        if store is not None and retriever is None and system != "base":
            chosen = chosen_for(store, system, retrieval)
            self.retriever = Retriever(
                store, self.model.device, chosen.settings, gate=chosen.gate, left_out=left_out
            )  # fmt: skip

    def using(self, system: str | None = None, *, weight: float | None = None) -> "Translator":
        """A translator with another system or weight λ that shares model, store and what was read of it."""
        if self.store is None and system not in (None, "base"):
            raise UsageError(f"the system {system} needs a store: make one with `knnmt build`")
        other = copy(self)
        if system == "base" or (system is None and self.retriever is None) or self.store is None:
            other.retriever = None
            return other
        # as they were given: another system has its own defaults
        chosen = self.retriever.given if self.retriever is not None else RetrievalSettings()
        chosen = chosen if system is None else chosen.of(system)
        chosen = chosen if weight is None else chosen.weighing(weight)
        live, gate = (self.retriever.live, self.retriever.gate) if self.retriever is not None else (None, None)
        other.retriever = Retriever(self.store, self.model.device, chosen, gate=gate, left_out=self.left_out, live=live)
        return other

    def add(self, segments: Sequence[Segment], *, bad: Callable[[DataError], None] | None = None) -> Added:
        """Teach segments: the next translation knows them, here and in whatever opens the store.

        They are on disk when this returns. A segment with an id takes the place of the one with that id; one without
        takes the place of what was taught for the same source text. Those that cannot be learnt are told to `bad`;
        without it, the first of them is raised and nothing is stored.
        """
        return self._memory().add(segments, self.model, bad=bad)

    def remove(self, ids: Sequence[str]) -> list[str]:
        """Remove segments from the store: the next translation knows nothing of them. Gives the ids that were there."""
        return self._memory().remove(ids)

    def prepare(self) -> None:
        """Load now what the first translation, and the first lesson, would have to wait for."""
        want()
        self.translate(["."])
        if self.model.device.type == "cuda":  # kernels of large batches are others
            self.translate([". " * WARM_TOKENS] * ON_GPU, TranslateSettings(max_length=4, exact=False))
        if self.store is not None and self.store.learns:
            self.store.aligner().align(Bitext.from_pairs([([0], [0])]))

    def refresh(self) -> bool:
        """Take up what other processes have taught the store, or removed; says whether there was anything."""
        return self.store is not None and self.store.refresh()

    def _memory(self) -> AnyStore:
        if self.store is None:
            raise UsageError("there is no store to learn in: make one with `knnmt build`")
        return self.store

    def translate(
        self,
        texts: Sequence[str],
        settings: TranslateSettings | None = None,
        *,
        between: Callable[[], None] | None = None,
    ) -> list[Translation]:
        """Translate texts, one translation each, in their order; an empty text stays empty.

        `between` is called before each step of the search: it may take its time, and what it raises ends the work.
        """
        if isinstance(texts, str):
            raise TypeError("translate takes a list of texts: write translate([text])")
        with self.trace.stage("text"):
            return list(self._window(list(texts), 0, settings or TranslateSettings(), between=between))

    def sizes(self, texts: Sequence[str]) -> list[int]:
        """The source tokens of each text."""
        return [len(ids) for ids in self.model.tokenizer.encode_source(texts)]

    def pieces(self, text: str) -> list[str]:
        """The text, cut where it is too long for the model: `join` makes one translation of those of the pieces."""
        text = one_line(text)
        if self._matches(text, TranslateSettings()):
            return [text]  # it is taken from the store as a whole
        return split(text, self.sizes, self.model.max_source)

    def stream(
        self,
        texts: Iterable[str],
        settings: TranslateSettings | None = None,
        *,
        window: int = 1024,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[Translation]:
        """Translate as texts come, `window` of them at a time: sorted and batched inside, given back in order.

        `progress` is called with the number of texts that were translated since it was called before.
        """
        settings = settings or TranslateSettings()
        first, size, iterator = 0, min(window, FIRST_WINDOW), iter(texts)
        while some := list(itertools.islice(iterator, size)):
            with self.trace.stage("text"):
                translated = list(self._window(some, first, settings, progress))
            yield from translated
            first, size = first + len(some), min(window, 4 * size)

    def _window(
        self,
        texts: list[str],
        first: int,
        settings: TranslateSettings,
        progress: Callable[[int], None] | None = None,
        between: Callable[[], None] | None = None,
    ) -> Iterator[Translation]:
        """Translate the texts that begin at number `first` of the input."""
        if self.retriever is not None:
            self.retriever.live.refresh()  # numbers of segments, as those left out, are of the store as it is now
        pieces: list[list[int]] = []
        owners: list[list[int]] = []  # the pieces of each text
        texts = [one_line(_checked(text, first + number)) for number, text in enumerate(texts, start=1)]
        matches = [self._matches(text, settings) for text in texts]
        for number, (text, ids) in enumerate(zip(texts, self.model.tokenizer.encode_source(texts), strict=True)):
            known = bool(matches[number]) and settings.n_best == 1  # else the model is asked for alternatives
            parts = [ids] if text and not known else []
            if len(ids) > self.model.max_source and parts:
                if settings.long == "refuse":
                    size = (
                        f"text {first + number + 1} has {len(ids)} tokens and the model takes {self.model.max_source}"
                    )
                    raise DataError(f"{size}: shorten it, or allow it to be split")
                parts = self.model.tokenizer.encode_source(split(text, self.sizes, self.model.max_source))
            owners.append(list(range(len(pieces), len(pieces) + len(parts))))
            pieces.extend(parts)
        found = self._search(pieces, settings, progress, between)
        if progress is not None:
            progress(owners.count([]))  # empty and known texts need no search
        translated = []
        for text, numbers, known_as in zip(texts, owners, matches, strict=True):
            decoded = []
            for number in numbers:
                decoded.append(self._translation(pieces[number], found[number], settings))
                if between is not None:
                    between()  # evidence takes as long as a step
            joined = join(decoded)
            translated.append(self._known(text, known_as, joined, settings) if known_as else joined)
        strange = [n for n, text in enumerate(texts) if not matches[n] and self._strange(text, translated[n], settings)]
        if strange:
            # without the store's say, but for what was taught
            alone, search_only = self.using(weight=SILENT), settings.model_copy(update={"exact": False})
            again = alone._window([texts[n] for n in strange], first, search_only, between=between)
            for number, other in zip(strange, again, strict=True):
                translated[number] = other
        yield from translated

    def _matches(self, text: str, settings: TranslateSettings) -> list[Match]:
        """The segments of the store with this very source, the one that counts first."""
        store = self._heard if settings.exact and text else None
        found = store.matches(text) if store is not None else []
        return [match for match in found if match.number not in self.left_out]

    @property
    def _heard(self) -> AnyStore | None:
        """The store, where it has a say: λ = 0 is base MT."""
        return self.store if self.retriever is not None and self.retriever.settings.weight != 0 else None

    def _known(self, text: str, matches: list[Match], decoded: Translation, settings: TranslateSettings) -> Translation:
        """A text as the store has it; alternatives are the store's other translations, then the model's."""
        by_text: dict[str, Translation] = {}
        for number, segment in matches:
            target = one_line(segment.target)
            ids = self.model.tokenizer.encode_target([target])[0]
            tokens = (*self.model.special.prefix, *ids, self.model.special.end)
            memory = self._memory().memory_of(number)
            by_text.setdefault(target, Translation(target, 0.0, tokens, match=segment, memory=memory))
        for other in (decoded, *decoded.alternatives) if decoded.text else ():
            by_text.setdefault(other.text, other)
        best, *others = list(by_text.values())[: settings.n_best]
        return replace(best, alternatives=tuple(others), evidence=self._evidence_of_match(text, best, settings))

    def _evidence_of_match(
        self, text: str, known: Translation, settings: TranslateSettings
    ) -> tuple[TokenEvidence, ...]:
        """What model and store say to each token of a known translation; nothing where it is too long for the model."""
        if not settings.evidence or self.retriever is None:
            return ()
        source, room = self.model.tokenizer.encode_source([text])[0], self.model.transformer.architecture.max_positions
        fits = len(source) <= self.model.max_source and len(known.tokens) <= room
        return explain(self.model, self.retriever, source, known.tokens) if fits else ()

    def _strange(self, text: str, found: Translation, settings: TranslateSettings) -> bool:
        """Whether a translation is that of another text of the store: fluent, and wrong."""
        store = self._heard if settings.exact else None
        found_in = store.with_target(found.text) if store is not None else []
        others = [match.segment.source for match in found_in if match.number not in self.left_out]
        return bool(others) and all(similarity(text, other) < FUZZY for other in others)

    @torch.inference_mode()
    def _search(
        self,
        pieces: list[list[int]],
        settings: TranslateSettings,
        progress: Callable[[int], None] | None,
        between: Callable[[], None] | None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each piece; a batch that a GPU has no memory for is searched in halves."""
        model = self.model
        ready(CACHED)
        penalty = model.length_penalty if settings.length_penalty is None else settings.length_penalty
        kept = KEPT * len(self.store) if self.retriever is not None and self.store is not None else 0
        found: list[list[Hypothesis]] = [[]] * len(pieces)
        ahead = deque(
            batches(
                [len(piece) for piece in pieces], settings.batch_size, model.device, model.transformer.architecture,
                settings.beam, kept,
            )
        )  # fmt: skip
        while ahead:
            rows, begun = ahead.popleft(), time.monotonic()
            try:
                hypotheses = self._batch([pieces[row] for row in rows], settings, penalty, between)
            except torch.OutOfMemoryError:
                if len(rows) == 1:
                    raise
                torch.cuda.empty_cache()
                half = len(rows) // 2
                ahead.extendleft((rows[half:], rows[:half]))
                continue
            if model.device.type == "cpu":
                searched(time.monotonic() - begun)
            for row, hypothesis in zip(rows, hypotheses, strict=True):
                found[row] = hypothesis
            if progress is not None:
                progress(len(rows))
        return found

    def _batch(
        self,
        pieces: list[list[int]],
        settings: TranslateSettings,
        penalty: float,
        between: Callable[[], None] | None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of pieces that are searched together."""
        model, trace = self.model, self.trace
        ids, mask = padded(pieces, model.special.pad, model.device, model.transformer.architecture.max_positions)
        # far above any real translation, so that only loops are cut; the search knows the model's own limit
        limits = [settings.max_length or 3 * len(piece) + 30 for piece in pieces]
        runs = [SPARE + longest_run(piece) for piece in pieces] if settings.stop_loops else None
        with trace.stage("encode"):
            encoded = model.transformer.encode(ids, mask)
        lookup = None
        if self.retriever is not None:
            with trace.stage("select"):
                lookup = self.retriever.look(ids, mask, encoded.states, trace=trace)
        with trace.stage("decode"):
            return search(
                model.transformer, encoded, model.special, limits, beams=settings.beam, n_best=settings.n_best,
                length_penalty=penalty, early_stopping=settings.beam == 1, lookup=lookup,
                longest_runs=runs, between=between, trace=trace,
            )  # fmt: skip

    def _translation(self, source: list[int], hypotheses: list[Hypothesis], settings: TranslateSettings) -> Translation:
        """What was found for a piece, with the evidence if that was asked for."""
        decode = self.model.tokenizer.decode
        best, *others = (Translation(decode(each.tokens), each.score, each.tokens) for each in hypotheses)
        evidence: tuple[TokenEvidence, ...] = ()
        if settings.evidence and self.retriever is not None:
            evidence = explain(self.model, self.retriever, source, best.tokens)
        return replace(best, alternatives=tuple(others), evidence=evidence)


def join(parts: Sequence[Translation]) -> Translation:
    """The translation of a text from those of its pieces (one piece, unless it was too long)."""
    if len(parts) == 1:
        return parts[0]
    ranked = []
    for chosen in zip(*((part, *part.alternatives) for part in parts), strict=False):  # as many as all have
        tokens = tuple(itertools.chain.from_iterable(each.tokens for each in chosen))
        score = sum(each.score * len(each.tokens) for each in chosen) / max(1, len(tokens))
        ranked.append(Translation(" ".join(each.text for each in chosen), score, tokens))
    best, *others = ranked or [Translation("", 0.0)]
    evidence = tuple(itertools.chain.from_iterable(part.evidence for part in parts))
    return replace(best, alternatives=tuple(others), evidence=evidence)


def _checked(text: object, number: int) -> str:
    """The text, if it is one: half of a surrogate pair is no character and cannot be encoded."""
    if not isinstance(text, str):
        raise UsageError(f"text {number} is {text!r:.60}, of type {type(text).__name__}: texts are strings (str)")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"text {number} holds half a character (a lone surrogate) at position {error.start}") from None
    return text
