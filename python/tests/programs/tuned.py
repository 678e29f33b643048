"""Trains a small network under DDP with the job's tuning, and reports its choices.

Arguments after the report's path: "whole", or "dies" where rank 1 dies in the middle of a trial.
"""

import hashlib
import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

import gradwire.ddp
from gradwire.tuning import SETTLING_STEPS, TRIAL_STEPS

TRIALS = 3
STEPS = SETTLING_STEPS + TRIALS * TRIAL_STEPS + 2
LAST_STEP = SETTLING_STEPS + TRIAL_STEPS + 1
"""For a rank that dies: within the second trial."""


def train(model: nn.Module, data: torch.Generator) -> None:
    """Train one step."""
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    inputs = torch.randn(8, 512, generator=data)
    optimizer.zero_grad()
    (model(inputs) - inputs[:, :64]).square().mean().backward()
    optimizer.step()


def main() -> None:
    """Train, and report the job's chunk and credit after each step, and the parameters."""
    path, how = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group("gradwire")
    rank = dist.get_rank()
    torch.manual_seed(7)
    layers = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 64))
    model = nn.parallel.DistributedDataParallel(layers)
    gradwire.ddp.register(model)
    backend = gradwire.ddp.backend_of()
    data = torch.Generator().manual_seed(100 + rank)
    report = {"schedules": [], "error": "", "kind": "", "seconds": 0.0}
    begun = time.monotonic()
    try:
        for step in range(STEPS):
            if how == "dies" and rank == 1 and step == LAST_STEP:
                os.kill(os.getpid(), signal.SIGKILL)
            begun = time.monotonic()
            train(model, data)
            job = backend.job()
            report["schedules"].append([job["collectives.chunk"], job["collectives.credit"]])
    except RuntimeError as error:
        report.update(error=str(error), kind=type(error).__name__)
        report["seconds"] = time.monotonic() - begun
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
    report["hash"] = hashlib.sha256(parameters.numpy().tobytes()).hexdigest()
    with open(path, "w") as out:
        json.dump(report, out)
    if not report["error"]:
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
