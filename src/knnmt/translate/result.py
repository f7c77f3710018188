"""The translation of a text, and how those of its pieces make one."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from knnmt.corpus.segment import Segment
from knnmt.evidence import TokenEvidence
from knnmt.text.inline import Code, Inline
from knnmt.text.terms import TermUse


@dataclass(frozen=True)
class Translation:
    """A translated text; alternatives are other translations of the same.

    `score` is its log-probability over length^penalty: with the usual penalty of 1, the mean of its tokens.
    `evidence` says where each token comes from, if that was asked for. `match` is the segment of the store that
    contains the text verbatim: its target is the translation then, and `score` is 0, that of a certain one; `memory` is
    the name of the store that it is from. `codes` are the inline codes, where the source had any. `problems` says what
    the checks found and could not mend: the translation is the source then, or the store's, unchanged. `terms` says
    what became of the glossary's terms in the text, where a glossary was given.
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
