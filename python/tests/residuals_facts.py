"""Facts about what error feedback owes across checkpoints: two ranks, real packets."""

from pathlib import Path
from typing import Any

import pytest

from launching import Launch
from programs.checkpointing import STEPS

LOSSLESS = 'holes = "error-feedback"\n[transport]\nmtu = 1500\n'
LOSSY = LOSSLESS + '[faults]\nseed = 5\ndrop = "10%"\n'


def _part(part: str, folder: Path, job: str) -> list[dict[str, Any]]:
    launch = Launch("checkpointing.py", arguments=(part, str(folder)), job=job)
    return [ended.succeeded() for ended in launch.run()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where an interrupted training left its checkpoints."""
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def interrupted(folder: Path) -> list[dict[str, Any]]:
    """A training that lost gradients and was interrupted before what was lost had come."""
    return _part("first", folder, LOSSY)


@pytest.fixture(scope="module")
def straight(folder: Path) -> list[dict[str, Any]]:
    """The same training without losses and without an interruption."""
    return _part("straight", folder, LOSSLESS)


def a_hook_that_loads_its_state_has_that_state(interrupted: list[dict[str, Any]]) -> None:
    assert sum(rank["lost"] for rank in interrupted) > 0
    assert all(rank["owed"] and rank["same"] for rank in interrupted)


def what_was_lost_before_an_interruption_comes_after_it(
    folder: Path, interrupted: list[dict[str, Any]], straight: list[dict[str, Any]]
) -> None:
    assert interrupted[0]["parameters"] != straight[0]["parameters"], "the last step adds nothing"
    resumed = _part("second", folder, LOSSLESS)
    assert [rank["step"] for rank in resumed] == [STEPS, STEPS]
    for ours, theirs in zip(resumed, straight, strict=True):
        assert ours["parameters"] == theirs["parameters"]
