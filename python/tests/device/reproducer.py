"""Wait for futures on a stream of high priority and read the last elements at once.

PyTorch's Gloo returned values there that had not arrived (pytorch/pytorch issue 155714): its
futures did not know of the device. Arguments after the report's path: the device, and how often.
"""

import importlib
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

KIT = importlib.import_module(sys.argv[2])
MODULE = torch.get_device_module(KIT.TYPE)
TENSORS = 10
ELEMENTS = 20_000


def wrong() -> int:
    """Reduce some tensors; return how many last elements were not the sum."""
    device = torch.device(KIT.TYPE, 0)
    tensors = [torch.full((ELEMENTS,), float(i), device=device) for i in range(TENSORS)]
    futures = [dist.all_reduce(tensor, async_op=True).get_future() for tensor in tensors]
    seen = []
    for future, tensor in zip(futures, tensors, strict=True):
        future.wait()
        seen.append(tensor[-1:].clone())
    MODULE.synchronize()
    world = dist.get_world_size()
    return sum(one.item() != i * world for i, one in enumerate(seen))


def main() -> None:
    """Repeat it."""
    dist.init_process_group(f"cpu:gradwire,{KIT.TYPE}:gradwire")
    MODULE.set_device(0)
    stream = MODULE.Stream(priority=-1)
    with MODULE.stream(stream):
        found = sum(wrong() for _ in range(int(sys.argv[3])))
    Path(sys.argv[1]).write_text(json.dumps({"wrong": found}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
