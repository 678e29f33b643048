"""Facts about the lab of namespaces: both spines carry a job, and one of them is enough."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from launching import Ended, Launch

LAB = Path(__file__).parents[2] / "examples" / "lab"
NAME = f"gwp{os.getpid()}"
JOB = (LAB / "job.toml").read_text()
MEASURED, STEPS = 12, 20
ALIKE = 0.9
"""The bytes over one spine are at least this share of those over the other."""
PATIENCE_SECONDS = 90


def _lab(*words: str) -> str:
    command = [str(LAB / "lab.sh"), *words, NAME]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def lab() -> Iterator[None]:
    """Four hosts, two leaves and two spines in namespaces."""
    if not os.environ.get("GRADWIRE_SLOW"):
        pytest.skip("two trainings through a lab take long: set GRADWIRE_SLOW=1")
    if os.geteuid() != 0 or shutil.which("tc") is None:
        pytest.skip("network namespaces need root and the tc command")
    probe = ["unshare", "-n", "tc", "qdisc", "add", "dev", "lo", "root", "htb"]
    tried = subprocess.run(probe, capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"no namespace with an htb in it: {tried.stderr.strip()}")
    try:
        _lab("up")
        yield
    finally:
        _lab("down")


def _bytes_by_spine() -> list[int]:
    """Bytes in and out of both links of spine 0, and of spine 1."""
    found = re.findall(r"spine (\d), leaf \d: (\d+) bytes in, (\d+) bytes out", _lab("status"))
    assert len(found) == 4, found
    return [sum(int(row[1]) + int(row[2]) for row in found if row[0] == one) for one in "01"]


def _trained(progress: Path, **where: tuple[tuple[str, ...], ...]) -> list[Ended]:
    arguments = (str(STEPS), str(progress))
    return Launch("lab_training.py", arguments=arguments, job=JOB, **where).run()


def _wait_for_step(step: int, progress: Path, training: Future[list[Ended]]) -> None:
    limit = time.monotonic() + PATIENCE_SECONDS
    while not progress.exists() or int(progress.read_text() or 0) < step:
        assert not training.done(), [ended.errors for ended in training.result()]
        assert time.monotonic() < limit, f"step {step} was not reached"
        time.sleep(0.02)


def a_job_uses_both_spines_alike_and_outlives_one_of_them(lab: None, tmp_path: Path) -> None:
    progress = tmp_path / "progress"
    inside = tuple(("ip", "netns", "exec", f"{NAME}-{host}") for host in ("h0", "h2"))
    where = {"inside": inside, "variables": (("MASTER_ADDR", "10.85.0.2"),)}
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(_trained, progress, **where)
        _wait_for_step(1, progress, training)
        before = _bytes_by_spine()
        _wait_for_step(1 + MEASURED, progress, training)
        after = _bytes_by_spine()
        _lab("cut", "1")
        in_labs = [ended.succeeded() for ended in training.result()]
    spines = [new - old for new, old in zip(after, before, strict=True)]
    print(f"bytes over the spines: {spines}")
    assert min(spines) > ALIKE * max(spines) > 0, spines
    rest = [new - old for new, old in zip(_bytes_by_spine(), after, strict=True)]
    assert rest[0] > 10 * rest[1], f"spine 1 was down: {rest}"

    # The sum of two numbers has one order only: not a bit depends on where ranks are.
    elsewhere = [ended.succeeded() for ended in _trained(tmp_path / "other")]
    assert in_labs[0]["hash"] == in_labs[1]["hash"] == elsewhere[0]["hash"]
    assert [one["losses"] for one in in_labs] == [one["losses"] for one in elsewhere]
