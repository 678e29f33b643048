"""Two hosts for tests: network namespaces that a link joins."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest


@dataclass(frozen=True)
class LinkedHosts:
    """The namespaces of two hosts, and the interface of each at the link."""

    names: tuple[str, str]
    interfaces: tuple[str, str]

    @property
    def inside(self) -> tuple[tuple[str, ...], ...]:
        """The commands that start a process on each host."""
        return tuple(("ip", "netns", "exec", name) for name in self.names)


@contextlib.contextmanager
def linked_hosts(label: str, addresses: Sequence[Sequence[str]]) -> Iterator[LinkedHosts]:
    """Make two hosts, with the addresses of each; skips the test where that is not possible."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and the ip command")
    names = (f"gradwire-{label}-{os.getpid()}-0", f"gradwire-{label}-{os.getpid()}-1")
    hosts = LinkedHosts(names, ("gwt0", "gwt1"))
    made = subprocess.run(["ip", "netns", "add", names[0]], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"network namespaces cannot be made: {made.stderr.strip()}")
    try:
        ip("netns", "add", names[1])
        peer = ("peer", "name", hosts.interfaces[1], "netns", names[1])
        # Inside of a namespace, so that jobs beside this one may use the same names.
        ip(*hosts.inside[0][1:], "ip", "link", "add", hosts.interfaces[0], "type", "veth", *peer)
        for name, interface, own in zip(names, hosts.interfaces, addresses, strict=True):
            for address in own:
                is_old = "." in address
                length, wait = ("24", ()) if is_old else ("64", ("nodad",))
                ip("-n", name, "address", "add", f"{address}/{length}", "dev", interface, *wait)
            for device in ("lo", interface):
                ip("-n", name, "link", "set", "dev", device, "up")
        yield hosts
    finally:
        for name in names:
            with contextlib.suppress(subprocess.CalledProcessError):
                ip("netns", "delete", name)


def ip(*arguments: str) -> None:
    """Run the ip command."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)
