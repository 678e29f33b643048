"""Goodput of the plugin of NCCL between two network namespaces, beside plain TCP.

    sudo .venv/bin/python benches/nccl_goodput.py [--seconds 2] [--rounds 3]

Two processes play NCCL (``gradwire.nccl``): messages of 128 KiB and 1 MiB, eight in flight, one
connection, with 0, 0.1 and 1 % of the packets of both directions dropped by the receiving host.
Beside it runs the scheme of NCCL's socket transport: each message is a length and its bytes on one
TCP connection. The schemes take turns; each number is the median of the rounds, in MB/s (10^6).

With losses, segmentation offload is off for both schemes, as in ``examples/lossy.py``.
"""

import argparse
import contextlib
import ctypes
import json
import os
import select
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gradwire import nccl

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import lossy

NAMES = ("n-gwnccl-0", "n-gwnccl-1")
LINKS = ("gwn0", "gwn1")
ADDRESSES = ("10.213.77.1", "10.213.77.2")
IN_FLIGHT = 8
PORT = 29_731
SIZES = (128 << 10, 1 << 20)
LOSSES = (0.0, 0.1, 1.0)


def main() -> None:
    """Measure all cells, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--side", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        side, scheme, size = options.side
        _side(int(side), scheme, int(size), options.seconds)
        return
    with _namespaces():
        print("| lost | message | TCP MB/s | plugin MB/s | ratio |\n|---|---|---|---|---|")
        for loss in LOSSES:
            _lose(loss)
            for size in SIZES:
                print(_row(loss, size, options), flush=True)


def _row(loss: float, size: int, options: argparse.Namespace) -> str:
    found: dict[str, list[float]] = {"tcp": [], "plugin": []}
    for _ in range(options.rounds):
        for scheme, numbers in found.items():
            numbers.append(_measure(scheme, size, options.seconds))
    tcp, plugin = (statistics.median(numbers) / 1e6 for numbers in found.values())
    return f"| {loss:g} % | {size >> 10} KiB | {tcp:.0f} | {plugin:.0f} | {plugin / tcp:.2f} |"


def _measure(scheme: str, size: int, seconds: float) -> float:
    """Run both sides; return the bytes a second that arrived."""
    command = [sys.executable, __file__, "--seconds", str(seconds), "--side"]
    sides = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, *command, str(side), scheme, str(size)],
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ, GRADWIRE_TOKEN="bench", NCCL_SOCKET_IFNAME=link),
        )
        for side, (name, link) in enumerate(zip(NAMES, LINKS, strict=True))
    ]
    told = [process.communicate(timeout=60 + seconds)[0] for process in sides]
    return json.loads(told[1])


def _side(side: int, scheme: str, size: int, seconds: float) -> None:
    """Side 0 sends until the time is over; side 1 prints its goodput."""
    if side == 1:
        with socket.create_server((ADDRESSES[1], PORT)) as server:
            peer, _ = server.accept()
    else:
        peer = _dial(ADDRESSES[1], PORT)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    run = {"tcp": (_tcp_sends, _tcp_receives), "plugin": (_plugin_sends, _plugin_receives)}
    result = run[scheme][side](peer, size, seconds)
    if side == 1:
        print(json.dumps(result))


def _dial(address: str, port: int) -> socket.socket:
    until = time.monotonic() + 20
    while True:
        try:
            return socket.create_connection((address, port))
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def _tcp_sends(peer: socket.socket, size: int, seconds: float) -> None:
    message = size.to_bytes(8, "little") + bytes(size)
    until = time.monotonic() + seconds + 0.5
    with contextlib.suppress(OSError):
        while time.monotonic() < until:
            peer.sendall(message)


def _tcp_receives(peer: socket.socket, size: int, seconds: float) -> float:
    room, head = memoryview(bytearray(size)), memoryview(bytearray(8))
    begun = arrived = 0.0
    while not begun or time.monotonic() < begun + seconds:
        _fill(peer, head)
        _fill(peer, room)
        if begun:
            arrived += size
        begun = begun or time.monotonic()
    return arrived / (time.monotonic() - begun)


def _fill(peer: socket.socket, room: memoryview) -> None:
    peer.setblocking(False)
    filled = 0
    while filled < len(room):
        try:
            filled += peer.recv_into(room[filled:])
        except BlockingIOError:
            select.select([peer], [], [])


def _plugin(peer: socket.socket, side: int) -> tuple[nccl.Net, Any]:
    net = nccl.Net(nccl.library(), nccl.VERSIONS[-1])
    net.init()
    if side == 1:
        handle, listening = net.listen()
        peer.sendall(handle.raw)
        while not (comm := net.accept(listening)):
            pass
        return net, comm
    content = b""
    while len(content) < nccl.HANDLE_BYTES:
        content += peer.recv(nccl.HANDLE_BYTES - len(content))
    handle = ctypes.create_string_buffer(content, nccl.HANDLE_BYTES)
    while not (comm := net.connect(handle)):
        pass
    return net, comm


def _plugin_sends(peer: socket.socket, size: int, seconds: float) -> None:
    net, comm = _plugin(peer, 0)
    memory = [ctypes.create_string_buffer(size) for _ in range(IN_FLIGHT)]
    requests: list[Any] = [None] * IN_FLIGHT
    until, at = time.monotonic() + seconds + 0.5, 0
    with contextlib.suppress(nccl.NetError):
        while time.monotonic() < until:
            if requests[at] is None:
                requests[at] = net.isend(comm, memory[at], size)
            oldest = (at + 1) % IN_FLIGHT
            if requests[oldest] is None:
                at = oldest
            elif net.test(requests[oldest]) is not None:
                requests[oldest] = None
                at = oldest


def _plugin_receives(peer: socket.socket, size: int, seconds: float) -> float:
    net, comm = _plugin(peer, 1)
    memory = [ctypes.create_string_buffer(size) for _ in range(IN_FLIGHT)]
    requests = [net.irecv(comm, room, size) for room in memory]
    begun = arrived = 0.0
    at = 0
    while not begun or time.monotonic() < begun + seconds:
        if net.test(requests[at]) is not None:
            requests[at] = net.irecv(comm, memory[at], size)
            at = (at + 1) % IN_FLIGHT
            if begun:
                arrived += size
            begun = begun or time.monotonic()
    return arrived / (time.monotonic() - begun)


@contextlib.contextmanager
def _namespaces() -> Iterator[None]:
    try:
        for name in NAMES:
            _run("ip", "netns", "add", name)
        peer = ("peer", "name", LINKS[1], "netns", NAMES[1])
        inside = ("ip", "netns", "exec", NAMES[0])
        _run(*inside, "ip", "link", "add", LINKS[0], "type", "veth", *peer)
        for name, link, address in zip(NAMES, LINKS, ADDRESSES, strict=True):
            _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", link)
            for device in ("lo", link):
                _run("ip", "-n", name, "link", "set", "dev", device, "up")
        yield
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def _lose(percent: float) -> None:
    """Let the kernel of both hosts drop this share of the packets that arrive.

    Without segmentation offload a drop is a drop of one packet of the link's MTU.
    """
    for name, link in zip(NAMES, LINKS, strict=True):
        inside = ("ip", "netns", "exec", name)
        subprocess.run([*inside, "tc", "qdisc", "del", "dev", link, "clsact"], capture_output=True)
        if percent:
            program = lossy.dropping(percent / 100)
            _run(*inside, "ip", "link", "set", link, "gso_max_segs", "1")
            _run(*inside, "tc", "qdisc", "add", "dev", link, "clsact")
            filtered = ("tc", "filter", "add", "dev", link, "ingress", "bpf", "da", "bytecode")
            _run(*inside, *filtered, program)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    main()
