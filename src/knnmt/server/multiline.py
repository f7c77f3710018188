"""Texts of several lines: each line is translated by itself, and keeps its leading and trailing spaces."""

from collections.abc import Sequence

from knnmt.translate import Translation


class MultilineTexts:
    """The non-empty lines of some texts, and the way back from their translations to the texts'."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = [text.split("\n") for text in texts]
        self.lines = [stripped for lines in self._texts for line in lines if (stripped := line.strip())]

    def joined(self, translations: Sequence[Translation]) -> list[list[str]]:
        """The translations of each text, best first, from those of `lines`.

        A line with fewer alternatives than the others repeats its last one.
        """
        rest = iter(translations)
        answers = []
        for lines in self._texts:
            ranked = [_padded(line, next(rest)) if line.strip() else [line] for line in lines]
            count = max(map(len, ranked))
            answers.append(["\n".join(each[min(rank, len(each) - 1)] for each in ranked) for rank in range(count)])
        return answers


def _padded(line: str, translation: Translation) -> list[str]:
    """The translations of a line, with the line's leading and trailing spaces."""
    start, end = len(line) - len(line.lstrip()), len(line.rstrip())
    return [line[:start] + each.text + line[end:] for each in (translation, *translation.alternatives)]
