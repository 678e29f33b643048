"""Facts about tensors on devices: PyTorch's contract, and training, on the late device.

Each check of ``contract.py`` is one fact, and its name says which.
"""

import os
import re
from pathlib import Path
from typing import Any

import pytest

from gradwire.environment import Environment
from launching import Launch

HERE = Path(__file__).parent
CONTRACT = re.findall(r"^@check\ndef (\w+)", (HERE / "contract.py").read_text(), re.MULTILINE)
SLOW = os.environ.get("GRADWIRE_SLOW") == "1"
TIMES = 1000 if SLOW else 30
LOSSES = '[loss]\nmin_message = "16KiB"\n[transport]\nmtu = 1500\n[faults]\nseed = 3\ndrop = "5%"\n'


WITHOUT_COMPILER = (("GRADWIRE_BINDING", "python"),)


def _launched(program: str, *arguments: str, world: int = 2, **launch_as: Any) -> list[Any]:
    """Run a program of this folder; return the reports of all ranks."""
    launch = Launch(f"{HERE}/{program}", world, arguments, timeout=900, **launch_as)
    return [ended.succeeded() for ended in launch.run()]


@pytest.fixture(scope="module")
def contract() -> list[dict[str, str]]:
    """What three ranks found."""
    return _launched("contract.py", "late", world=3)


@pytest.mark.parametrize("line", CONTRACT)
def the_contract_of_devices_is_kept(line: str, contract: list[dict[str, str]]) -> None:
    found = [rank.get(line, "did not run, since a check before it failed") for rank in contract]
    assert found == [""] * len(contract), "\n".join(found)


def values_have_come_when_a_future_has_been_waited_for() -> None:
    assert _launched("reproducer.py", "late", str(TIMES)) == [{"wrong": 0}] * 2


@pytest.fixture(scope="module")
def on_the_host() -> dict[str, list[dict[str, Any]]]:
    """Training on CPU tensors, each way."""
    return {way: _launched("training.py", "cpu", way, "0") for way in ("hook", "fsdp")}


@pytest.mark.parametrize("way", ["hook", "fsdp"])
def training_on_the_device_has_the_bits_of_the_host(
    way: str, on_the_host: dict[str, list[dict[str, Any]]]
) -> None:
    assert _launched("training.py", "late", way, "0") == on_the_host[way]


def training_without_a_compiler_has_the_bits_of_the_host(
    on_the_host: dict[str, list[dict[str, Any]]],
) -> None:
    trained = _launched("training.py", "late", "hook", "0", variables=WITHOUT_COMPILER)
    assert trained == on_the_host["hook"]


@pytest.mark.parametrize("device", ["late", "cpu"])
def values_that_a_piece_lost_are_owed(device: str) -> None:
    for rank in _launched("residuals.py", device, job=f'holes = "error-feedback"\n{LOSSES}'):
        assert rank["lost"] > 0
        assert rank["whole"]


@pytest.mark.parametrize("way", ["hook", "fsdp"])
def replicas_on_the_device_stay_identical_when_segments_are_lost(way: str) -> None:
    ranks = _launched("training.py", "late", way, "0.2", job=LOSSES)
    assert sum(rank["lost"] for rank in ranks) > 0
    assert ranks[0]["hash"] == ranks[1]["hash"]


def tensors_of_the_host_take_the_way_of_devices_when_told() -> None:
    assert Environment.read({"GRADWIRE_STAGE": "host"}).stages_host
    assert not Environment.read({}).stages_host
