"""Facts about shares of a bottleneck: real sockets between namespaces, and a token bucket."""

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from launching import Launch

NAMESPACES = [f"gradwire-share-{os.getpid()}-{rank}" for rank in range(2)]
INTERFACES = ("gws0", "gws1")
ADDRESSES = ("10.213.9.1", "10.213.9.2")
RATE = "100mbit"
STARTED_SECONDS = 20
"""All processes are ready by then."""
BOUNDS = {"gradwire": (1 / 3, 2 / 3), "tcp": (0.0, 1.0)}
"""Shares of the first job: of two jobs none gets twice as much. Beside TCP both go on, and no more
is promised: docs/limits.md has the shares."""

_slow = pytest.mark.skipif(
    not os.environ.get("GRADWIRE_SLOW"), reason="sends for minutes; GRADWIRE_SLOW=1 runs it"
)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def bottleneck(request: pytest.FixtureRequest) -> Iterator[str]:
    """Two namespaces, and between them a link of RATE with a buffer of the parameter's size."""
    if os.geteuid() != 0 or shutil.which("tc") is None:
        pytest.skip("network namespaces need root, and the programs ip and tc")
    made = subprocess.run(["ip", "netns", "add", NAMESPACES[0]], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"network namespaces cannot be made: {made.stderr.strip()}")
    try:
        _run("ip", "netns", "add", NAMESPACES[1])
        # A token bucket takes single packets, as a switch would.
        single = ("gso_max_segs", "1")
        link = ("link", "add", INTERFACES[0], *single, "type", "veth")
        peer = ("peer", "name", INTERFACES[1], *single, "netns", NAMESPACES[1])
        _run("ip", "-n", NAMESPACES[0], *link, *peer)
        for name, interface, address in zip(NAMESPACES, INTERFACES, ADDRESSES, strict=True):
            _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", interface)
            for device in ("lo", interface):
                _run("ip", "-n", name, "link", "set", "dev", device, "up")
        bucket = ("tbf", "rate", RATE, "burst", "8kb", "limit", request.param)
        _run("tc", "-n", NAMESPACES[0], "qdisc", "add", "dev", INTERFACES[0], "root", *bucket)
        yield request.param
    finally:
        for name in NAMESPACES:
            with contextlib.suppress(subprocess.CalledProcessError):
                _run("ip", "netns", "delete", name)


def _received(kind: str, start: float) -> int:
    """Send by ``kind`` from one namespace to the other; return the bytes that arrived in time."""
    launch = Launch(
        "sharing.py",
        arguments=(kind, str(start), ADDRESSES[1]),
        job='[transport]\nwire = "udp"\n',
        variables=(("MASTER_ADDR", ADDRESSES[0]),),
        inside=tuple(("ip", "netns", "exec", name) for name in NAMESPACES),
        timeout=90,
    )
    return launch.run()[1].succeeded()["bytes"]


@_slow
@pytest.mark.parametrize("rival", ["tcp", "gradwire"])
@pytest.mark.parametrize("bottleneck", ["64kb", "512kb"], indirect=True)
def a_job_shares_a_bottleneck(bottleneck: str, rival: str) -> None:
    start = time.time() + STARTED_SECONDS
    with ThreadPoolExecutor() as pool:
        flows = [pool.submit(_received, kind, start) for kind in ("gradwire", rival)]
        ours, theirs = (flow.result() for flow in flows)
    share = ours / (ours + theirs)
    print(f"{RATE}, buffer {bottleneck}: {share:.3f} beside {rival}; {ours=} {theirs=}")
    least, most = BOUNDS[rival]
    assert least < share < most
