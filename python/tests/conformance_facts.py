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
    _agrees_with_gloo(Launch("conformance.py", world, arguments, timeout=240))


def every_operation_on_host_copies_agrees_with_gloo() -> None:
    variables = (("GRADWIRE_STAGE", "host"),)
    arguments = (SEED, str(WAYS[0]))
    _agrees_with_gloo(Launch("conformance.py", 2, arguments, variables=variables, timeout=240))


def _agrees_with_gloo(launch: Launch) -> None:
    ranks = launch.run()
    # A difference on one rank, or its end, makes the others fail too, with less to say.
    ended = [f"rank {n}: {rank.code}, {rank.errors}" for n, rank in enumerate(ranks) if rank.code]
    assert all(rank.report for rank in ranks), "\n".join(ended)
    failures = [
        f"rank {number}: {text}"
        for number, rank in enumerate(ranks)
        for text in rank.report["failures"]
    ]
    assert not failures, "\n".join(failures[:20])
    assert all(rank.succeeded()["cases"] > 400 for rank in ranks)
