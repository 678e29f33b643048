"""Train a small network on the late device or the CPU, and report its parameters.

Arguments after the report's path: "late", "cuda" or "cpu"; "ddp", "hook" or "fsdp"; and the
tolerance.
"""

import hashlib
import importlib
import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import gradwire.ddp
import gradwire.fsdp

STEPS = 4


def network() -> nn.Sequential:
    """Three linear layers, 0.5 MB of parameters: the same on every rank and device."""
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


def parallel(way: str, device: torch.device, tolerance: float) -> nn.Module:
    """Wrap the network as ``way`` says."""
    model = network().to(device)
    if way == "fsdp":
        mesh = dist.init_device_mesh(device.type, (dist.get_world_size(),))
        for layer in (model[0], model[2]):
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        gradwire.fsdp.register(model, tolerance)
        return model
    wrapped = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.3)
    if way == "hook":  # two tolerances cut a bucket into two messages
        gradwire.ddp.register(wrapped, tolerance, groups={"2": tolerance / 2, "2.bias": 0.0})
    return wrapped


def trained(model: nn.Module, device: torch.device) -> list[float]:
    """Train and return the losses of this rank."""
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, foreach=False)
    data = torch.Generator().manual_seed(100 + dist.get_rank())
    losses = []
    for _ in range(STEPS):
        inputs = torch.randn(32, 256, generator=data).to(device)
        optimizer.zero_grad()
        loss = (model(inputs) - inputs[:, :10]).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    """Train, then report the hash of the parameters, losses, and lost segments."""
    where, way, tolerance = sys.argv[2:]
    torch.set_num_threads(1)
    if where == "late":
        importlib.import_module(where)
    devices = sorted({"cpu", where})
    dist.init_process_group(",".join(f"{device}:gradwire" for device in devices))
    device = torch.device("cpu") if where == "cpu" else torch.device(where, 0)
    model = parallel(way, device, float(tolerance))
    report = {"losses": trained(model, device)}
    digest = hashlib.sha256()
    for parameter in model.parameters():
        values = parameter.detach()
        whole = values.full_tensor() if hasattr(values, "full_tensor") else values
        digest.update(whole.cpu().numpy().tobytes())
    report["hash"] = digest.hexdigest()
    report["lost"] = gradwire.ddp.backend_of().counters()["lost_segments"]
    Path(sys.argv[1]).write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
