"""Facts about single operations: three ranks against PyTorch's local results."""

import collectives
import pytest

import launching

OLDEST_LACKS = {
    "groups_are_split_off_a_group": "PyTorch 2.14 splits groups with an accelerator only",
    "operations_that_ended_are_completed_in_the_flight_recorder": (
        "PyTorch 2.14 asks backends for no word of completions"
    ),
}


@pytest.mark.oldest_torch
@pytest.mark.parametrize("check", [check.__name__ for check in collectives.CHECKS])
def operations_keep_their_promise(check: str, reports_of_collectives: list[dict[str, str]]) -> None:
    if launching.is_oldest_torch() and check in OLDEST_LACKS:
        pytest.skip(OLDEST_LACKS[check])
    failures = [
        f"rank {rank}: {report.get(check, 'did not come so far')}"
        for rank, report in enumerate(reports_of_collectives)
        if report.get(check, "did not come so far")
    ]
    assert not failures, "\n".join(failures)
