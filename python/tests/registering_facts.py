"""Facts about the arguments of ``register``, which must be equal on all ranks."""

import pytest

from launching import Launch

JOB = '[faults]\ndrop = "5%"\n'


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def a_tolerance_that_differs_between_ranks_is_named_at_once(way: str) -> None:
    for ended in Launch("registering.py", arguments=(way,), job=JOB, timeout=60).run():
        seen = ended.succeeded()
        assert "is 0.0 on rank 0 and 0.1 on rank 1" in seen["error"]
        assert "the tolerance of " in seen["error"]
        assert seen["seconds"] < 10
