"""Texts of several lines: each line is translated by itself, and its outer spaces stay."""

from collections.abc import Sequence

from knnmt.translate import Translation


class Lines:
    """The lines of some texts that have something to translate, and the way back."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [text.split("\n") for text in texts]
        self.lines = [stripped for lines in self._texts for line in lines if (stripped := line.strip())]

    def joined(self, translations: Sequence[Translation]) -> list[list[str]]:
        """The translations of each text, the best first, from those of `lines`.

        A line that has fewer translations than others gives its last one again.
        """
        rest = iter(translations)
        answers = []
        for lines in self._texts:
            ranked = [_around(line, next(rest)) if line.strip() else [line] for line in lines]
            count = max(map(len, ranked))
            answers.append(["\n".join(each[min(rank, len(each) - 1)] for each in ranked) for rank in range(count)])
        return answers


def _around(line: str, translation: Translation) -> list[str]:
    """The translations of a line between the spaces that stood around it."""
    start, end = len(line) - len(line.lstrip()), len(line.rstrip())
    return [line[:start] + each.text + line[end:] for each in (translation, *translation.alternatives)]
