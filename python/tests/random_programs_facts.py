"""Facts about random programs: random collectives on random groups, against Gloo."""

import os

import pytest

from launching import Launch

PROGRAMS = 100 if os.environ.get("GRADWIRE_SLOW") == "1" else 10
FIRST_SEED = 1
LOSSY = '[transport]\nwire = "udp"\n[faults]\nseed = 5\ndrop = "2%"\n'


@pytest.mark.parametrize("job", ["", LOSSY], ids=["lossless", "2 % of all packets dropped"])
def random_programs_agree_with_gloo(job: str) -> None:
    launch = Launch(
        "random_programs.py",
        world=4,
        arguments=(str(FIRST_SEED), str(PROGRAMS)),
        job=job,
        timeout=240,
    )
    reports = [ended.succeeded() for ended in launch.run()]
    failures = [text for seen in reports for text in seen["failures"]]
    assert not failures, "\n".join(failures[:20])
    assert all((seen["dropped"] > 0) == bool(job) for seen in reports)
