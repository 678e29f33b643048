"""Meets the other ranks and sums once. Reports the sum and how long the meeting took."""

import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def main() -> None:
    """Meet, sum, report."""
    torch.set_num_threads(1)
    started = time.monotonic()
    dist.init_process_group("gradwire", timeout=timedelta(seconds=20))
    met = time.monotonic() - started
    tensor = torch.tensor([float(os.environ["RANK"]) + 1])
    dist.all_reduce(tensor)
    with open(sys.argv[1], "w") as out:
        json.dump({"sum": tensor.item(), "met": met}, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
