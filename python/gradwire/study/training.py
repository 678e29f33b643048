"""One rank of one cell: joins the others, trains, and reports the score from time to time."""

from __future__ import annotations

import hashlib
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradwire
from gradwire import ddp
from gradwire.study import magnitude
from gradwire.study.cells import WORLD, Cell
from gradwire.study.task import Share, Task


@dataclass
class Report:
    """The report of a rank."""

    curve: list[tuple[int, float]] = field(default_factory=list)
    """Steps trained, and the score of the model then; the same on every rank."""

    counters: dict[str, int] = field(default_factory=dict)
    """This rank's counters of the training."""

    zeroed: float = 0.0
    """Share of its gradients that this rank zeroed by itself."""

    parameter_hash: str = ""
    joined_s: float = 0.0
    trained_s: float = 0.0


def train(cell: Cell, task: Task, rank: int, store: Path) -> dict[str, object]:
    """Train ``cell`` as one of its ranks, which meet by the file ``store``; return the report."""
    report = Report()
    started = time.monotonic()
    torch.set_num_threads(1)
    gradwire.register()
    meeting = dist.FileStore(str(store), WORLD)
    dist.init_process_group("gradwire", store=meeting, rank=rank, world_size=WORLD)
    torch.manual_seed(cell.seed)
    model = DistributedDataParallel(task.model())
    zeroing = _hook(cell, task, model, rank)
    before = ddp.backend_of().counters()
    report.joined_s = time.monotonic() - started
    _steps(cell, task, model, report)
    report.trained_s = time.monotonic() - started - report.joined_s
    after = ddp.backend_of().counters()
    report.counters = {name: after[name] - before[name] for name in after}
    report.zeroed = zeroing.share if zeroing else 0.0
    report.parameter_hash = _hash_of(model)
    dist.barrier()
    dist.destroy_process_group()
    return asdict(report)


def _hook(
    cell: Cell, task: Task, model: DistributedDataParallel, rank: int
) -> magnitude.Zeroing | None:
    """Make the gradients of ``model`` lossy in the part that the cell says."""
    if cell.part in ("small", "large"):
        zeroing = magnitude.Zeroing(cell.part, cell.drop, seed=1_000 * cell.seed + rank)
        model.register_comm_hook(zeroing, magnitude.all_reduce_hook)
        return zeroing
    front = task.plan.front

    def tolerance(name: str, _parameter: nn.Parameter) -> float:
        is_lossy = cell.part not in ("front", "back")
        is_lossy |= name.startswith(front) == (cell.part == "front")
        return cell.tolerance if is_lossy else 0.0

    ddp.register(model, groups=tolerance)
    return None


def _steps(cell: Cell, task: Task, model: DistributedDataParallel, report: Report) -> None:
    share = Share(dist.get_rank(), WORLD)
    optimizer = task.optimizer(model)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, task.plan.steps)
    for number, batch in enumerate(task.batches(cell.seed, share), 1):
        optimizer.zero_grad()
        task.loss(model, batch).backward()
        optimizer.step()
        schedule.step()
        if number % task.plan.score_every == 0 or number == task.plan.steps:
            report.curve.append((number, _score(task, model.module, share)))


@torch.no_grad()
def _score(task: Task, model: nn.Module, share: Share) -> float:
    """Score the model by the validation data of all ranks."""
    part = task.score(model, share)
    dist.all_reduce(part)
    return (part[0] / part[1]).item()


def _hash_of(model: nn.Module) -> str:
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return digest.hexdigest()
