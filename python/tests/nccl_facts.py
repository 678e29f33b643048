"""Facts about the net plugin of NCCL, by a harness that plays NCCL: no GPU has a part in them."""

import ctypes
import functools
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradwire import nccl
from launching import Launch

SLOW = bool(os.environ.get("GRADWIRE_SLOW"))
CONNECTIONS = 2_000 if SLOW else 300
"""Come and go: more than the 1,024 descriptors that a process usually has."""
ROUGH = '[faults]\ndrop = "5%"\nreorder = "5%"\nduplicate = "2%"\n'
INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR = 4, 5, 6
KILLED = -9
ENDED_SECONDS = 5
GROWTH_BYTES = 4 << 20
"""A connection has a megabyte and more while it is open: one that stayed would show at once."""

_Seen = Callable[[int], list[dict[str, Any]]]
"""What both processes have observed with a version of the interface."""


def _run(version: int, connections: int, job: str = "") -> list[dict[str, Any]]:
    """Run all scenes in two processes; the second kills itself at the end."""
    variables = (("GRADWIRE_TOKEN", "a secret of the job"), ("NCCL_SOCKET_IFNAME", "lo"))
    launch = Launch(
        "nccl_pair.py",
        arguments=(str(version), str(connections)),
        job=job,
        variables=variables,
        timeout=1800 if SLOW else 120,
    )
    left, right = launch.run()
    assert (left.code, right.code) == (0, KILLED), left.errors + right.errors
    return [left.report, right.report]


@pytest.fixture(scope="module")
def clean() -> _Seen:
    """On a path without faults; connections come and go with the newest version."""
    newest = max(nccl.VERSIONS)
    return functools.cache(lambda version: _run(version, CONNECTIONS * (version == newest)))


@pytest.fixture(scope="module")
def rough() -> _Seen:
    """On a path that loses, reorders and duplicates."""
    return functools.cache(lambda version: _run(version, 0, ROUGH))


@pytest.mark.parametrize("version", nccl.VERSIONS)
def messages_arrive_whole_and_in_order(version: int, clean: _Seen) -> None:
    for one in clean(version):
        for scene in ("messages", "closing", "communicators"):
            assert one[scene]["wrong"] == []


@pytest.mark.parametrize("version", nccl.VERSIONS)
def rough_paths_change_no_message(version: int, rough: _Seen) -> None:
    for one in rough(version):
        for scene in ("messages", "closing", "communicators"):
            assert one[scene]["wrong"] == []


@pytest.mark.parametrize("version", nccl.VERSIONS)
def flags_come_with_their_data(version: int, clean: _Seen, rough: _Seen) -> None:
    for one in clean(version) + rough(version):
        assert (one["flags"]["torn"], one["flags"]["late"]) == (0, 0)
    assert all(one["flags"]["partial"] for one in rough(version)), "no read was amid a message"


@pytest.mark.parametrize("version", nccl.VERSIONS)
def requests_beyond_the_limit_wait(version: int, clean: _Seen) -> None:
    for one in clean(version):
        limits = one["limits"]
        assert (limits["posted"], limits["further"]) == ([nccl.REQUESTS] * 2, False)
        assert limits["lengths"] == [0]


@pytest.mark.parametrize("version", nccl.VERSIONS)
def too_long_messages_are_invalid_usage_with_both_sizes(version: int, clean: _Seen) -> None:
    for one in clean(version):
        limits = one["limits"]
        assert limits["too_long"] == [INVALID_USAGE, INVALID_USAGE]
        assert re.search(r"of 101 bytes came for a receive with room for 50", limits["said"])


@pytest.mark.parametrize("version", nccl.VERSIONS)
def unsupported_calls_are_refused(version: int, clean: _Seen) -> None:
    for one in clean(version):
        limits = one["limits"]
        assert (limits["several"], limits["foreign"]) == (INVALID_USAGE, INVALID_ARGUMENT)


@pytest.mark.parametrize("version", nccl.VERSIONS)
def connect_waits_for_accept_without_blocking(version: int, clean: _Seen) -> None:
    for one in clean(version):
        connecting = one["connecting"]
        assert not connecting["idle"]
        assert not connecting["early"]
        assert not connecting["unaccepted"]
        assert connecting["gone"] == REMOTE_ERROR


@pytest.mark.parametrize("version", nccl.VERSIONS)
def closing_with_requests_in_flight_never_waits(version: int, clean: _Seen) -> None:
    for one in clean(version):
        assert one["closing"]["took"] < 1
    assert clean(version)[1]["closing"]["codes"] == [INVALID_USAGE]


@pytest.mark.parametrize("version", nccl.VERSIONS)
def the_device_is_an_interface_with_host_memory(version: int, clean: _Seen) -> None:
    for one in clean(version):
        seen = one["communicators"]
        assert (seen["name"], seen["devices"], seen["interface"]) == ("gradwire", 1, "lo")
        assert (seen["kinds"], seen["receives"], seen["protocol"]) == (1, 1, "Simple")


@pytest.mark.parametrize("version", nccl.VERSIONS)
def a_killed_process_ends_all_requests_of_its_peer(
    version: int, clean: _Seen, rough: _Seen
) -> None:
    for seen in (clean(version)[0]["killed"], rough(version)[0]["killed"]):
        assert seen["codes"] == [REMOTE_ERROR, REMOTE_ERROR]
        assert seen["took"] < ENDED_SECONDS


def connections_that_end_leave_nothing(clean: _Seen) -> None:
    for one in clean(max(nccl.VERSIONS)):
        assert one["turnover"]["descriptors"] <= 0
        assert one["turnover"]["bytes"] < GROWTH_BYTES


@pytest.mark.parametrize("version", nccl.VERSIONS)
def the_plugin_says_once_that_it_is_loaded_and_used(version: int, clean: _Seen) -> None:
    for one in clean(version):
        lines = "\n".join(one["lines"])
        assert len(re.findall(r"gradwire \S+ is loaded: interface lo", lines)) == 1
        assert len(re.findall(r"gradwire is in use", lines)) == 1
        assert "connections by token" in lines


def _command(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gradwire", "nccl", *words]
    environment = dict(os.environ, **variables)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


def the_command_prints_the_environment() -> None:
    values = json.loads(_command("--json").stdout)
    assert values["NCCL_NET"] == "gradwire"
    assert Path(values["NCCL_NET_PLUGIN"]).is_file()
    shell = f'eval "$({sys.executable} -m gradwire nccl)"; echo "$NCCL_NET_PLUGIN"'
    told = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True).stdout
    assert told.strip() == values["NCCL_NET_PLUGIN"] == _command("--path").stdout.strip()


def the_check_finds_a_plugin_that_works_and_says_why_one_does_not() -> None:
    found = _command("--check")
    assert (found.returncode, "is loaded" in found.stdout) == (0, True), found.stdout
    refused = _command("--check", "--json", GRADWIRE_IFNAME="nosuch0")
    assert refused.returncode == 1
    assert "nosuch0" in json.loads(refused.stdout)["found"]


def _profiled(version: int, folder: Path) -> list[dict[str, Any]]:
    """Let both ranks of a communicator record an all-reduce; return their traces."""
    program = Path(__file__).parent / "programs" / "nccl_profile.py"
    environment = dict(os.environ, GRADWIRE_EVENTS=str(folder))
    for rank in (0, 1):
        command = [sys.executable, str(program), str(rank), str(version)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((folder / f"events-rank{rank}.json").read_text()) for rank in (0, 1)]


@pytest.mark.parametrize("version", nccl.PROFILER_VERSIONS)
def nccls_collectives_and_messages_are_a_trace(version: int, tmp_path: Path) -> None:
    left, right = (trace["traceEvents"] for trace in _profiled(version, tmp_path))
    operation = {"kind": "all_reduce", "group": 0, "bytes": 4 << 20}
    for events in (left, right):
        assert [one["args"].get("operation") for one in events].count(operation) == 1
        [collective] = [one for one in events if "operation" in one["args"]]
        ends = [one["ts"] + one["dur"] for one in events]
        assert collective["ts"] + collective["dur"] >= max(ends) - 1

    def named(events: list[dict[str, Any]], word: str) -> list[dict[str, int]]:
        return [one["args"]["message"] for one in events if f".{word}~>" in one["name"]]

    assert named(left, "SEND") == named(right, "RECV") != []
    assert named(right, "SEND") == named(left, "RECV") != []
    assert {one["bytes"] for one in named(left, "SEND")} == {512 << 10}


def the_command_aligns_nccls_trace_and_says_which_passes_it_lacks(tmp_path: Path) -> None:
    gradwire = Path(sys.executable).parent / "gradwire"
    if not gradwire.exists():
        pytest.skip("the gradwire command is not installed beside this Python")
    _profiled(max(nccl.PROFILER_VERSIONS), tmp_path)

    def trace(verb: str) -> subprocess.CompletedProcess[str]:
        command = [str(gradwire), "trace", verb, str(tmp_path)]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    aligned, replayed = trace("align"), trace("replay")
    assert aligned.returncode == 0, aligned.stderr
    assert replayed.returncode != 0
    assert "the forward passes of 0 steps" in replayed.stderr


def nccl_itself_finds_its_own_symbols_only_where_it_has_them() -> None:
    """The real library, if it is installed: its strings name the symbols that it looks for."""
    spec = next(Path(sys.prefix).glob("lib/python*/site-packages/nvidia/nccl/lib/libnccl.so.2"), "")
    if not spec:
        pytest.skip("libnccl is not installed here")
    content = Path(spec).read_bytes()
    known = {int(found) for found in re.findall(rb"ncclNetPlugin_v(\d+)", content)}
    assert set(nccl.VERSIONS) <= known
    assert max(known) == nccl.VERSIONS[-1]
    tuners = {int(found) for found in re.findall(rb"ncclTunerPlugin_v(\d+)", content)}
    assert set(nccl.TUNER_VERSIONS) <= tuners
    profilers = {int(found) for found in re.findall(rb"ncclProfiler_v(\d+)", content)}
    assert set(nccl.PROFILER_VERSIONS) <= profilers
    version = ctypes.c_int()
    assert ctypes.CDLL(str(spec)).ncclGetVersion(ctypes.byref(version)) == 0
