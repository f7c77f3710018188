"""Lessons, looked up beside a system's own entries. They count whatever the settings say: whoever corrects a
translation wants to see the correction, also with a small λ, a gate, or a system that sees little of the store.

A lesson applies ("is heard") in sentences that have most of its words, where its state is much nearer than anything
that the system found. The nearer it is, the more it counts: p = λ_l·p_lessons + (1 − λ_l)·p, where p is the
distribution of model and store without lessons.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.search.nearest import BySentence, runs
from knnmt.search.rows import FAR
from knnmt.search.search import Search
from knnmt.store.lessons import LessonPart
from knnmt.systems.chosen import Nearest
from knnmt.systems.fast import near_entries
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Found, Source
from knnmt.systems.view import View

K, C = 16, 16  # lessons are searched as Fast does: so many entries, of so many tokens for each source token
WEIGHT = 0.99  # λ_l of a lesson whose state is the same
# fractions of the median distance between random keys
REACH = 1 / 8  # the distance at which λ_l is 0
TEMPERATURE = 1 / 80  # T among lessons: of two that are near, the nearer one speaks
SAME = 1 / 400  # states that are no farther apart are the same but for rounding
MUCH_NEARER = 0.5  # times the distance of the nearest entry of the store
AGREED = 0.6  # of a sentence's source tokens, its end included: the share whose types the lesson has too


class Heard(NamedTuple):
    """Entries of lessons: what was found, at distance inf where it is not heard; weight: λ_l (B, K)."""

    found: Found
    weight: Tensor
    temperature: float

    def shares(self) -> Tensor:
        """The share of p_lessons that each entry has. (B, K, l)."""
        return torch.nan_to_num(self.found.scores(self.temperature).softmax(dim=-1))

    def distribution(self, search: Search) -> tuple[Tensor, Tensor]:
        """p_lessons by token: tokens and log p, (B, K, l) each."""
        return search.merge(self.found.tokens, self.found.scores(self.temperature))


class LessonLookup(BySentence):
    """The lessons that a batch of sentences may hear. taught: a view of a `LessonPart`; entries: (B, N) of it, -1 for
    none."""

    by_sentence = ("lookup",)

    def __init__(self, taught: View, entries: Tensor) -> None:
        (lessons,) = taught.parts
        assert isinstance(lessons, LessonPart)
        self.scale = taught.scale
        # the store's number of each entry of a lesson (T,)
        self.entries = taught.kept("entries", lambda: torch.from_numpy(lessons.entries).to(taught.device))
        settings = RetrievalSettings(k=K).model_copy(update={"temperature": TEMPERATURE * self.scale})
        self.lookup = Nearest(taught, entries, settings)

    def hear(self, states: Tensor, nearest: Tensor) -> Heard:
        """What states (B, K, d) hear beside the nearest that was found in the store, (B, K)."""
        found = self.lookup.find(states)
        near = MUCH_NEARER * nearest + SAME * self.scale
        heard = (found.distances <= near[:, :, None]) & (found.entries >= 0)
        distances = found.distances.masked_fill(~heard, FAR)
        entries = torch.where(heard, self.entries[found.entries], -1)
        closest = distances.amin(dim=2)
        weight = closest.mul(-WEIGHT / (REACH * self.scale)).add_(WEIGHT).clamp_(min=0.0)
        found = found._replace(entries=entries, distances=distances, nearest=closest)
        return Heard(found, weight, TEMPERATURE * self.scale)


def lessons_for(taught: View, source: Source) -> LessonLookup | None:
    """What sentences may hear of a `LessonPart`: None where that is nothing, so that no step looks for it."""
    (lessons,) = taught.parts
    assert isinstance(lessons, LessonPart)
    entries = near_entries(taught, source, C)
    lesson = taught.blocks("entry_lessons")[0][entries.clamp_min(0)]
    other = _agreement(taught, len(lessons.lessons), source).gather(1, lesson) < AGREED
    entries = entries.masked_fill(other, -1)
    if entries.device.type == "cpu" and not bool((entries >= 0).any()):  # elsewhere to ask costs more
        return None
    return LessonLookup(taught, entries)


def _agreement(taught: View, count: int, source: Source) -> Tensor:
    """The share of each sentence's tokens that are of types which a lesson has. (B, count), for as many lessons."""
    offsets, lessons = (taught.blocks(name)[0] for name in ("kind_offsets", "kind_lessons"))
    sentence, position = source.mask.nonzero(as_tuple=True)
    types = source.ids[sentence, position]
    sizes = offsets[types + 1] - offsets[types]
    found = torch.zeros((len(source.ids), count), device=types.device)
    place = sentence.repeat_interleave(sizes) * found.size(1) + lessons[runs(offsets[types], sizes)]
    found.view(-1).index_add_(0, place, torch.ones(len(place), device=types.device))
    return found / source.mask.sum(dim=1, keepdim=True)
