"""`Translator`: texts in, translations out, in the order of the texts; they are sorted and batched on the way."""

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import copy
from pathlib import Path

from knnmt.align.bitext import Bitext
from knnmt.corpus.segment import Segment
from knnmt.datastore import open_stores
from knnmt.decode.batches import ON_GPU
from knnmt.decode.rehearsal import rehearse
from knnmt.decode.settings import TranslateSettings
from knnmt.errors import DataError, UsageError
from knnmt.languages import Languages as PairOfLanguages
from knnmt.languages import standard_tag
from knnmt.model.checkpoint import Model, load
from knnmt.model.embedded import DEFAULT
from knnmt.ready import want
from knnmt.retrieval.session import Retriever
from knnmt.retrieval.tuned import Tuned, chosen_for
from knnmt.store.digests import one_line
from knnmt.store.memories import AnyStore, Paths
from knnmt.store.store import Added
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS
from knnmt.text.carry import Languages
from knnmt.text.glossary import Glossary
from knnmt.text.inline import Inline
from knnmt.text.words import Link, Pair
from knnmt.trace import NO_TRACE, Trace
from knnmt.translate.lines import Lines, variant
from knnmt.translate.pieces import pieces_of
from knnmt.translate.pipeline import Pipeline
from knnmt.translate.result import InlineTranslation, Translation
from knnmt.translate.terms import reported
from knnmt.translate.word_alignment import WordAligner

LINES = TranslateSettings(spans=False, sentences=False, exact=False)  # as they are
WARM_TOKENS = 60  # of each sentence that prepares a GPU
FIRST_WINDOW = 64  # texts of a stream that are translated first, so that something comes out soon


class Translator:
    """Translates with a pretrained model and, if one is given, a store of translations.

    >>> Translator().translate(["Guten Morgen!"])[0].text
    >>> Translator(store="store", system="fast").translate(["Klicken Sie auf Speichern."])[0].text
    >>> Translator(langs="en-de").translate(["Good morning!"])[0].text

    model: `mini` (embedded), a folder, a hub id, or a loaded model
    store: a folder or an open store. Several are searched as one, and the last of them learns:
    `Translator(model, ["company", "project"])`, or `{"company": 1, "project": 2}` with their weights in p_kNN
    system, retrieval: the retrieval system (or `base`) and its settings; by default those that the store was tuned for
    left_out: numbers of the store's segments to ignore, as `Overlaps.segments` has them
    retriever: replaces store, system, retrieval and left_out
    trace: observes the work (`knnmt.trace`)
    device, precision, langs, shortlist: how to load a model by name (`knnmt.model.checkpoint.load`)
    """

    def __init__(
        self,
        model: str | Path | Model = DEFAULT,
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
        shortlist: str | Path | None = None,
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
        if not isinstance(model, Model):
            if langs is None and store is not None and str(model) == DEFAULT:
                langs = store.manifest.languages
            model = load(model, device=device, precision=precision, langs=langs, shortlist=shortlist)
        self.model = model
        self.store, self.left_out = store, frozenset(left_out)
        self.retriever, self.trace = retriever, trace
        rehearse(self.model.transformer, self.model.special)
        if store is not None:
            store.check(self.model)
        if store is not None and retriever is None and system != "base":
            chosen = chosen_for(store, system, retrieval)
            self.retriever = Retriever(store, self.model.device, chosen.settings, gate=chosen.gate, left_out=left_out)

    def using(self, system: str | None = None, *, weight: float | None = None) -> "Translator":
        """A translator with another system or weight λ that shares the model and the open store."""
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
        if self.retriever is not None:
            other.retriever = variant(self.retriever, self.model, chosen)
        else:
            other.retriever = Retriever(self.store, self.model.device, chosen, left_out=self.left_out)
        return other

    def add(self, segments: Sequence[Segment], *, bad: Callable[[DataError], None] | None = None) -> Added:
        """Teach segments: the next translation uses them, in this process and in any that opens the store.

        They are on disk when this returns. A segment with an id replaces the one with the same id; a segment without
        one replaces what was taught for the same source text. `bad` is called with an error for each segment that
        cannot be learnt; without it, the first such error is raised and nothing is stored.
        """
        return self._memory().add(segments, self.model, bad=bad)

    def remove(self, ids: Sequence[str]) -> list[str]:
        """Remove segments from the store: the next translation ignores them. Returns the ids that were found."""
        return self._memory().remove(ids)

    def prepare(self) -> None:
        """Load now what the first translation and the first lesson would otherwise wait for."""
        want()
        self.translate(["."], LINES)
        if self.model.device.type == "cuda":  # kernels of large batches are others
            self.translate([". " * WARM_TOKENS] * ON_GPU, LINES.model_copy(update={"max_length": 4}))
        if self.store is not None and self.store.learns:
            self.store.aligner().align(Bitext.from_pairs([([0], [0])]))

    def refresh(self) -> bool:
        """Load what other processes have taught the store or removed from it. Returns whether anything changed."""
        return self.store is not None and self.store.refresh()

    def _memory(self) -> AnyStore:
        if self.store is None:
            raise UsageError("there is no store to teach: make one with `knnmt build`")
        return self.store

    def translate(
        self,
        texts: Sequence[str],
        settings: TranslateSettings | None = None,
        *,
        glossary: Glossary | None = None,
        between: Callable[[], None] | None = None,
    ) -> list[Translation]:
        """Translate texts: one translation each, in the same order; an empty text stays empty.

        White space around and between lines and sentences is kept, and protected spans come out as they went in. Terms
        of the glossary are used where they fit; `Translation.terms` reports on each.
        `between` is called before each step of the search; an exception it raises cancels the translation.
        """
        if isinstance(texts, str):
            raise TypeError("translate takes a list of texts: write translate([text])")
        return self.translate_inline(
            [Inline.plain(text) for text in texts], settings, glossary=glossary, between=between
        )

    def translate_inline(
        self,
        units: Sequence[Inline],
        settings: TranslateSettings | None = None,
        *,
        glossary: Glossary | None = None,
        between: Callable[[], None] | None = None,
    ) -> list[InlineTranslation]:
        """Translate texts with inline codes: `target` of each translation has the same codes, pairs nested properly."""
        with self.trace.stage("text"):
            return self._window(units, 0, settings or TranslateSettings(), glossary, between=between)

    def sizes(self, texts: Sequence[str]) -> list[int]:
        """The source tokens of each text."""
        return [len(ids) for ids in self.model.tokenizer.encode_source(texts)]

    def pieces(self, text: str) -> list[str]:
        """Split a text that is too long for the model. The translations of the pieces, concatenated, are that of the
        text."""
        if self._lines(TranslateSettings()).matches(one_line(text)):
            return [text]  # it is taken from the store as a whole
        return pieces_of(text, self.sizes, self.model.max_source)

    def stream(
        self,
        texts: Iterable[str],
        settings: TranslateSettings | None = None,
        *,
        glossary: Glossary | None = None,
        window: int = 1024,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[Translation]:
        """Translate a stream of texts, `window` at a time: sorted and batched inside, returned in order.

        `progress` is called with the number of texts translated since its last call.
        """
        settings = settings or TranslateSettings()
        first, size, iterator = 0, min(window, FIRST_WINDOW), iter(texts)
        while some := list(itertools.islice(iterator, size)):
            with self.trace.stage("text"):
                translated = self._window([Inline.plain(text) for text in some], first, settings, glossary, progress)
            yield from translated
            first, size = first + len(some), min(window, 4 * size)

    def _window(
        self,
        units: Sequence[Inline],
        first: int,
        settings: TranslateSettings,
        glossary: Glossary | None,
        progress: Callable[[int], None] | None = None,
        between: Callable[[], None] | None = None,
    ) -> list[Translation]:
        """Translate the texts that begin at number `first` of the input."""
        if self.retriever is not None:
            self.retriever.live.refresh()  # numbers of segments, as those left out, are of the store as it is now
        for number, unit in enumerate(units, start=first + 1):
            check_text(unit.text, number)
        if glossary is not None and self.languages.source and self.languages.target:
            glossary = glossary.between(PairOfLanguages(self.languages.source, self.languages.target))
        lines = self._lines(settings, between, glossary)
        if settings.long == "refuse":
            self._refuse_long(units, first)
        found = Pipeline(lines, self.align, self.languages).translate(units, progress)
        if glossary is None:
            return found
        return [reported(glossary, unit.text, each) for unit, each in zip(units, found, strict=True)]

    def align(self, pairs: Iterable[Pair]) -> dict[Pair, list[Link]]:
        """The links between the words of texts and their translations, by the model's attention."""
        return WordAligner(self.model).align(pairs)

    @property
    def languages(self) -> Languages:
        """The languages of texts and translations: the store's, else the model's; None where they are unknown."""
        tokenizer = self.model.tokenizer
        if self.store is not None:
            pair = PairOfLanguages.parse(self.store.manifest.languages)
            return Languages(_short(pair.source), _short(pair.target))
        return Languages(_short(tokenizer.source), _short(tokenizer.target))

    def _refuse_long(self, units: Sequence[Inline], first: int) -> None:
        room = self.model.max_source
        for number, size in enumerate(self.sizes([one_line(unit.text) for unit in units]), start=first + 1):
            if size > room:
                wrong = f"text {number} has {size} tokens and the model takes {room}"
                raise DataError(f"{wrong}: shorten it, or allow it to be split")

    def _lines(
        self,
        settings: TranslateSettings,
        between: Callable[[], None] | None = None,
        glossary: Glossary | None = None,
    ) -> Lines:
        return Lines(self.model, self.retriever, self.left_out, self.trace, settings, between, glossary)


def _short(tag: str | None) -> str | None:
    """A language without its region: `de` for `de-AT`, `de_DE` and `deu_Latn`."""
    return standard_tag(tag).split("-")[0] if tag else None


def check_text(text: object, number: int) -> None:
    """Refuse what is not a string, and lone surrogates, which cannot be encoded."""
    if not isinstance(text, str):
        raise UsageError(f"text {number} is {text!r:.60}, of type {type(text).__name__}: texts are strings (str)")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"text {number} has a lone surrogate at position {error.start}: remove it") from None
