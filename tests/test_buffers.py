"""Memory serves the next who needs some, and never two at once."""

from threading import Thread

import torch

from knnmt.buffers import Buffers

CPU = torch.device("cpu")


class Owner:
    """Who has memory, until it is collected."""


def test_memory_is_lent_again_when_its_owner_is_gone() -> None:
    buffers, owner, other = Buffers(CPU), Owner(), Owner()
    first, _ = buffers.lend(owner, 100)
    second, give_back = buffers.lend(other, 50)
    assert first.data_ptr() != second.data_ptr()
    del owner
    assert buffers.lend(other, 60)[0] is first
    give_back()
    assert buffers.lend(other, 10)[0] is second  # also before its owner is gone


def test_the_smallest_that_is_large_enough_is_lent() -> None:
    buffers, owners = Buffers(CPU, waiting=3), [Owner() for _ in range(4)]
    small, fitting, large, _ = (
        buffers.lend(owner, size)[0] for owner, size in zip(owners, (10, 60, 80, 5), strict=True)
    )
    owners.clear()
    owner = Owner()
    assert buffers.lend(owner, 50)[0] is fitting
    assert buffers.lend(owner, 50)[0] is large
    assert len(buffers.lend(owner, 11)[0]) == 11  # and what is too small is freed
    assert buffers.lend(owner, 10)[0] is not small


def test_few_wait_and_none_that_is_very_large() -> None:
    buffers, owner, others = Buffers(CPU, waiting=1, most=100), Owner(), [Owner() for _ in range(3)]
    small, large, _ = (buffers.lend(other, size)[0] for other, size in zip(others, (10, 100, 101), strict=True))
    others.clear()
    assert buffers.lend(owner, 1)[0] is large
    assert buffers.lend(owner, 1)[0] is not small


def test_memory_is_lent_inside_and_outside_of_inference_mode() -> None:
    buffers, value = Buffers(CPU), 0.0
    for inference in (True, False, True):
        with torch.inference_mode(inference):
            lent, _ = buffers.lend(Owner(), 40)
            value += 1.0
            assert (lent.fill_(value) == value).all()
            assert not lent.is_inference()


def test_memory_comes_back_also_while_some_is_being_lent() -> None:
    """The garbage collector may run at any line, and then an owner that was part of a cycle gives back its own."""
    buffers = Buffers(CPU)

    def collect_meanwhile() -> None:
        with buffers._lock:
            buffers._take_back(torch.empty(3))

    thread = Thread(target=collect_meanwhile, daemon=True)
    thread.start()
    thread.join(timeout=10)
    assert not thread.is_alive()
