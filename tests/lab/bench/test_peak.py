"""Peak memory is what was held at once, not what was held in all."""

import pytest
import torch

from knnmt.host import resident
from knnmt.lab.bench.peak import peak

CPU = torch.device("cpu")
MIB = 1 << 20

pytestmark = pytest.mark.skipif(resident() is None, reason="this kernel does not say what a process holds")


def test_peak_is_of_what_is_held_at_once() -> None:
    with peak(CPU) as once:
        for _ in range(4):
            torch.ones(64 * MIB // 4).add_(1)
    with peak(CPU) as together:
        kept = [torch.ones(64 * MIB // 4).add_(1) for _ in range(4)]
    assert once.held is not None
    assert together.held is not None
    assert 60 * MIB < once.held < 160 * MIB
    assert 250 * MIB < together.held < 300 * MIB
    assert once.device is None
    del kept


def test_what_was_there_before_does_not_count() -> None:
    before = torch.ones(64 * MIB // 4)
    with peak(CPU) as found:
        before.add_(1)
    assert found.held is not None
    assert found.held < 20 * MIB
