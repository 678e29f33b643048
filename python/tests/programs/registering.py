"""Registers a model with a tolerance that differs by rank, then trains one step.

The argument after the report's path is "ddp" or "fsdp".
"""

import json
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import gradwire.ddp
import gradwire.fsdp


def registered(way: str, tolerance: float) -> nn.Module:
    """Return a model whose gradients may lose that share."""
    model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512))
    if way == "fsdp":
        fully_shard(model)
        gradwire.fsdp.register(model, tolerance)
        return model
    wrapped = nn.parallel.DistributedDataParallel(model)
    gradwire.ddp.register(wrapped, tolerance)
    return wrapped


def main() -> None:
    """Register and train; report the error and how long it took."""
    torch.set_num_threads(1)
    dist.init_process_group("gradwire", timeout=timedelta(seconds=20))
    seen = {"error": ""}
    started = time.monotonic()
    try:
        model = registered(sys.argv[2], 0.1 * dist.get_rank())
        for _ in range(20):
            model(torch.ones(1, 512)).sum().backward()
    except (RuntimeError, ValueError) as error:
        seen["error"] = str(error)
    seen["seconds"] = time.monotonic() - started
    with open(sys.argv[1], "w") as out:
        json.dump(seen, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
