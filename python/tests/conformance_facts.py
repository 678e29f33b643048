"""Facts about every operation: the same results as Gloo on the same inputs."""

import os

import pytest

from launching import Launch

SEED = "20260711"
WAYS = (6, 2) if os.environ.get("GRADWIRE_SLOW") == "1" else (1, 1)
"""Combinations of layout and mode for each operation on each type: up to three ranks, and above."""


@pytest.mark.parametrize("world", [1, 2, pytest.param(3, marks=pytest.mark.oldest_torch), 4, 8])
def every_operation_agrees_with_gloo(world: int) -> None:
    arguments = (SEED, str(WAYS[world > 3]))
    launch = Launch("conformance.py", world=world, arguments=arguments, timeout=240)
    ranks = launch.run()
    # A difference on one rank makes the others fail too, with less to say.
    failures = [
        f"rank {number}: {text}"
        for number, rank in enumerate(ranks)
        for text in (rank.report or {"failures": []})["failures"]
    ]
    assert not failures, "\n".join(failures[:20])
    assert all(rank.succeeded()["cases"] > 400 for rank in ranks)
