"""Residuals of error feedback across checkpoints: two ranks, real packets."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from launching import Launch
from programs.checkpointing import STEPS

LOSSLESS = 'holes = "error-feedback"\n[transport]\nmtu = 1500\n'
LOSSY = LOSSLESS + '[faults]\nseed = 5\ndrop = "10%"\n'


def _part(way: str, part: str, folder: Path, job: str) -> list[dict[str, Any]]:
    launch = Launch("checkpointing.py", arguments=(way, part, str(folder)), job=job)
    return [ended.succeeded() for ended in launch.run()]


@dataclasses.dataclass(frozen=True)
class Training:
    """The reports of two ranks about a training."""

    way: str
    folder: Path
    interrupted: list[dict[str, Any]]
    """It lost gradients, and was interrupted before they came late."""

    straight: list[dict[str, Any]]
    """It had neither losses nor an interruption."""


@pytest.fixture(scope="module", params=["ddp", "fsdp"])
def training(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Training:
    """Train by DDP and by FSDP2."""
    way, folder = request.param, tmp_path_factory.mktemp("checkpoints")
    interrupted = _part(way, "first", folder, LOSSY)
    return Training(way, folder, interrupted, _part(way, "straight", folder, LOSSLESS))


def a_hook_that_loads_its_state_has_that_state(training: Training) -> None:
    assert sum(rank["lost"] for rank in training.interrupted) > 0
    assert all(rank["owed"] and rank["same"] for rank in training.interrupted)


def what_was_lost_before_an_interruption_comes_after_it(training: Training) -> None:
    for before, straight in zip(training.interrupted, training.straight, strict=True):
        assert before["parameters"] != straight["parameters"], "the last step adds nothing"
    resumed = _part(training.way, "second", training.folder, LOSSLESS)
    assert [rank["step"] for rank in resumed] == [STEPS, STEPS]
    for ours, theirs in zip(resumed, training.straight, strict=True):
        assert ours["parameters"] == theirs["parameters"]
