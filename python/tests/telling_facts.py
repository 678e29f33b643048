"""Facts about the lines and records of ranks: what is in effect, what failed, and why."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from launching import Ended, Launch


def _told(way: str, variables: tuple[tuple[str, str], ...] = ()) -> list[Ended]:
    launch = Launch("telling.py", arguments=(way,), variables=variables, timeout=60)
    return launch.run()


def a_rank_that_is_told_to_end_leaves_its_recorder(tmp_path: Path) -> None:
    waiting, _ = _told("terminated", (("GRADWIRE_TRACE", str(tmp_path)),))
    assert waiting.code == -signal.SIGTERM
    (path,) = tmp_path.glob("gradwire-*-rank0.json")
    trace = json.loads(path.read_text())
    assert trace["reason"] == "this process was told to end (SIGTERM)"
    assert trace["operations"][-1]["needs"]["ranks"] == [1]


def the_action_that_was_set_before_decides(tmp_path: Path) -> None:
    for ended in _told("handled", (("GRADWIRE_TRACE", str(tmp_path)),)):
        assert ended.succeeded() == {"told": [signal.SIGTERM]}
    assert len(list(tmp_path.glob("gradwire-*.json"))) == 2


def a_fork_ends_by_the_signal_as_ever(tmp_path: Path) -> None:
    for ended in _told("forked", (("GRADWIRE_TRACE", str(tmp_path)),)):
        assert ended.succeeded() == {"code": -signal.SIGTERM}


def rank_0_tells_what_register_puts_into_effect() -> None:
    first, second = _told("registered")
    told = "registered: gradients of 2 parameters may lose at most 10% of a message (1 of them"
    assert told in first.errors
    assert "registered" not in second.errors


def failures_are_shown_where_only_warnings_are_asked_for() -> None:
    launch = Launch(
        "failing.py", arguments=("killed",), variables=(("GRADWIRE_LOG", "warn"),), timeout=60
    )
    survivor, _ = launch.run()
    (line,) = [line for line in survivor.errors.splitlines() if "GRADWIRE" in line]
    assert "GRADWIRE ERROR rank 1 was lost (its process has ended)" in line


def a_program_that_uses_logging_gets_every_line_there() -> None:
    first, _ = _told("logged")
    lines = first.succeeded()["lines"]
    assert {name for name, _, _ in lines} == {"gradwire"}
    levels = {text: level for _, level, text in lines}
    assert any(text.startswith("rank 0: gradwire 0.") for text in levels)
    assert any(text.startswith("registered: ") for text in levels)
    assert levels["rank 0: rank 1 was lost (its process has ended)"] == "ERROR"
    assert "GRADWIRE" not in first.errors


def _in_memory_of(kibibytes: int, job: str) -> list[Ended]:
    """Start two ranks that share a small /dev/shm."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "true"]).returncode != 0:
        pytest.skip("a /dev/shm of its own needs root")
    mount = f"mount -t tmpfs -o size={kibibytes}k tmpfs /dev/shm && echo there && exec sleep 60"
    holder = subprocess.Popen(["unshare", "-m", "sh", "-c", mount], stdout=subprocess.PIPE)
    inside = ("nsenter", "-m", f"--target={holder.pid}")
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"there\n"
        arguments = ("starts",)
        launch = Launch(
            "failing.py", arguments=arguments, job=job, inside=(inside, inside), timeout=60
        )
        return launch.run()
    finally:
        holder.kill()
        holder.wait()


def memory_that_is_too_small_is_told_where_udp_replaces_it() -> None:
    first, second = _in_memory_of(800, "")
    assert first.code == second.code == 0
    assert "go by UDP, slower: /dev/shm has " in first.errors
    assert "the rings of 2 ranks take 1048576 at least" in first.errors
    assert "wire udp" in first.errors
    assert "go by UDP" not in second.errors


def memory_that_is_too_small_is_the_cause_where_it_is_demanded() -> None:
    for ended in _in_memory_of(800, '[transport]\nwire = "shm"\n'):
        assert ended.code == 1
        assert 'transport.wire = "shm", but /dev/shm has ' in ended.errors
        assert "give it more (docker run --shm-size=1g" in ended.errors
