"""Run programs on two hosts with a long, lossy path between them: ``far.py 50ms 1% COMMAND``.

The hosts are network namespaces. A process carries each packet between them: it waits for half a
round trip, and loses a share of the packets, TCP's and UDP's alike; so it needs no traffic control
in the kernel, but a C++ compiler. The command runs in the first namespace. With ``--there COMMAND``
another one runs in the second. Addresses are 10.9.0.1 and 10.9.0.2. Needs root, and ends with the
command.
"""

import argparse
import contextlib
import ctypes
import fcntl
import os
import shlex
import struct
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
ADDRESSES = ("10.9.0.1", "10.9.0.2")
MTU = 1500


class Side:
    """One host: its namespace, and the end of the path in it."""

    def __init__(self, number: int) -> None:
        """Make the namespace and its interface, by a thread that enters it for a moment."""
        self.name = f"gradwire-far-{os.getpid()}-{number}"
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        making = threading.Thread(target=self._make, args=(number,))
        making.start()
        making.join()

    def _make(self, number: int) -> None:
        with open(f"/var/run/netns/{self.name}") as place:
            if LIBC.setns(place.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")
        self.tun = os.open("/dev/net/tun", os.O_RDWR)
        fcntl.ioctl(self.tun, TUNSETIFF, struct.pack("16sH", b"far", IFF_TUN | IFF_NO_PI))
        own = ADDRESSES[number]
        for line in (
            f"address add {own}/24 dev far",
            f"link set dev far mtu {MTU} txqueuelen 30000 up",
            "link set dev lo up",
        ):
            subprocess.run(["ip", *line.split()], check=True)

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Start a command on this host."""
        return subprocess.Popen(["ip", "netns", "exec", self.name, *shlex.split(command)])

    def end(self) -> None:
        """Remove the host."""
        subprocess.run(["ip", "netns", "delete", self.name], check=True)


def carry(sides: tuple[Side, Side], path: list[float]) -> subprocess.Popen[bytes]:
    """Start to carry packets both ways. ``path``: seconds, lost share, bytes per second, bytes."""
    with tempfile.TemporaryDirectory() as folder:
        carrier = f"{folder}/carrier"
        source = Path(__file__).with_name("carrier.cpp")
        subprocess.run(["c++", "-std=c++17", "-O2", "-o", carrier, source], check=True)
        command = [carrier, *map(str, path)]
        return subprocess.Popen(command, stdin=sides[0].tun, stdout=sides[1].tun)


def main() -> None:
    """Make the path, run the commands, remove the path."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("delay", help="half of the round trip: 50ms")
    parser.add_argument("loss", help="share of packets that are lost: 1%%")
    parser.add_argument("command", help="runs on 10.9.0.1")
    parser.add_argument("--there", help="runs on 10.9.0.2")
    parser.add_argument("--rate", type=float, default=0, help="Mb/s of the path each way; 0: any")
    parser.add_argument("--buffer", type=float, default=256, help="KiB that wait there at most")
    chosen = parser.parse_args()
    delay, loss = float(chosen.delay.removesuffix("ms")) / 1e3, float(chosen.loss.strip("%")) / 100
    path = [delay, loss, chosen.rate * 1e6 / 8, chosen.buffer * 1024]
    sides = (Side(0), Side(1))
    with contextlib.ExitStack() as ends:
        for side in sides:
            ends.callback(side.end)
        ends.callback(carry(sides, path).kill)
        there = [sides[1].start(chosen.there)] if chosen.there else []
        code = sides[0].start(chosen.command).wait()
        for process in there:
            process.terminate() if code else process.wait()
    sys.exit(code)


if __name__ == "__main__":
    main()
