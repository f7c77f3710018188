"""What the allocators keep of freed memory, and how to have it returned to the system."""

import torch

from knnmt.host import return_freed, return_large_blocks

LARGE = 8 << 20  # bytes: smaller blocks are asked for too often to get them from the system each time


def hold_little(large: int = LARGE) -> None:
    """From now on, return blocks of so many bytes to the system when they are freed: glibc would keep ever larger ones,
    in holes that nothing fits into. Up to 32 MiB."""
    return_large_blocks(large)


def trim() -> None:
    """Return to the system what the allocators keep of freed memory."""
    return_freed()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
