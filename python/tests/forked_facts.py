"""Facts about forks of a rank: they share its memory, and none of its threads."""

from launching import Launch


def a_forked_child_is_refused_and_harms_no_sum() -> None:
    first, second = Launch("forked.py", timeout=60).run()
    assert first.succeeded()["sums"] == second.succeeded()["sums"] == [2.0] * 3
    told = second.report["told"]
    assert set(told) == {"submitted", "waited"}
    for error in told.values():
        assert "a fork cannot take part in the job" in error
        assert "spawn or forkserver" in error
