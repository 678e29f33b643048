"""Sends from one host to another as fast as the network allows, beside others on the same link.

Arguments after the report's path: ``gradwire`` or ``tcp``, the time at which all begin to send, and
the address of the receiving host. The second rank receives and reports its bytes in MEASURED
seconds, which begin WARMED seconds after the start.
"""

import contextlib
import json
import os
import socket
import sys
import time
from collections import deque

RANK = int(os.environ["RANK"])
WARMED, MEASURED = 3.0, 10.0
MESSAGE = 1 << 20
CONGESTION = b"cubic"
AHEAD = 4
"""Messages that are on their way, or posted, at once."""


class Meter:
    """Counts bytes between two moments."""

    def __init__(self, start: float) -> None:
        """Begin to count a while after ``start``, in seconds of the clock that all share."""
        self._begin, self._end = start + WARMED, start + WARMED + MEASURED
        self._bytes = 0

    def note(self, received: int) -> None:
        """Count bytes that have arrived now; report and end the process once it is time."""
        now = time.time()
        if now > self._end:
            with open(sys.argv[1], "w") as out:
                json.dump({"bytes": self._bytes}, out)
            os._exit(0)
        if now > self._begin:
            self._bytes += received

    def is_over(self) -> bool:
        """Whether all have counted."""
        return time.time() > self._end + 1


def gradwire(start: float, meter: Meter) -> None:
    """Send and receive messages of a MiB."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gradwire")
    message = torch.zeros(MESSAGE, dtype=torch.uint8)
    time.sleep(max(0.0, start - time.time()))
    begin = dist.isend if RANK == 0 else dist.irecv
    works = deque(begin(message.clone(), 1 - RANK) for _ in range(AHEAD))
    while not meter.is_over():
        works.popleft().wait()
        if RANK == 1:
            meter.note(MESSAGE)
        works.append(begin(message.clone(), 1 - RANK))


def tcp(start: float, meter: Meter) -> None:
    """Send and receive bytes."""
    place = (sys.argv[4], int(os.environ["MASTER_PORT"]))
    if RANK == 1:
        with socket.create_server(place) as server:
            connection, _ = server.accept()
            while received := connection.recv(MESSAGE):
                meter.note(len(received))
        return
    time.sleep(max(0.0, start - time.time()))
    with socket.create_connection(place) as connection:
        # Whatever this host has as its default; at such round trips CUBIC grows as Reno does.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION)
        while not meter.is_over():
            connection.sendall(bytes(MESSAGE))


def main() -> None:
    """Do as asked, until the time is over for all."""
    start = float(sys.argv[3])
    with contextlib.suppress(RuntimeError, OSError):  # the other side has ended
        {"gradwire": gradwire, "tcp": tcp}[sys.argv[2]](start, Meter(start))
    os._exit(0)


if __name__ == "__main__":
    main()
