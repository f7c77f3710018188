"""Training of a gate: the one that makes references likeliest."""

from dataclasses import dataclass

import torch
from torch import Tensor

from knnmt.retrieval.gate import FEATURES, SHAPES, Gate, Purpose

STEPS, EVERY, PATIENCE, RATE, DECAY = 600, 10, 10, 0.02, 0.01
HELD_OUT = 5  # one segment of so many is not trained with, and says when to stop
FLOOR = 1e-9  # of a probability, before its logarithm


@dataclass(frozen=True)
class Lesson:
    """Reference tokens that a gate is trained with, P of them, each with the number of its segment.

    seen: (P, F); p_knn, p_mt: (P,) of the token; asked: (P,) bool, whether the gate gives its λ, which else is `fixed`
    """

    seen: Tensor
    p_knn: Tensor
    p_mt: Tensor
    asked: Tensor
    fixed: Tensor
    segments: Tensor

    def log_p(self, weight: Tensor) -> Tensor:
        """log p of each token, given λ where the gate is asked. (P,)."""
        weight = torch.where(self.asked, weight, self.fixed)
        return (weight * self.p_knn + (1.0 - weight) * self.p_mt).clamp_min(FLOOR).log()

    def of(self, rows: Tensor) -> "Lesson":
        """Only these of the tokens."""
        columns = self.seen, self.p_knn, self.p_mt, self.asked, self.fixed, self.segments
        return Lesson(*(column[rows] for column in columns))


def train(lesson: Lesson, purpose: Purpose, seed: int = 1) -> Gate | None:
    """The gate that makes references likeliest; None where there are too few that it would be asked about.

    A fifth of the segments is not learnt from, and says when to stop: what is learnt by heart is of no use.
    """
    with torch.inference_mode(False), torch.enable_grad():
        apart = lesson.segments % HELD_OUT == HELD_OUT - 1
        shown, kept = (lesson.of(lesson.asked & some) for some in (~apart, apart))
        if not len(shown.seen) or not len(kept.seen):
            return None
        generator = torch.Generator().manual_seed(seed)
        parameters = {
            "mean": shown.seen.mean(dim=0),
            "spread": shown.seen.std(dim=0, correction=0).clamp_min(1e-3),
            "inner": torch.randn(SHAPES["inner"], generator=generator) / len(FEATURES) ** 0.5,
            "inner_bias": torch.zeros(SHAPES["inner_bias"]),
            "outer": torch.zeros(SHAPES["outer"]),
            "outer_bias": torch.zeros(SHAPES["outer_bias"]),
        }
        gate = Gate(purpose, parameters)
        learnt = [parameters[name].requires_grad_() for name in ("inner", "inner_bias", "outer", "outer_bias")]
        optimizer = torch.optim.AdamW(learnt, lr=RATE, weight_decay=DECAY)
        best, worse, chosen = -torch.inf, 0, _copied(gate)
        for step in range(STEPS):
            if step % EVERY == 0:
                with torch.no_grad():
                    value = float(kept.log_p(gate(kept.seen)).mean())
                best, worse, chosen = (value, 0, _copied(gate)) if value > best else (best, worse + 1, chosen)
                if worse == PATIENCE:
                    break
            loss = -shown.log_p(gate(shown.seen)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return chosen


def _copied(gate: Gate) -> Gate:
    return Gate(gate.purpose, {name: value.detach().clone() for name, value in gate.parameters.items()})
