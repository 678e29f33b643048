"""Trains a layer of a million parameters and reports which step it has reached.

Arguments after the report's path: how many steps, and the file that rank 0 writes steps into.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

WIDTH = 1024


def main() -> None:
    """Train, then report the hash of the parameters and the losses."""
    path, steps, progress = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gradwire")
    torch.manual_seed(7)
    model = nn.parallel.DistributedDataParallel(nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = torch.Generator().manual_seed(100 + dist.get_rank())
    losses = []
    for step in range(int(steps)):
        inputs = torch.randn(8, WIDTH, generator=data)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.flip(1)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if dist.get_rank() == 0:
            Path(progress).write_text(str(step + 1))
    parameters = torch.cat([one.detach().flatten() for one in model.parameters()])
    report = {
        "hash": hashlib.sha256(parameters.numpy().tobytes()).hexdigest(),
        "losses": losses,
    }
    Path(path).write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
