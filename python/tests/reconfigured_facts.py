"""Facts about process groups that follow each other in one process, and coexist."""

import pytest

from launching import Launch

SEEN = {"gathered": [0, 1], "broadcast": 10}
GROWN_BYTES = 4 << 20
"""In 25 jobs, of which the rings alone would take more, if they were kept."""
GOES_ON_SECONDS = 5
"""Gloo takes 2 s to make a group of the survivors."""


def _reports(way: str, world: int = 2) -> list[object]:
    ended = Launch("reconfigured.py", world=world, arguments=(way,), timeout=60).run()
    lost = [rank for rank in ended if rank.code == 9]
    return [rank.succeeded() for rank in ended if rank not in lost]


@pytest.mark.oldest_torch
def swapped_ranks_beside_an_older_group_are_told_apart() -> None:
    assert _reports("swapped") == [[SEEN] * 3] * 2


@pytest.mark.parametrize(("way", "world"), [("aborted", 2), ("survived", 3)])
def a_group_follows_one_that_was_aborted_and_is_kept(way: str, world: int) -> None:
    for seen, seconds, size in _reports(way, world):
        assert seen == SEEN
        assert seconds < GOES_ON_SECONDS
        assert size == world


def jobs_that_were_aborted_leave_no_thread_and_no_file() -> None:
    for counts, grown, opened in _reports("repeated"):
        assert len(counts) == 50
        threads, files = zip(*counts, strict=True)
        assert threads[-1] <= threads[1], threads
        assert files[-1] <= files[1], files
        assert grown < GROWN_BYTES
        assert opened <= 1


def threads_of_one_process_may_be_ranks_of_a_job() -> None:
    (seen,) = _reports("threads", world=1)
    assert seen == {"0": [SEEN, SEEN], "1": [SEEN, SEEN]}


def groups_do_not_end_at_the_numbers_of_one_job() -> None:
    for first, last, sums in _reports("numbered"):
        assert first == last == SEEN
        assert sums == 3
