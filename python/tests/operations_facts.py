"""Facts about single operations: three ranks against PyTorch's local results."""

import collectives
import pytest


@pytest.mark.parametrize("check", [check.__name__ for check in collectives.CHECKS])
def operations_keep_their_promise(check: str, reports_of_collectives: list[dict[str, str]]) -> None:
    failures = [
        f"rank {rank}: {report.get(check, 'did not come so far')}"
        for rank, report in enumerate(reports_of_collectives)
        if report.get(check, "did not come so far")
    ]
    assert not failures, "\n".join(failures)
