"""Residuals of error feedback across checkpoints: two ranks, real packets."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from launching import Launch
from programs.checkpointing import STEPS

LOSSLESS = 'holes = "error-feedback"\n[loss]\nmin_message = 0\n[transport]\nmtu = 1500\n'
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


def _scaled(way: str, scaler: str) -> tuple[list[dict[str, Any]], float]:
    """Train under a changing loss scale; return the reports, and what is missing of all sums."""
    ended = Launch("scaling.py", arguments=(way, scaler), job=LOSSY).run()
    ranks = [rank.succeeded() for rank in ended]
    replicas = 2 if way == "ddp" else 1
    taken = sum(rank["taken"] for rank in ranks) / replicas * len(ranks)
    owed = sum(rank["owed"] for rank in ranks)
    return ranks, sum(rank["gradients"] for rank in ranks) - taken - owed


@pytest.mark.oldest_torch
@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def residuals_follow_the_scale_of_the_loss(way: str) -> None:
    ranks, missing = _scaled(way, "scaler")
    assert missing == 0
    assert sum(rank["lost"] for rank in ranks) > 0
    assert sum(rank["owed"] for rank in ranks) > 0
    assert [rank["loss_scale"] for rank in ranks] == [2.0, 2.0]
    assert [rank["halved"] for rank in ranks] == [rank["owed"] / 2 for rank in ranks]


def residuals_of_another_shape_are_refused_and_kept() -> None:
    ranks, _ = _scaled("ddp", "scaler")
    assert all(rank["refused"] and rank["owed"] for rank in ranks)


def residuals_without_a_scaler_keep_their_scale() -> None:
    ranks, missing = _scaled("ddp", "none")
    assert missing != 0
    assert [rank["loss_scale"] for rank in ranks] == [None, None]
