"""The interface of a task: a model, its batches, and a score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import nn

Batch = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True)
class Share:
    """One rank's part of the work."""

    rank: int
    world: int


@dataclass(frozen=True)
class Plan:
    """How long a task is trained and how it is judged."""

    steps: int
    steps_per_epoch: float
    score_every: int
    """Steps between two scores."""

    metric: str
    higher_is_better: bool
    margin: float
    """A score this close to the lossless one counts as equal to it."""

    front: tuple[str, ...]
    """Beginnings of the names of parameters that are in the front layers; the rest is the back."""

    def reaches(self, score: float, aim: float) -> bool:
        """Whether ``score`` is as good as ``aim``, except for the margin."""
        away = score - aim if self.higher_is_better else aim - score
        return away >= -self.margin - 1e-9


class Task(ABC):
    """Something to train. Data is read when it is made, once, before ranks are forked."""

    name: str
    plan: Plan

    @abstractmethod
    def model(self) -> nn.Module:
        """Build the model from PyTorch's current seed."""

    @abstractmethod
    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Make the optimiser of ``model``."""

    @abstractmethod
    def batches(self, seed: int, share: Share) -> list[torch.Tensor]:
        """Choose one rank's batch of each step."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        """Return the mean loss of one of ``batches``."""

    @abstractmethod
    def score(self, model: nn.Module, share: Share) -> torch.Tensor:
        """Return, for this rank's part of the validation data, its score's sum and its size."""
