"""Runs cells of the study with a task that takes a second, and reports their records.

Argument after the report's path: the ids of the cells' variants, as ``part:holes:drop:transform``.
"""

import json
import sys
from pathlib import Path

import torch
from torch import nn

from gradwire import build
from gradwire.study import ranks
from gradwire.study.cells import Cell
from gradwire.study.task import Plan, Share, Task

STEPS = 12


class Line(Task):
    """Two wide layers that learn to repeat the first of their inputs."""

    name = "line"
    plan = Plan(STEPS, STEPS, STEPS // 2, "loss", False, 0.1, front=("0.",))

    def model(self) -> nn.Module:
        """Build 0.13 million parameters."""
        return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256))

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Use the simplest."""
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def batches(self, seed: int, share: Share) -> list[torch.Tensor]:
        """Draw inputs; every rank draws different ones."""
        draws = torch.Generator().manual_seed(10 * seed + share.rank)
        return [torch.randn(16, 256, generator=draws) for _ in range(STEPS)]

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        """Squared distance."""
        return (model(batch) - batch).square().mean()

    def score(self, model: nn.Module, share: Share) -> torch.Tensor:
        """Score one batch that no rank trains on."""
        return torch.tensor([float(self.loss(model, self.batches(0, share)[0])), 1.0])


def main() -> None:
    """Run the cells and report."""
    path, *variants = sys.argv[1:]
    torch.set_num_threads(1)
    build.load()
    records = []
    for variant in variants:
        part, holes, drop, transform = variant.split(":")
        cell = Cell("line", 1, float(drop), holes, transform, part)
        records.append(ranks.run(cell, Line()))
    Path(path).write_text(json.dumps(records))


if __name__ == "__main__":
    main()
