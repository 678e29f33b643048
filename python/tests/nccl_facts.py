"""Facts about the net plugin of NCCL, by a harness that plays NCCL: no GPU has a part in them."""

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradwire import nccl
from launching import Launch

SLOW = bool(os.environ.get("GRADWIRE_SLOW"))
CONNECTIONS = 10_000 if SLOW else 300
ROUGH = '[faults]\ndrop = "2%"\nreorder = "5%"\nduplicate = "2%"\n'
INVALID_ARGUMENT, INVALID_USAGE, REMOTE_ERROR = 4, 5, 6
KILLED = -9
ENDED_SECONDS = 5
GROWTH_BYTES = 16 << 20
"""A connection has a megabyte and more while it is open: one that stayed would show at once."""

VERSIONS = [str(version) for version in nccl.VERSIONS]
ALL = ",".join(VERSIONS)


def _seen(versions: str, connections: int, job: str = "") -> list[dict[str, Any]]:
    """Run all scenes in two processes; the second kills itself at the end."""
    variables = (("GRADWIRE_TOKEN", "a secret of the job"), ("NCCL_SOCKET_IFNAME", "lo"))
    launch = Launch(
        "nccl_pair.py",
        arguments=(versions, str(connections)),
        job=job,
        variables=variables,
        timeout=1800 if SLOW else 120,
    )
    left, right = launch.run()
    assert (left.code, right.code) == (0, KILLED), left.errors + right.errors
    return [left.report, right.report]


@pytest.fixture(scope="module")
def clean() -> list[dict[str, Any]]:
    """Observations of both processes by version, on a path without faults."""
    return _seen(ALL, CONNECTIONS)


@pytest.fixture(scope="module")
def rough() -> list[dict[str, Any]]:
    """The same for the newest version, on a path that loses, reorders and duplicates."""
    return _seen(VERSIONS[-1], 0, ROUGH)


@pytest.mark.parametrize("version", VERSIONS)
def messages_arrive_whole_and_in_order(version: str, clean: list[dict[str, Any]]) -> None:
    for one in clean:
        for scene in ("messages", "closing", "communicators"):
            assert one[version][scene]["wrong"] == []


def rough_paths_change_no_message(rough: list[dict[str, Any]]) -> None:
    for one in rough:
        for scene in ("messages", "closing", "communicators"):
            assert one[VERSIONS[-1]][scene]["wrong"] == []


@pytest.mark.parametrize("version", VERSIONS)
def requests_beyond_the_limit_wait(version: str, clean: list[dict[str, Any]]) -> None:
    for one in clean:
        limits = one[version]["limits"]
        assert (limits["posted"], limits["further"]) == (nccl.REQUESTS, False)
        assert limits["lengths"] == [0]


@pytest.mark.parametrize("version", VERSIONS)
def too_long_messages_are_invalid_usage_with_both_sizes(
    version: str, clean: list[dict[str, Any]]
) -> None:
    for one in clean:
        limits = one[version]["limits"]
        assert limits["too_long"] == [INVALID_USAGE, INVALID_USAGE]
        assert re.search(r"of 101 bytes came for a receive with room for 50", limits["said"])


@pytest.mark.parametrize("version", VERSIONS)
def unsupported_calls_are_refused(version: str, clean: list[dict[str, Any]]) -> None:
    for one in clean:
        limits = one[version]["limits"]
        assert (limits["several"], limits["foreign"]) == (INVALID_USAGE, INVALID_ARGUMENT)


@pytest.mark.parametrize("version", VERSIONS)
def connect_waits_for_accept_without_blocking(version: str, clean: list[dict[str, Any]]) -> None:
    for one in clean:
        connecting = one[version]["connecting"]
        assert not connecting["early"]
        assert not connecting["unaccepted"]
        assert connecting["gone"] == REMOTE_ERROR


@pytest.mark.parametrize("version", VERSIONS)
def closing_with_requests_in_flight_never_waits(version: str, clean: list[dict[str, Any]]) -> None:
    for one in clean:
        assert one[version]["closing"]["took"] < 1
    assert clean[1][version]["closing"]["codes"] == [INVALID_USAGE]


@pytest.mark.parametrize("version", VERSIONS)
def the_device_is_an_interface_with_host_memory(version: str, clean: list[dict[str, Any]]) -> None:
    for one in clean:
        seen = one[version]["communicators"]
        assert (seen["name"], seen["devices"], seen["interface"]) == ("gradwire", 1, "lo")
        assert (seen["kinds"], seen["receives"], seen["protocol"]) == (1, 1, "Simple")


def a_killed_process_ends_all_requests_of_its_peer(
    clean: list[dict[str, Any]], rough: list[dict[str, Any]]
) -> None:
    for seen in (clean[0]["killed"], rough[0]["killed"]):
        assert seen["codes"] == [REMOTE_ERROR, REMOTE_ERROR]
        assert seen["took"] < ENDED_SECONDS


def connections_that_end_leave_nothing(clean: list[dict[str, Any]]) -> None:
    for one in clean:
        assert one["turnover"]["descriptors"] <= 0
        assert one["turnover"]["bytes"] < GROWTH_BYTES


def the_plugin_says_once_that_it_is_loaded_and_used(clean: list[dict[str, Any]]) -> None:
    for one in clean:
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
    version = ctypes.c_int()
    assert ctypes.CDLL(str(spec)).ncclGetVersion(ctypes.byref(version)) == 0
