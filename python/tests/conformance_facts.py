"""Facts about every operation: the same results as Gloo on the same inputs."""

import os

import pytest

from launching import Launch

SEED = "20260711"
ALL = os.environ.get("GRADWIRE_SLOW") == "1"


@pytest.mark.parametrize("world", [1, 2, 3, 4, 8])
def every_operation_agrees_with_gloo(world: int) -> None:
    arguments = (SEED, "all" if ALL else "some")
    launch = Launch("conformance.py", world=world, arguments=arguments, timeout=240)
    reports = [ended.succeeded() for ended in launch.run()]
    failures = [
        f"rank {rank}: {text}" for rank, seen in enumerate(reports) for text in seen["failures"]
    ]
    assert not failures, "\n".join(failures[:20])
    assert all(seen["cases"] > 400 for seen in reports)
