"""A GPU with CUDA in place of the late device, for ``python/tests/gpu/run.sh``."""

import contextlib
from collections.abc import Iterator

import torch

TYPE = "cuda"
_CYCLES_OF_A_MILLISECOND = 1_800_000


def keep_busy(stream: torch.cuda.Stream, milliseconds: int) -> None:
    """Let a stream do nothing for a while."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(milliseconds * _CYCLES_OF_A_MILLISECOND)


@contextlib.contextmanager
def capture() -> Iterator[None]:
    """Capture a graph."""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        yield


def live_events() -> int:
    """Return 0: CUDA does not tell."""
    return 0


def strange_destructions() -> int:
    """Return 0: CUDA does not tell."""
    return 0
