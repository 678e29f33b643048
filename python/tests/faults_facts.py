"""Facts about faults of real processes: each ends as documented, in time, on every rank."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

import namespaces
from launching import Launch

SLOW = bool(os.environ.get("GRADWIRE_SLOW"))
GROUPS = 1000 if SLOW else 150
EXITS = 20 if SLOW else 4
DETECTED_SECONDS = 5
"""A mismatch or an abort is known on every rank within this time."""
LOST_SECONDS = 12
"""A rank that is gone for good is known within 10 s; the rest is the machine's."""
GROWTH_BYTES = 8 << 20
"""Less than 9 KiB for each of a thousand groups: allocators round up, a leak grows forever."""

ADDRESSES = ["10.213.7.1", "10.213.7.2"]


@pytest.fixture(scope="module")
def seen() -> list[dict[str, Any]]:
    """Observations of two ranks that suffer one fault after the other, by fault."""
    launch = Launch("faulty.py", arguments=(str(GROUPS),), timeout=240)
    return [ended.succeeded() for ended in launch.run()]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("mismatched_shape", ("all_reduce",)),
        ("mismatched_dtype", ("all_reduce", "f32", "i32")),
        ("mismatched_operation", ("all_reduce", "broadcast")),
    ],
)
def a_mismatch_is_one_clear_error_on_every_rank(
    fault: str, words: tuple[str, ...], seen: list[dict[str, Any]]
) -> None:
    for one in (rank[fault] for rank in seen):
        assert one["kind"] == "DistBackendError"
        assert one["seconds"] < DETECTED_SECONDS
        for word in (*words, "rank 0", "rank 1"):
            assert word in one["error"].replace("ranks 0 and 1", "rank 0 and rank 1")


def an_abort_reaches_every_rank_and_names_who_called_it(seen: list[dict[str, Any]]) -> None:
    for one in (rank["aborted"] for rank in seen):
        assert one["kind"] == "DistBackendError"
        assert "rank 1 called abort()" in one["error"]
        assert one["seconds"] < DETECTED_SECONDS


def a_second_process_group_is_refused_by_pytorch_and_harms_nothing(
    seen: list[dict[str, Any]],
) -> None:
    for one in (rank["second_init"] for rank in seen):
        assert "twice" in one["error"]
        assert one["sum"] == 2


def groups_may_be_destroyed_in_any_order(seen: list[dict[str, Any]]) -> None:
    assert [rank["groups_in_any_order"]["sum"] for rank in seen] == [2, 2]


def operations_in_flight_when_all_ranks_destroy_their_group_complete(
    seen: list[dict[str, Any]],
) -> None:
    for one in (rank["destroyed_with_operations_in_flight"] for rank in seen):
        assert one["wrong"] == 0
        assert one["seconds"] < LOST_SECONDS


def an_operation_that_nobody_else_enters_ends_when_its_group_is_destroyed(
    seen: list[dict[str, Any]],
) -> None:
    first, second = (rank["destroyed_alone"] for rank in seen)
    assert first["error"]
    assert first["seconds"] < LOST_SECONDS
    assert second["seconds"] < LOST_SECONDS


def a_callback_may_wait_for_another_operation(seen: list[dict[str, Any]]) -> None:
    assert [rank["waiting_callbacks"]["sum"] for rank in seen] == [4, 4]


def groups_leave_no_memory_behind(seen: list[dict[str, Any]]) -> None:
    for one in (rank["many_groups"] for rank in seen):
        assert one["sum"] == 2
        assert one["bytes_after"] - one["bytes_before"] < GROWTH_BYTES


def a_rank_that_is_stopped_for_five_seconds_is_waited_for() -> None:
    ended = Launch("interrupted.py", arguments=("stop",), timeout=90).run()
    waiting, stopped = (one.succeeded() for one in ended)
    assert waiting["error"] == stopped["error"] == ""
    assert waiting["longest"] > 3


@pytest.fixture
def linked() -> Iterator[namespaces.LinkedHosts]:
    """Two hosts that a link joins."""
    with namespaces.linked_hosts("faults", [(address,) for address in ADDRESSES]) as linked:
        yield linked


def _interrupted(how: str, linked: namespaces.LinkedHosts) -> list[dict[str, Any]]:
    """Reduce on both hosts while rank 1's end of the link suffers; gives what each rank saw."""
    launch = Launch(
        "interrupted.py",
        arguments=(how, linked.interfaces[1]),
        job='[transport]\nwire = "udp"\npeer_timeout = "8s"\n',
        variables=(("MASTER_ADDR", ADDRESSES[0]),),
        inside=linked.inside,
        timeout=120,
    )
    return [ended.succeeded() for ended in launch.run()]


def a_link_that_is_gone_for_two_seconds_is_survived_and_one_gone_for_good_is_told(
    linked: namespaces.LinkedHosts,
) -> None:
    for rank, one in enumerate(_interrupted("cut", linked)):
        assert one["longest"] > 1
        assert f"rank {1 - rank} was lost" in one["error"]
        assert one["seconds"] < LOST_SECONDS


def a_link_that_begins_to_lose_long_packets_ends_the_job_with_the_reason(
    linked: namespaces.LinkedHosts,
) -> None:
    for one in _interrupted("shrink", linked):
        assert "from rank 0 has reached rank 1" in one["error"]
        assert "set transport.mtu" in one["error"]
        assert one["seconds"] < LOST_SECONDS


def python_ends_well_with_operations_in_flight() -> None:
    (ended,) = Launch("leaving.py", world=1, arguments=(str(EXITS),), timeout=200).run()
    assert ended.succeeded() == [[0, 0]] * EXITS
    assert "terminate called" not in ended.errors
