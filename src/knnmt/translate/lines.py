"""Translations of lines: verbatim from the store, else by the search; searched again without the store where that is
a false match."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from knnmt.corpus.fuzzy import FUZZY, similarity
from knnmt.corpus.split import split
from knnmt.decode.beam import Hypothesis
from knnmt.decode.settings import TranslateSettings
from knnmt.evidence import TokenEvidence, by_glossary, explain
from knnmt.model.checkpoint import Model
from knnmt.retrieval.session import Retriever
from knnmt.store.digests import one_line
from knnmt.store.memories import AnyStore
from knnmt.store.numbering import Match
from knnmt.systems.settings import SILENT, RetrievalSettings
from knnmt.text.glossary import Glossary
from knnmt.trace import Trace
from knnmt.translate.result import Translation, concatenated
from knnmt.translate.search import BatchSearch
from knnmt.translate.terms import TermSearch

CHARACTERS = 4  # of a token, roughly
LIKE_SEGMENTS = 3  # times as long as a store's mean segment a text may be, to be like one


@dataclass(frozen=True)
class Lines:
    """What translates lines as they are: a model, a retriever if there is one, and settings."""

    model: Model
    retriever: Retriever | None
    left_out: frozenset[int]
    trace: Trace
    settings: TranslateSettings
    between: Callable[[], None] | None = None
    glossary: Glossary | None = None

    def translate(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> list[Translation]:
        """One translation for each line; an empty line stays empty."""
        pieces: list[list[int]] = []
        spoken: list[str] = []  # the text of each piece
        owners: list[list[int]] = []  # the pieces of each text
        texts = [one_line(text) for text in texts]
        matches = [self.matches(text) for text in texts]
        for number, (text, ids) in enumerate(zip(texts, self.model.tokenizer.encode_source(texts), strict=True)):
            known = bool(matches[number]) and self.settings.n_best == 1  # else the model is asked for alternatives
            parts, some = ([text], [ids]) if text and not known else ([], [])
            if len(ids) > self.model.max_source and parts:
                parts = split(text, self.sizes, self.model.max_source)
                some = self.model.tokenizer.encode_source(parts)
            owners.append(list(range(len(pieces), len(pieces) + len(parts))))
            spoken += parts
            pieces += some
        search = BatchSearch(self.model, self.retriever, self.settings, self.trace, self.between)
        decided: set[int] = set()
        if self.glossary is None:
            found = search.run(pieces, progress)
        else:
            found, decided = TermSearch(search, self.glossary).run(spoken, pieces, progress)
        if progress is not None:
            progress(owners.count([]))  # empty and known texts need no search
        translated = []
        for text, numbers, known_as in zip(texts, owners, matches, strict=True):
            decoded = []
            for number in numbers:
                ruled = spoken[number] if number in decided else None
                decoded.append(self._translation(pieces[number], found[number], ruled))
                if self.between is not None:
                    self.between()  # evidence takes as long as a step
            joined = concatenated(decoded, " ")
            translated.append(self._known(text, known_as, joined) if known_as else joined)
        self._try_again(texts, [n for n in range(len(texts)) if not matches[n]], translated)
        return translated

    def sizes(self, texts: Sequence[str]) -> list[int]:
        """The source tokens of each text."""
        return [len(ids) for ids in self.model.tokenizer.encode_source(texts)]

    def matches(self, text: str) -> list[Match]:
        """The segments of the store with this very source, the one that counts first."""
        store = self._heard if text else None
        found = store.matches(text) if store is not None else []
        return [match for match in found if match.number not in self.left_out]

    @property
    def retrieves(self) -> bool:
        """Whether a store has a say."""
        return self.retriever is not None and self.retriever.settings.weight != 0

    @property
    def whole(self) -> int:
        """The characters up to which a text is like the store's segments; 0 without a store."""
        sizes = self.retriever.store.sizes if self.retriever is not None and self.retrieves else {}
        return round(LIKE_SEGMENTS * CHARACTERS * sizes.get("entries", 0) / max(1, sizes.get("segments", 0)))

    @property
    def _heard(self) -> AnyStore | None:
        """The store, where it has a say in whole texts: λ = 0 is base MT."""
        return self.retriever.store if self.retriever is not None and self.retrieves and self.settings.exact else None

    def _known(self, text: str, matches: list[Match], decoded: Translation) -> Translation:
        """A text as the store has it; alternatives are the store's other translations, then the model's."""
        assert self.retriever is not None
        by_text: dict[str, Translation] = {}
        for number, segment in matches:
            target = one_line(segment.target)
            ids = self.model.tokenizer.encode_target([target])[0]
            tokens = (*self.model.special.prefix, *ids, self.model.special.end)
            memory = self.retriever.store.memory_of(number)
            by_text.setdefault(target, Translation(target, 0.0, tokens, match=segment, memory=memory))
        for other in (decoded, *decoded.alternatives) if decoded.text else ():
            by_text.setdefault(other.text, other)
        best, *others = list(by_text.values())[: self.settings.n_best]
        return replace(best, alternatives=tuple(others), evidence=self._evidence_of_match(text, best))

    def _evidence_of_match(self, text: str, known: Translation) -> tuple[TokenEvidence, ...]:
        """What model and store say to each token of a known translation; nothing where it is too long for the model."""
        if not self.settings.evidence or self.retriever is None:
            return ()
        source, room = self.model.tokenizer.encode_source([text])[0], self.model.transformer.architecture.max_positions
        fits = len(source) <= self.model.max_source and len(known.tokens) <= room
        return explain(self.model, self.retriever, source, known.tokens) if fits else ()

    def _try_again(self, texts: Sequence[str], unknown: Sequence[int], translated: list[Translation]) -> None:
        """Translate texts that came out as the target of another text again, without the store's say but for what was
        taught."""
        astray = [number for number in unknown if self._astray(texts[number], translated[number])]
        if not astray or self.retriever is None:
            return
        retriever = variant(self.retriever, self.model, self.retriever.given.weighing(SILENT))
        alone = replace(self, retriever=retriever, settings=self.settings.model_copy(update={"exact": False}))
        for number, other in zip(astray, alone.translate([texts[number] for number in astray]), strict=True):
            translated[number] = other

    def _astray(self, text: str, found: Translation) -> bool:
        """Whether a translation is that of another text of the store: fluent, and wrong."""
        found_in = self._heard.with_target(found.text) if self._heard is not None else []
        others = [match.segment.source for match in found_in if match.number not in self.left_out]
        return bool(others) and all(similarity(text, other) < FUZZY for other in others)

    def _translation(self, source: list[int], hypotheses: list[Hypothesis], ruled: str | None) -> Translation:
        """What was found for a piece, with the evidence if that was asked for; `ruled`: its text, if terms decided."""
        decode = self.model.tokenizer.decode
        best, *others = (Translation(decode(each.tokens), each.score, each.tokens) for each in hypotheses)
        evidence: tuple[TokenEvidence, ...] = ()
        if self.settings.evidence and self.retriever is not None:
            evidence = explain(self.model, self.retriever, source, best.tokens)
            if ruled is not None and self.glossary is not None:
                written = "".join(each.token for each in evidence)
                evidence = by_glossary(evidence, self.glossary.places(self.glossary.found(ruled), written))
        return replace(best, alternatives=tuple(others), evidence=evidence)


def variant(retriever: Retriever, model: Model, settings: RetrievalSettings) -> Retriever:
    """A retriever with other settings that shares the store and what was read of it."""
    live = retriever.live
    return Retriever(retriever.store, model.device, settings, gate=retriever.gate, left_out=live.left_out, live=live)
