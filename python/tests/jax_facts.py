"""Facts about all-reduces of JAX on CPUs: they equal sums of numpy, in the order of the program."""

from typing import Any

import pytest

from launching import Launch

pytest.importorskip("jax", reason="requirements-test.txt has it")

LOSSY = """
[transport]
wire = "udp"
mtu = 1500
[loss]
min_message = 0
[faults]
drop = "5%"
seed = 3
"""


@pytest.fixture(scope="module")
def seen() -> list[list[Any]]:
    """The observations of two ranks over a network that loses packets."""
    token = (("GRADWIRE_TOKEN", "a secret of the test"),)
    launch = Launch("jax_ranks.py", job=LOSSY, variables=token, timeout=100)
    return [ended.succeeded() for ended in launch.run()]


def jitted_sums_are_those_of_numpy(seen: list[list[Any]]) -> None:
    for sums, *_ in seen:
        assert sums == dict.fromkeys(sums, True)
        assert len(sums) == 5


def steps_of_a_scan_reduce_in_order(seen: list[list[Any]]) -> None:
    for _, scanned, *_ in seen:
        assert scanned == [3.0, 9.0, 21.0, 45.0, 93.0]


def independent_reductions_meet_on_all_ranks(seen: list[list[Any]]) -> None:
    for _, _, independent, *_ in seen:
        assert independent == [3.0, 30.0, 300.0, 2.0, 6.0, 60.0, 600.0]


def tolerated_losses_leave_equal_bits_on_all_ranks(seen: list[list[Any]]) -> None:
    for *_, tolerant, _, _ in seen:
        assert tolerant == [True, True, True]


def calls_outside_of_jit_compile_once(seen: list[list[Any]]) -> None:
    for *_, compilations, _ in seen:
        assert compilations == 0


def calls_that_cannot_work_say_what_can(seen: list[list[Any]]) -> None:
    for *_, said in seen:
        op, mean, dtype, again = said
        assert "'median': allowed are sum, mean" in op
        assert "take the sum" in mean
        assert "takes integers of 8 to 64 bits, float16" in dtype
        assert "call shutdown() first" in again


def a_launch_without_a_secret_is_told_how_to_make_one() -> None:
    for ended in Launch("jax_ranks.py", timeout=60).run():
        assert ended.code == 1
        assert "openssl rand -hex 32), and name it in GRADWIRE_TOKEN_FILE" in ended.errors
