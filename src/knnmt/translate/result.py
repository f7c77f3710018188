"""The translation of a text, and how to join those of its pieces."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from knnmt.corpus.segment import Segment
from knnmt.evidence import TokenEvidence
from knnmt.text.inline import Code, Inline
from knnmt.text.terms import TermUse


@dataclass(frozen=True)
class Translation:
    """A translated text.

    score: the log-probability over length^penalty: with the usual penalty of 1, the mean of the tokens
    alternatives: other translations of the same text, best first
    evidence: where each token comes from (`TranslateSettings(evidence=True)`)
    match: the segment of the store that contains the text verbatim; its target is the translation, and `score` is 0
    memory: the name of the store that the match is from
    codes: the inline codes, if the source had any
    problems: what the checks found and could not fix; the translation is then the source, or the store's, unchanged
    terms: what became of each glossary term of the text
    """

    text: str
    score: float
    tokens: tuple[int, ...] = ()
    alternatives: tuple["Translation", ...] = ()
    evidence: tuple[TokenEvidence, ...] = ()
    match: Segment | None = None
    memory: str = ""
    codes: tuple[Code, ...] = ()
    problems: tuple[str, ...] = ()
    terms: tuple[TermUse, ...] = ()

    def __repr__(self) -> str:
        return f"Translation({self.text!r}, score={self.score:.3f})"

    @property
    def unused(self) -> tuple[str, ...]:
        """The terms that it does not use, and why."""
        return tuple(
            f"«{term.target}» for «{term.source}»: {term.reason}" for term in self.terms if not term.used or term.reason
        )

    @property
    def target(self) -> Inline:
        """The translation with its inline codes."""
        return Inline(self.text, self.codes)


InlineTranslation = Translation  # of a text with inline codes


def joined(parts: Sequence[Translation], target: Inline, problems: tuple[str, ...] = ()) -> Translation:
    """The translation of a text, which reads `target`, from the translations of its parts: score, tokens, evidence.

    It is a match if every part is one, and then the first one's.
    """
    if len(parts) == 1:
        return replace(parts[0], text=target.text, codes=target.codes, problems=problems, alternatives=())
    tokens = tuple(itertools.chain.from_iterable(part.tokens for part in parts))
    score = sum(part.score * len(part.tokens) for part in parts) / max(1, len(tokens))
    evidence = tuple(itertools.chain.from_iterable(part.evidence for part in parts))
    return Translation(target.text, score, tokens, (), evidence, codes=target.codes, problems=problems)


def concatenated(parts: Sequence[Translation], between: str = "") -> Translation:
    """The translation of a text from those of its pieces, one after the other."""
    if len(parts) == 1:
        return parts[0]
    ranked = []
    for chosen in zip(*((part, *part.alternatives) for part in parts), strict=False):  # as many as all have
        problems = tuple(itertools.chain.from_iterable(each.problems for each in chosen))
        ranked.append(joined(chosen, Inline.plain(between.join(each.text for each in chosen)), problems))
    best, *others = ranked or [Translation("", 0.0)]
    return replace(best, alternatives=tuple(replace(other, evidence=()) for other in others))
