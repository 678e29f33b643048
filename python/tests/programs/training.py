"""Trains a small network on random data under DDP and reports its parameters and counters.

Arguments after the report's path: the backend, and "plain", "hook", "adasum" or
"codec NAME".
"""

import hashlib
import json
import sys

import torch
import torch.distributed as dist
from torch import nn

STEPS = 8


class Reversed(nn.Module):
    """Defines its layers in the order opposite to the one in which it runs them."""

    def __init__(self) -> None:
        """Three linear layers, 0.6 MB of parameters."""
        super().__init__()
        self.last = nn.Linear(256, 10)
        self.middle = nn.Linear(256, 256)
        self.first = nn.Linear(256, 256)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Run first, middle, last."""
        return self.last(self.middle(self.first(inputs).relu()).relu())


def main() -> None:
    """Train, then report parameters, their hash, the losses and, on gradwire, the counters."""
    path, backend, way = sys.argv[1:]
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    torch.manual_seed(7)
    model = nn.parallel.DistributedDataParallel(Reversed(), bucket_cap_mb=0.3)
    hooked = None
    if way != "plain":
        import gradwire.ddp

        codec = way.removeprefix("codec ") if way.startswith("codec ") else None
        reduce = "adasum" if way == "adasum" else "average"
        hooked = gradwire.ddp.register(model, codec=codec, reduce=reduce)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    data = torch.Generator().manual_seed(100 + dist.get_rank())
    losses = []
    for _ in range(STEPS):
        inputs = torch.randn(32, 256, generator=data)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs[:, :10]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    parameters = torch.cat([p.detach().flatten() for p in model.parameters()])
    report = {
        "hash": hashlib.sha256(parameters.numpy().tobytes()).hexdigest(),
        "parameters": parameters.tolist(),
        "losses": losses,
    }
    if hooked is not None:
        report["counters"] = gradwire.ddp.backend_of().counters()
        report["step"] = hooked.step
    with open(path, "w") as out:
        json.dump(report, out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
