"""Sums known gradients, so that the parameters show losses and late gradients exactly.

Arguments after the report's path: ``ddp`` or ``fsdp``, a part, and a folder for checkpoints.
``straight`` makes all steps, ``first`` makes all but the last and saves, ``second`` loads and makes
the last, in which the gradients are zero.

The gradients are small integers, so sums in float32 are exact, and parameters add up all updates.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import gradwire.ddp
import gradwire.fsdp

STEPS = 8
TOLERANCE = 0.3


class Part(nn.Module):
    """One layer."""

    def __init__(self, size: int) -> None:
        """Start with zeros."""
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(size))

    def forward(self, constant: torch.Tensor) -> torch.Tensor:
        """Return a loss whose gradient is ``constant``."""
        return (self.weight * constant).sum()


class Counting(nn.Module):
    """Has the gradient ``constants`` at all values of its parameters."""

    def __init__(self, rank: int) -> None:
        """Five layers, 1.5 MB."""
        super().__init__()
        draws = torch.Generator().manual_seed(rank)
        sizes = (50_000, 70_000, 130_000, 40_000, 90_000)
        self.parts = nn.ModuleList([Part(size) for size in sizes])
        self.constants = [torch.randint(-8, 8, (size,), generator=draws) for size in sizes]

    def forward(self, scale: float) -> torch.Tensor:
        """Return a loss whose gradient is ``constants`` times ``scale``."""
        pairs = zip(self.parts, self.constants, strict=True)
        return scale * sum(part(constant) for part, constant in pairs)


def wrapped(way: str, model: Counting) -> tuple[nn.Module, Any]:
    """Wrap and register the model; return it with its hook."""
    if way == "fsdp":
        for part in model.parts:
            fully_shard(part)
        fully_shard(model)
        return model, gradwire.fsdp.register(model, tolerance=TOLERANCE)
    model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.5)
    return model, gradwire.ddp.register(model, tolerance=TOLERANCE)


def local_parameters(model: nn.Module) -> list[torch.Tensor]:
    """Return this rank's part of each parameter."""
    parameters = [parameter.detach() for parameter in model.parameters()]
    return [p.to_local() if isinstance(p, DTensor) else p for p in parameters]


def main() -> None:
    """Do one part and report parameters, losses of segments and the hook's residuals."""
    path, way, part, folder = sys.argv[1:]
    dist.init_process_group("gradwire")
    rank = dist.get_rank()
    saved = Path(folder, f"{way}{rank}.pt")
    model, hook = wrapped(way, Counting(rank))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)

    def step(scale: float) -> None:
        optimizer.zero_grad()
        model(scale).backward()
        optimizer.step()

    if part == "second":
        state = torch.load(saved)
        for parameter, values in zip(local_parameters(model), state["model"], strict=True):
            parameter.copy_(values)
        hook.load_state_dict(state["hook"])
    else:
        for _ in range(STEPS - 1):
            step(1.0)
    report = {"owed": {name: v.numel() for name, v in hook.state_dict()["residuals"].items()}}
    if part == "first":
        torch.save({"model": local_parameters(model), "hook": hook.state_dict()}, saved)
        again = hook.state_dict()
        hook.load_state_dict(torch.load(saved)["hook"])
        report["same"] = str(hook.state_dict()) == str(again)
    else:
        step(0.0)
    report["step"] = hook.step
    parameters = torch.cat(local_parameters(model))
    report["parameters"] = hashlib.sha256(parameters.numpy().tobytes()).hexdigest()
    report["lost"] = gradwire.ddp.backend_of().counters()["lost_segments"]
    Path(path).write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
