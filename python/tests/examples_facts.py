"""Facts about scripts that change one word: the examples' losses over gradwire are those over Gloo.

With two ranks a sum has one order, so losses are equal bit for bit. With four, which only
GRADWIRE_SLOW=1 runs, they are close: in float64, since steps amplify the differences that the
order of summation makes, in float32 to some 1e-6 of the loss within 50 steps.
"""

import os
from typing import Any

import pytest
import torch

from launching import Launch
from programs.variants import VARIANTS

WAYS = [f"{v.__name__} {way}" for v in VARIANTS for way in ("plain", "hooked")]
HOOKED = [
    f"{name} {way}" for name in ("data_parallel", "shakespeare") for way in ("plain", "hooked")
]
EXAMPLES = [*HOOKED, "fsdp2", "tensor parallel"]
OF_FOUR = [*EXAMPLES, "two dimensions", "pipeline", "hsdp"]

_Losses = list[dict[str, list[float]]]


def _losses(backend: str, world: int) -> _Losses:
    launch = Launch("scripts.py", world=world, arguments=(backend,), timeout=600.0)
    return [ended.succeeded() for ended in launch.run()]


@pytest.fixture(scope="module")
def pair() -> tuple[_Losses, _Losses]:
    """The losses of two ranks over gradwire and over Gloo."""
    return _losses("gradwire", 2), _losses("gloo", 2)


@pytest.fixture(scope="module")
def quartet() -> tuple[_Losses, _Losses]:
    """The losses of four ranks over gradwire and over Gloo."""
    if os.environ.get("GRADWIRE_SLOW") != "1":
        pytest.skip("four ranks on few cores take long: set GRADWIRE_SLOW=1")
    return _losses("gradwire", 4), _losses("gloo", 4)


def _on_gloo(name: str) -> str:
    return name.replace("hooked", "plain")


@pytest.mark.parametrize("name", [*EXAMPLES, *WAYS, "accelerate"])
def losses_of_two_ranks_are_those_over_gloo(name: str, pair: tuple[_Losses, _Losses]) -> None:
    for ours, theirs in zip(*pair, strict=True):
        assert ours[name] == theirs[_on_gloo(name)]


def losses_of_a_pipeline_of_two_are_those_over_gloo(pair: tuple[_Losses, _Losses]) -> None:
    ours, theirs = pair[0][-1], pair[1][-1]
    assert ours["pipeline"] == theirs["pipeline"] != []


@pytest.mark.parametrize("name", OF_FOUR)
def losses_of_four_ranks_are_those_over_gloo(name: str, quartet: tuple[_Losses, _Losses]) -> None:
    for ours, theirs in zip(*quartet, strict=True):
        _assert_close(ours[name], theirs[_on_gloo(name)])


def _assert_close(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), rtol=1e-6, atol=0)
