"""Facts about groups that end while others of their job go on."""

import signal
from typing import Any

import pytest

import launching
from launching import Ended, Launch

FAILED_SECONDS = 5
LEFT_SECONDS = 10
"""Three for a message that may still be received, five for the other ranks."""


BINDINGS = ("compiled", "python")


def _ended(way: str, world: int, binding: str = "auto") -> list[Ended]:
    port = launching.free_port()
    job = f'[transport]\nwire = "udp"\n[metrics]\nport = {port}\n'
    variables = (("GRADWIRE_BINDING", binding),)
    return Launch("ending.py", world, (way, str(port)), job, variables, timeout=60).run()


def _seen(way: str, world: int = 2, binding: str = "auto") -> list[dict[str, Any]]:
    return [rank.succeeded() for rank in _ended(way, world, binding)]


@pytest.mark.parametrize("binding", BINDINGS)
def an_unmatched_send_ends_with_its_group(binding: str) -> None:
    seen = _seen("unmatched_send", binding=binding)
    for ends, reason in enumerate(("has ended on this rank", "rank 1 no longer accepts it")):
        sent = seen[0][f"send ended by {ends}"]
        assert sent["waiting"] > 0, "it probes as long as a receive may come"
        assert reason in sent["error"]
        assert sent["seconds"] < FAILED_SECONDS
        assert [rank[f"after {ends}"] for rank in seen] == [0, 0], f"ended by {ends}"
    assert [rank["sum"] for rank in seen] == [2.0, 2.0]


def a_message_arrives_without_its_work() -> None:
    assert _seen("dropped_work")[1]["right"]


@pytest.mark.oldest_torch
def an_aborted_job_falls_silent() -> None:
    for rank in _seen("aborted", world=3):
        assert "rank 0 called abort()" in rank["error"]
        assert rank["seconds"] < FAILED_SECONDS
        assert rank["after"] == 0


@pytest.mark.parametrize("binding", BINDINGS)
def a_group_that_is_aborted_ends_alone(binding: str) -> None:
    first, second, third = _seen("aborted_group", world=3, binding=binding)
    assert "has ended on this rank" in first["error"]
    assert "rank 0 no longer accepts it" in third["error"]
    assert max(first["seconds"], third["seconds"]) < FAILED_SECONDS
    for rank in (first, second, third):
        assert rank["sum"] == 3.0
        assert "has ended on this rank" in rank["later"]
        assert rank["after"] == 0


def survivors_of_a_lost_rank_fall_silent() -> None:
    first, second, lost = _ended("lost_rank", 3)
    assert lost.code == -signal.SIGKILL
    for survivor in (first.succeeded(), second.succeeded()):
        assert "rank 2" in survivor["error"]
        assert survivor["after"] == 0


def a_rank_leaves_others_that_go_on() -> None:
    first, *others = _ended("left_alone", 3)
    assert first.succeeded()["seconds"] < LEFT_SECONDS
    assert "ranks 1 and 2 did not leave within 5s" in first.errors
    for other in others:
        assert other.succeeded()["sums"] == [2.0]
        assert other.succeeded()["seconds"] < FAILED_SECONDS


def a_split_beyond_the_numbers_names_the_limit() -> None:
    for rank in _seen("split_beyond_the_numbers"):
        assert rank["last"] == rank["sum"] == 2.0
        assert "65536 is the most" in rank["error"]
        assert "new_group()" in rank["error"]
