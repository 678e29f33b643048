"""Reduce a long tensor with losses under error feedback: what is missing in the sum is owed.

The argument after the report's path is the device, ``late``, or ``cpu``.
"""

import importlib
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from gradwire.gradients import backend_of

ELEMENTS = 2_500_000
KEY = 77


def main() -> None:
    """Report how many values were lost, and whether sum and residuals are the sum of the inputs."""
    where = sys.argv[2]
    if where == "late":
        importlib.import_module(where)
    dist.init_process_group(",".join(f"{d}:gradwire" for d in sorted({"cpu", where})))
    inputs = [torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(i)) for i in range(2)]
    tensor = inputs[dist.get_rank()].clone().to(where)
    backend = backend_of(device=tensor.device)
    tags = {"layer_offsets": [0, 4 << 20], "layers": [0, 1], "layer_count": 100}
    backend.allreduce_tagged(
        tensor, **tags, tolerance=0.2, step=0, tensor_key=KEY, op=dist.ReduceOp.SUM
    ).wait()
    backend.scale_residual(KEY, 2.0)
    owed = backend.take_residual(KEY, ELEMENTS, torch.float32)
    owed = torch.zeros(ELEMENTS) if owed is None else owed / 2
    dist.all_reduce(owed)
    is_whole = torch.equal(tensor.cpu() + owed, inputs[0] + inputs[1])
    report = {"lost": int(owed.count_nonzero()), "whole": is_whole}
    Path(sys.argv[1]).write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
