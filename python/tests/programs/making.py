"""Makes backends and drops them, on several threads at the same time."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import Backend

from gradwire import build
from gradwire.ps.link import open_core

THREADS = 8
BACKENDS = 1000
"""Of each thread. Constructors that did not hold the GIL ended each of three such runs."""


def make(backends: int) -> int:
    """Make backends of one rank, and drop each at once; return how many."""
    binding = build.load()
    rank = open_core((0, 2), "127.0.0.1", "t" * 64)
    for _ in range(backends):
        binding.Backend(
            rank=rank,
            group=(0, [0, 1], 0),
            store=dist.HashStore(),
            options=Backend.Options("gradwire", timedelta(seconds=1)),
            staging=binding.Staging(stream_wait=False, of_host=False),
        )
    return backends


if __name__ == "__main__":
    with ThreadPoolExecutor(THREADS) as threads:
        made = sum(threads.map(make, [BACKENDS] * THREADS))
    with open(sys.argv[1], "w") as report:
        json.dump(made, report)
