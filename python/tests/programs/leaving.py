"""Repeatedly starts ranks which end with operations in flight, and reports how they ended.

PyTorch is imported once: each rank is a fork of this process that ends as any Python does. The
argument after the report's path is how many times.
"""

import json
import os
import sys

import torch
import torch.distributed as dist

WORLD = 2


def leave(rank: int, meeting: str) -> None:
    """Start operations and return to the end of the program without waiting for them."""
    dist.init_process_group("gradwire", init_method=meeting, rank=rank, world_size=WORLD)
    tensors = [torch.ones(1 << 16) for _ in range(20)]
    for tensor in tensors:
        dist.all_reduce(tensor, async_op=True)


def main() -> None:
    """Fork the ranks of each turn and wait for them."""
    torch.set_num_threads(1)
    ended = []
    for turn in range(int(sys.argv[2])):
        meeting = f"file://{os.path.dirname(sys.argv[1])}/meeting-{turn}"
        ranks = []
        for rank in range(WORLD):
            process = os.fork()
            if process == 0:
                leave(rank, meeting)
                return
            ranks.append(process)
        ended.append([os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks])
    with open(sys.argv[1], "w") as out:
        json.dump(ended, out)


if __name__ == "__main__":
    main()
