"""Loss among small gradients only, or among large ones only, made in the application.

A job can protect large gradients (``loss.protected_share``) but not small ones, so for a fair
comparison both are lost here, before a lossless all-reduce: blocks of a packet's length are ordered
by their mean magnitude, and in the chosen half each block is zeroed at random.
"""

import torch
import torch.distributed as dist

BLOCK = 344
"""Values of four bytes in a packet of 1,500 bytes."""

Reduced = torch.futures.Future[torch.Tensor]


class Zeroing:
    """Zeroes blocks of one rank's gradients."""

    def __init__(self, part: str, share: float, seed: int) -> None:
        """Lose ``share`` of all blocks (at most half), all in the ``part`` "small" or "large"."""
        self._is_small = part == "small"
        self._chance = 2 * share
        self._draws = torch.Generator().manual_seed(seed)
        self._blocks = 0
        self._zeroed = 0

    @property
    def share(self) -> float:
        """Share of all blocks that was zeroed so far."""
        return self._zeroed / max(self._blocks, 1)

    def zero(self, gradients: torch.Tensor) -> None:
        """Zero blocks of a flat tensor; values after the last whole block stay."""
        blocks = gradients[: len(gradients) // BLOCK * BLOCK].view(-1, BLOCK)
        order = blocks.abs().mean(1).argsort(descending=not self._is_small)
        half = order[: len(order) // 2]
        lost = half[torch.rand(len(half), generator=self._draws) < self._chance]
        blocks[lost] = 0.0
        self._blocks += len(blocks)
        self._zeroed += len(lost)


def all_reduce_hook(zeroing: Zeroing, bucket: dist.GradBucket) -> Reduced:
    """Zero blocks of a bucket, then average it: the form in which DDP wants a hook."""
    flat = bucket.buffer()
    zeroing.zero(flat)
    work = dist.all_reduce(flat.div_(dist.get_world_size()), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])
