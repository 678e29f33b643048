"""Trains under a loss scale that changes, so that sums show whether lost gradients followed it.

Arguments after the report's path: ``ddp`` or ``fsdp``, and ``scaler`` or ``none``. Gradients are
small integers times powers of two, so sums are exact: the gradients that reached the parameters and
those still owed, in the scale of the last step, add up to all gradients.
"""

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from checkpointing import TOLERANCE, Counting, local_parameters
from torch import nn
from torch.distributed.fsdp import fully_shard

import gradwire.ddp
import gradwire.fsdp

SCALES = (4.0, 4.0, 1.0, 8.0, 8.0, 2.0)


def registered(way: str, model: Counting, scaler: Any) -> tuple[nn.Module, Any]:
    """Wrap the model and register it with a scaler; return it with its hook."""
    if way == "fsdp":
        for part in model.parts:
            fully_shard(part)
        fully_shard(model)
        return model, gradwire.fsdp.register(model, tolerance=TOLERANCE, scaler=scaler)
    model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.5)
    return model, gradwire.ddp.register(model, tolerance=TOLERANCE, scaler=scaler)


def total(tensors: list[torch.Tensor]) -> float:
    """Return the sum of all elements, exactly."""
    return sum(float(tensor.double().sum()) for tensor in tensors)


def a_wrong_shape_takes_nothing(hook: Any) -> bool:
    """Ask for residuals of another length; return whether each such call was refused."""
    backend, refused = gradwire.ddp.backend_of(), 0
    for message in hook._residuals._messages:
        try:
            taken = backend.take_residual(message.key, message.elements + 1, message.dtype)
        except RuntimeError as error:
            refused += "its residual is kept" in str(error)
        else:
            refused += taken is None
    return refused == len(hook._residuals._messages)


def main() -> None:
    """Train; report the sums of this rank."""
    path, way, scaled = sys.argv[1:]
    dist.init_process_group("gradwire")
    plain = Counting(dist.get_rank())
    plain.constants = [constant + 9 for constant in plain.constants]
    gradient = total(plain.constants)
    scaler = torch.amp.GradScaler("cpu", init_scale=SCALES[0])
    model, hook = registered(way, plain, scaler if scaled == "scaler" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    for following in (*SCALES[1:], SCALES[-1]):
        optimizer.zero_grad()
        scaler.scale(model(1.0)).backward()
        scaler.step(optimizer)
        scaler.update(following)
    refused = a_wrong_shape_takes_nothing(hook)
    owed = total(list(hook.state_dict()["residuals"].values()))
    report = {
        "taken": -total(local_parameters(model)),
        "owed": owed / SCALES[-1],
        "gradients": gradient * len(SCALES),
        "lost": gradwire.ddp.backend_of().counters()["lost_segments"],
        "refused": refused,
        "loss_scale": hook.state_dict()["loss_scale"],
    }
    hook.scale_residuals(0.5)
    report["halved"] = total(list(hook.state_dict()["residuals"].values())) / SCALES[-1]
    with open(path, "w") as out:
        json.dump(report, out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
