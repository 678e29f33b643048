"""Facts about chunk and credit that a job finds in its first steps: two ranks, real packets."""

import re
import signal
from typing import Any

import pytest

from gradwire.tuning import SETTLING_STEPS, TRIAL_STEPS
from launching import Ended, Launch
from programs.tuned import TRIALS

JOB = f'[collectives]\nchunk = "1MiB"\ntuning = {TRIALS}\n'


def _run(job: str, how: str = "whole") -> list[Ended]:
    return Launch("tuned.py", arguments=(how,), job=job, timeout=60).run()


@pytest.fixture(scope="module")
def tuned() -> list[Ended]:
    """A whole training with tuning."""
    return _run(JOB)


def _reports(ended: list[Ended]) -> list[dict[str, Any]]:
    return [rank.succeeded() for rank in ended]


def tuning_changes_no_bit_of_the_parameters(tuned: list[Ended]) -> None:
    hashes = {rank["hash"] for rank in _reports(tuned)}
    plain = _reports(_run('[collectives]\nchunk = "1MiB"\n'))
    assert hashes == {rank["hash"] for rank in plain}
    assert len(hashes) == 1
    assert {chunk for rank in plain for chunk, _ in rank["schedules"]} == {'"1MiB"'}


def all_ranks_have_the_same_chunk_and_credit_in_every_step(tuned: list[Ended]) -> None:
    first, second = _reports(tuned)
    assert first["schedules"] == second["schedules"]
    trials = first["schedules"][SETTLING_STEPS:]
    for start in range(0, TRIALS * TRIAL_STEPS, TRIAL_STEPS):
        assert len({tuple(one) for one in trials[start : start + TRIAL_STEPS]}) == 1
    assert first["schedules"][0] == first["schedules"][SETTLING_STEPS]
    assert len({tuple(one) for one in trials}) == TRIALS


def the_log_of_rank_0_tells_what_was_found_and_the_job_has_it(tuned: list[Ended]) -> None:
    first, second = tuned
    found = re.findall(
        r'tuning: .*chunk = ("\w+") and credit = ("\w+"), .* (\d+) tri', first.errors
    )
    assert len(found) == 1
    chunk, credit, trials = found[0]
    assert int(trials) == TRIALS
    assert first.succeeded()["schedules"][-1] == [chunk, credit]
    assert "tuning" not in second.errors


def a_rank_that_dies_in_a_trial_is_named_as_ever() -> None:
    survivor, killed = _run(JOB, "dies")
    assert killed.code == -signal.SIGKILL
    seen = survivor.succeeded()
    assert "rank 1" in seen["error"]
    assert seen["seconds"] < 10
