"""Facts about jobs in containers and on hosts with narrow limits.

Namespaces and mounts stand for containers: each test gives the ranks one limit of Docker's
defaults, or of a cluster. A job works there, or says in one line what to set.
"""

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import namespaces
from launching import Ended, Launch

WITHOUT_URING = (sys.executable, str(Path(__file__).parent / "programs" / "limited.py"))
WITHOUT_CAPABILITIES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
WITHOUT_SHM = (
    "d=$(mktemp -d) && mount -t tmpfs tmpfs $d && for n in null zero random urandom; do "
    "touch $d/$n && mount --bind /dev/$n $d/$n; done && mount --move $d /dev"
)


@contextlib.contextmanager
def _container(setup: str, *more: str) -> Iterator[tuple[str, ...]]:
    """Mounts of its own, made by `setup`; yields the command that starts a process there."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", *more, "true"]).returncode != 0:
        pytest.skip("mounts of its own need root")
    script = f"{setup} && echo there && exec sleep 120"
    flags = ["-m", *more]
    holder = subprocess.Popen(["unshare", *flags, "sh", "-c", script], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"there\n"
        yield ("nsenter", *flags, f"--target={holder.pid}")
    finally:
        holder.kill()
        holder.wait()


def _sums(ended: list[Ended]) -> list[float]:
    return [rank.succeeded()["sum"] for rank in ended]


def _perf(inside: tuple[str, ...], *options: str) -> subprocess.CompletedProcess[str]:
    """Let the command start ranks there, which reduce a little."""
    command = shutil.which("gradwire", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("the command gradwire is not installed")
    words = (*inside, command, "perf", "all-reduce", "-b", "4K", "-e", "4K", "--iterations", "5")
    return subprocess.run((*words, *options), capture_output=True, text=True, timeout=90)


def dockers_defaults_are_enough() -> None:
    with _container("mount -t tmpfs -o size=64m tmpfs /dev/shm") as inside:
        limited = (*inside, *WITHOUT_CAPABILITIES, *WITHOUT_URING)
        ended = Launch("meeting.py", inside=(limited, limited), timeout=90).run()
    assert _sums(ended) == [3.0, 3.0]
    assert "wire shm" in ended[0].errors


@pytest.mark.parametrize(
    "setup", ["mount -t tmpfs -o ro tmpfs /dev/shm", WITHOUT_SHM], ids=["read-only", "absent"]
)
def without_a_usable_dev_shm_udp_replaces_it_and_says_so(setup: str) -> None:
    with _container(setup) as inside:
        ended = _perf(inside, "-n", "2", "--json")
    assert ended.returncode == 0, ended.stderr
    assert '"wire":"udp"' in ended.stdout
    assert "go by UDP, slower: " in ended.stderr
    assert "mount a writable tmpfs at /dev/shm" in ended.stderr


def a_refused_io_uring_is_named_where_it_is_demanded() -> None:
    ended = _perf(WITHOUT_URING, "-n", "2", "--wire", "uring")
    assert ended.returncode == 5
    assert "a filter of system calls forbids io_uring" in ended.stderr
    assert 'set transport.wire to "udp"' in ended.stderr


def sixty_four_ports_are_enough_for_four_ranks() -> None:
    setup = "ip link set lo up && echo 40000 40063 >/proc/sys/net/ipv4/ip_local_port_range"
    with _container(setup, "-n") as inside:
        ended = _perf(inside, "-n", "4", "--wire", "udp")
    assert ended.returncode == 0, ended.stderr


def hosts_with_ipv6_only_meet() -> None:
    with namespaces.linked_hosts("six", [("fd13:9::1",), ("fd13:9::2",)]) as hosts:
        for name in hosts.names:
            namespaces.ip("-n", name, "address", "delete", "127.0.0.1/8", "dev", "lo")
        own = ("env", "MASTER_ADDR=fd13:9::1")
        launch = Launch("meeting.py", inside=tuple((*h, *own) for h in hosts.inside), timeout=90)
        assert _sums(launch.run()) == [3.0, 3.0]


def the_interface_that_a_job_names_carries_it() -> None:
    with namespaces.linked_hosts("two", [("10.213.9.1",), ("10.213.9.2",)]) as hosts:
        _second_link(hosts)
        own = ("env", "MASTER_ADDR=10.213.9.1", "GRADWIRE_IFNAME==second")
        before = _sent(hosts)
        launch = Launch("meeting.py", inside=tuple((*h, *own) for h in hosts.inside), timeout=90)
        assert _sums(launch.run()) == [3.0, 3.0]
        assert _sent(hosts) > before + 1000


def _second_link(hosts: namespaces.LinkedHosts) -> None:
    first, second = hosts.names
    peer = ("peer", "name", "second", "netns", second)
    inside = ("netns", "exec", first, "ip")
    namespaces.ip(*inside, "link", "add", "second", "type", "veth", *peer)
    for name, address in ((first, "10.213.10.1"), (second, "10.213.10.2")):
        namespaces.ip("-n", name, "address", "add", f"{address}/24", "dev", "second")
        namespaces.ip("-n", name, "link", "set", "dev", "second", "up")


def _sent(hosts: namespaces.LinkedHosts) -> int:
    """The bytes that the first host has sent over its second link."""
    read = (*hosts.inside[0], "cat", "/sys/class/net/second/statistics/tx_bytes")
    return int(subprocess.run(read, check=True, capture_output=True, text=True).stdout)
