"""Facts about what goes wrong: every failure is one clear error on every rank that is left."""

import signal
import sys
from pathlib import Path

import pytest

from gradwire import build, interfaces
from gradwire.environment import Environment
from launching import Ended, Launch


def _started(job: str = "", variables: tuple[tuple[str, str], ...] = ()) -> list[Ended]:
    """Start two ranks that do nothing more."""
    launch = Launch("failing.py", arguments=("starts",), job=job, variables=variables, timeout=60)
    return launch.run()


def a_killed_rank_is_named_within_ten_seconds() -> None:
    survivor, killed = Launch("failing.py", arguments=("killed",), timeout=60).run()
    assert killed.code == -signal.SIGKILL
    seen = survivor.succeeded()
    assert "rank 1" in seen["error"]
    assert seen["kind"] == "DistBackendError"
    assert seen["seconds"] < 10


def an_operation_that_a_rank_never_joins_times_out() -> None:
    waiting, silent = Launch("failing.py", arguments=("silent",), timeout=60).run()
    silent.succeeded()
    seen = waiting.succeeded()
    assert " Timed out " in seen["error"]
    assert "ranks [1]" in seen["error"]
    assert seen["seconds"] < 5


def a_rank_that_leaves_does_not_hang_and_is_named() -> None:
    waiting, left = Launch("failing.py", arguments=("leaves",), timeout=60).run()
    left.succeeded()
    assert "rank 1" in waiting.succeeded()["error"]


def a_process_group_can_be_created_again() -> None:
    for ended in Launch("failing.py", arguments=("again",), timeout=60).run():
        assert ended.succeeded()["sum"] == 4.0


def a_misspelt_key_of_the_job_is_named_on_every_rank() -> None:
    for ended in _started(job="tolerence = 0.1\n"):
        assert ended.code == 1
        assert "tolerence" in ended.errors
        assert "tolerance" in ended.errors.replace("tolerence", "")


def a_certificate_without_its_key_is_refused() -> None:
    for ended in _started(variables=(("GRADWIRE_CERT", "rank.crt"),)):
        assert ended.code == 1
        assert "no key and no authority is given" in ended.errors


def a_job_without_security_is_said_to_be_one_by_rank_0() -> None:
    first, second = _started(job='security = "none"\n')
    assert first.code == second.code == 0
    assert "can read, forge and replay" in first.errors
    assert "can read, forge and replay" not in second.errors


def a_tolerance_above_one_is_refused() -> None:
    for ended in _started(job="tolerance = 1.5\n"):
        assert ended.code == 1
        assert "tolerance" in ended.errors


def a_job_that_differs_between_ranks_is_named_by_its_key() -> None:
    jobs = ("tolerance = 0.1\n", "tolerance = 0.2\n")
    launch = Launch("failing.py", arguments=("starts",), jobs_by_rank=jobs, timeout=60)
    ended = launch.run()
    assert all(rank.code == 1 for rank in ended)
    assert any("tolerance" in rank.errors for rank in ended)


def a_missing_job_file_is_named() -> None:
    for ended in _started(variables=(("GRADWIRE_JOB", "/nowhere/job.toml"),)):
        assert "/nowhere/job.toml" in ended.errors


def an_unknown_interface_lists_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"nosuch0.*this machine has .*lo"):
        interfaces.bind_address("nosuch0", "")


@pytest.mark.parametrize("master", ["", "localhost", "127.0.0.1"])
def ranks_of_one_machine_bind_to_loopback(master: str) -> None:
    assert interfaces.bind_address("", master) == "127.0.0.1"


def the_address_of_a_named_interface_is_used() -> None:
    assert interfaces.bind_address("lo", "10.0.0.1") == "127.0.0.1"


def a_missing_compiler_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delitem(sys.modules, "gradwire._binding", raising=False)
    with pytest.raises(build.BindingError, match="no-such-compiler"):
        build.load()


def an_old_pytorch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.__version__", "2.1.0")
    monkeypatch.delitem(sys.modules, "gradwire._binding", raising=False)
    with pytest.raises(build.BindingError, match=r"2\.1\.0 is too old"):
        build.load()


def an_empty_environment_gives_the_default_job() -> None:
    environment = Environment.read({})
    assert environment.job == environment.interface == environment.token == ""
    assert environment.certificates == ("", "", "")
    assert environment.compiler == "c++"
