"""Run programs on two hosts with a long, lossy path between them: ``far.py 50ms 1% COMMAND``.

The hosts are network namespaces. A process carries each packet between them: it waits for half a
round trip, and loses a share of the packets, TCP's and UDP's alike; so it needs no traffic control
in the kernel. The command runs in the first namespace. With ``--there COMMAND`` another one runs in
the second. Addresses are 10.9.0.1 and 10.9.0.2. Needs root, and ends with the command.
"""

import argparse
import collections
import ctypes
import fcntl
import os
import random
import select
import shlex
import struct
import subprocess
import sys
import threading
import time

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
            f"link set dev far mtu {MTU} up",
            "link set dev lo up",
        ):
            subprocess.run(["ip", *line.split()], check=True)

    def start(self, command: str) -> subprocess.Popen[bytes]:
        """Start a command on this host."""
        return subprocess.Popen(["ip", "netns", "exec", self.name, *shlex.split(command)])

    def end(self) -> None:
        """Remove the host."""
        subprocess.run(["ip", "netns", "delete", self.name], check=True)


def carry(sides: tuple[Side, Side], delay: float, loss: float) -> None:
    """Carry packets both ways for as long as the process lives."""
    draws = random.Random(1)
    waiting: collections.deque[tuple[float, int, bytes]] = collections.deque()
    ends = {sides[0].tun: sides[1].tun, sides[1].tun: sides[0].tun}
    while True:
        patience = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for tun in select.select(list(ends), [], [], patience)[0]:
            packet = os.read(tun, 1 << 16)
            if draws.random() >= loss:
                waiting.append((time.monotonic() + delay, ends[tun], packet))
        while waiting and waiting[0][0] <= time.monotonic():
            _, tun, packet = waiting.popleft()
            os.write(tun, packet)


def main() -> None:
    """Make the path, run the commands, remove the path."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("delay", help="half of the round trip: 50ms")
    parser.add_argument("loss", help="share of packets that are lost: 1%%")
    parser.add_argument("command", help="runs on 10.9.0.1")
    parser.add_argument("--there", help="runs on 10.9.0.2")
    chosen = parser.parse_args()
    delay, loss = float(chosen.delay.removesuffix("ms")) / 1e3, float(chosen.loss.strip("%")) / 100
    sides = (Side(0), Side(1))
    try:
        threading.Thread(target=carry, args=(sides, delay, loss), daemon=True).start()
        there = [sides[1].start(chosen.there)] if chosen.there else []
        code = sides[0].start(chosen.command).wait()
        for process in there:
            process.terminate() if code else process.wait()
    finally:
        for side in sides:
            side.end()
    sys.exit(code)


if __name__ == "__main__":
    main()
