"""Facts about failures: every failure is one clear error on every remaining rank."""

import json
import re
import signal
import sys
from pathlib import Path

import pytest

import launching
from gradwire import build, interfaces
from gradwire.environment import Environment
from launching import Ended, Launch


def _started(job: str = "", variables: tuple[tuple[str, str], ...] = ()) -> list[Ended]:
    """Start two ranks that then do nothing."""
    launch = Launch("failing.py", arguments=("starts",), job=job, variables=variables, timeout=60)
    return launch.run()


@pytest.mark.oldest_torch
def a_killed_rank_is_named_within_ten_seconds() -> None:
    survivor, killed = Launch("failing.py", arguments=("killed",), timeout=60).run()
    assert killed.code == -signal.SIGKILL
    seen = survivor.succeeded()
    assert "rank 1" in seen["error"]
    assert seen["kind"] == "DistBackendError"
    assert seen["seconds"] < 10


def a_killed_rank_of_the_host_delays_no_end() -> None:
    survivor, _ = Launch("failing.py", arguments=("killed",), timeout=60).run()
    seen = survivor.succeeded()
    assert seen["seconds"] + seen["destroyed"] < 5


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


@pytest.mark.oldest_torch
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


def rank_0_tells_in_one_line_what_is_used() -> None:
    first, second = _started(job='name = "told"\ntolerance = "5%"\n')
    line = [line for line in first.errors.splitlines() if "GRADWIRE" in line]
    assert len(line) == 1
    assert re.match(r"\S+:\d+:\d+ \[0\] GRADWIRE INFO gradwire \d\S+: job told \(", line[0])
    for word in ("2 ranks, 1 host", "wire shm", "security none in memory", "no metrics"):
        assert word in line[0]
    assert "the job's tolerance 5%" in line[0]
    assert "GRADWIRE" not in second.errors


def the_start_is_silent_where_only_warnings_are_asked_for() -> None:
    for ended in _started(variables=(("GRADWIRE_LOG", "warn"),)):
        assert ended.code == 0
        assert "GRADWIRE" not in ended.errors


def an_unknown_level_of_the_log_names_the_known_ones() -> None:
    for ended in _started(variables=(("GRADWIRE_LOG", "loud"),)):
        assert ended.code == 1
        assert "GRADWIRE_LOG" in ended.errors
        assert "allowed are warn, info, debug and trace" in ended.errors


def a_metrics_port_counts_from_the_local_rank() -> None:
    port = launching.free_port()
    job = f"[metrics]\nport = {port}\n"
    arguments = ("watched", str(port))
    for ended in Launch("failing.py", arguments=arguments, job=job, timeout=60).run():
        assert ended.succeeded()["rank"] == ended.succeeded()["local"]


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
        assert "GRADWIRE_JOB='/nowhere/job.toml' does not exist" in ended.errors


def an_unknown_interface_lists_those_that_exist() -> None:
    with pytest.raises(ValueError, match=r"nosuch0.*this machine has .*lo"):
        interfaces.bind_address(("GRADWIRE_IFNAME", "nosuch0"), "")


@pytest.mark.parametrize("master", ["", "localhost", "127.0.0.1"])
def ranks_of_one_machine_bind_to_loopback(master: str) -> None:
    assert interfaces.bind_address(("GRADWIRE_IFNAME", ""), master) == "127.0.0.1"


@pytest.mark.parametrize("value", ["lo", "=lo", "l", "nosuch,lo", "^nosuch", "^=l"])
def the_address_of_a_named_interface_is_used(value: str) -> None:
    assert interfaces.bind_address(("GRADWIRE_IFNAME", value), "127.0.0.1") == "127.0.0.1"


@pytest.mark.parametrize(
    ("variable", "value"),
    [("GRADWIRE_IFNAME", "=l"), ("GLOO_SOCKET_IFNAME", "l"), ("NCCL_SOCKET_IFNAME", "nosuch0")],
)
def a_name_that_fits_nothing_is_refused_with_its_variable(variable: str, value: str) -> None:
    with pytest.raises(ValueError, match=rf"{variable}='{value}' fits no .*lo \(127\.0\.0\.1[,)]"):
        interfaces.bind_address((variable, value), "127.0.0.1")


def interfaces_of_gloo_and_nccl_count_where_ours_is_not_named() -> None:
    variables = {"NCCL_SOCKET_IFNAME": "ib", "GLOO_SOCKET_IFNAME": "eth0"}
    assert Environment.read(variables).interface == ("GLOO_SOCKET_IFNAME", "eth0")
    variables["GRADWIRE_IFNAME"] = "^lo"
    assert Environment.read(variables).interface == ("GRADWIRE_IFNAME", "^lo")


def a_failure_leaves_a_trace_that_its_error_names(tmp_path: Path) -> None:
    variables = (("GRADWIRE_TRACE", str(tmp_path)),)
    arguments = ("traced",)
    launch = Launch("failing.py", arguments=arguments, variables=variables, timeout=60)
    waiting = launch.run()[0].succeeded()
    (path,) = tmp_path.glob("gradwire-*-rank0.json")
    assert f"(trace of this rank: {path})" in waiting["error"]
    left = json.loads(path.read_text())
    assert left["operations"][-1]["needs"]["ranks"] == [1]
    (live,) = waiting["live"]
    assert live["operations"][-1]["state"] == "started"
    assert live["operations"][-1]["needs"]["ranks"] == [1]


def a_missing_compiler_is_named_where_the_binding_must_be_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADWIRE_BINDING", "compiled")
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "_finished", lambda *_: None)
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
    assert environment.job == environment.token == environment.trace == environment.log == ""
    assert environment.interface == ("GRADWIRE_IFNAME", "")
    assert environment.certificates == ("", "", "")
    assert environment.compiler == "c++"
