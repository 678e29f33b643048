"""Plays NCCL: two processes call the net plugin as NCCL's proxy threads do, without NCCL or a GPU.

Arguments: the report, the version of the interface, and how many connections come and go. Both
processes run the same scenes in the same order; ``Peer`` is NCCL's bootstrap between them. The
last scene kills process 1.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gradwire import nccl
from gradwire.nccl import Net, NetError

RANK = int(os.environ["RANK"])
SIZES = (0, 1, 127, 128, 129, 4096, 70_000, 1 << 20)
SPARE = 300
IN_FLIGHT = 8
PATIENCE = 60.0
FLAGGED_BYTES = 256 << 10
FLAGGED_ROUNDS = 20


class Peer:
    """The other process, by a TCP connection that carries short texts."""

    def __init__(self) -> None:
        """Meet at the launch's port: process 0 listens."""
        address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
        if RANK == 0:
            with socket.create_server(address) as server:
                server.settimeout(PATIENCE)
                self.socket, _ = server.accept()
            return
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self.socket = socket.create_connection(address)
                return
            except ConnectionRefusedError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def give(self, content: bytes) -> None:
        """Send some bytes."""
        self.socket.sendall(struct.pack("!I", len(content)) + content)

    def take(self) -> bytes:
        """Wait for some bytes."""
        (length,) = struct.unpack("!I", self._exactly(4))
        return self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        content = b""
        while len(content) < length:
            more = self.socket.recv(length - len(content))
            if not more:
                raise ConnectionError("the other process has ended")
            content += more
        return content

    def meet(self) -> None:
        """Wait until the other process is here, too."""
        self.give(b"")
        self.take()


def until(ask: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Ask until there is an answer."""
    end = time.monotonic() + seconds
    while (answer := ask()) is None:
        if time.monotonic() > end:
            raise TimeoutError(f"no answer within {seconds} s")
    return answer


def code_of(ask: Callable[[], Any]) -> int:
    """Ask until it fails, and return NCCL's number of the error."""

    def failed() -> int | None:
        try:
            ask()
        except NetError as error:
            return error.result
        return None

    return until(failed)


class Link:
    """A connection each way with the other process."""

    def __init__(self, net: Net, peer: Peer) -> None:
        """Listen, connect and accept, all by turns."""
        self.net = net
        handle, self.listening = net.listen()
        peer.give(handle.raw)
        self.handle = ctypes.create_string_buffer(peer.take(), nccl.HANDLE_BYTES)
        self.sending, self.receiving, self.asked = None, None, 0
        while self.sending is None or self.receiving is None:
            self.asked += self.sending is None
            self.sending = self.sending or net.connect(self.handle)
            self.receiving = self.receiving or net.accept(self.listening)

    def close(self) -> None:
        """Close all three ends."""
        for comm, end in ((self.sending, "Send"), (self.receiving, "Recv")):
            self.net.close(comm, end)
        self.net.close(self.listening, "Listen")


def pattern(size: int, seed: int) -> bytes:
    """Return bytes that differ between messages and between places."""
    block = bytes((seed * 31 + at * 7 + at // 251) % 256 for at in range(min(size, 4099)))
    return (block * (size // max(len(block), 1) + 1))[:size]


class Outbox:
    """Sends messages of these sizes, eight in flight."""

    def __init__(self, link: Link, sizes: tuple[int, ...]) -> None:
        """Send nothing yet."""
        self.link, self.sizes = link, sizes
        self.open, self.next, self.done = dict[int, Any](), 0, 0

    def step(self) -> bool:
        """Send one more if it may be, test the oldest; return whether all are done."""
        net = self.link.net
        if self.next < len(self.sizes) and self.next - self.done < IN_FLIGHT:
            size = self.sizes[self.next]
            content = ctypes.create_string_buffer(pattern(size, self.next + RANK), size + 1)
            request = net.isend(self.link.sending, content, size)
            if request:
                self.open[self.next] = (request, content)
                self.next += 1
        if self.done in self.open and net.test(self.open[self.done][0]) is not None:
            del self.open[self.done]
            self.done += 1
        return self.done == len(self.sizes)


class Inbox:
    """Receives messages of these sizes into larger memory, eight in flight."""

    def __init__(self, link: Link, sizes: tuple[int, ...]) -> None:
        """Post nothing yet."""
        self.link, self.sizes, self.wrong = link, sizes, list[str]()
        self.open, self.next, self.done = dict[int, Any](), 0, 0

    def step(self) -> bool:
        """Post one more if it may be, test the oldest; return whether all have come."""
        net = self.link.net
        if self.next < len(self.sizes) and self.next - self.done < IN_FLIGHT:
            room = ctypes.create_string_buffer(self.sizes[self.next] + SPARE)
            request = net.irecv(self.link.receiving, room, len(room))
            if request:
                self.open[self.next] = (request, room)
                self.next += 1
        if self.done in self.open:
            request, room = self.open[self.done]
            if (length := net.test(request)) is not None:
                self._compare(length, room)
                del self.open[self.done]
                self.done += 1
        return self.done == len(self.sizes)

    def _compare(self, length: int, room: Any) -> None:
        size = self.sizes[self.done]
        if length != size or room.raw[:size] != pattern(size, self.done + 1 - RANK):
            self.wrong.append(f"message {self.done} of {size} bytes came with {length}")


def exchange(link: Link, sizes: tuple[int, ...]) -> list[str]:
    """Send messages both ways; return those whose bytes differ."""
    outbox, inbox = Outbox(link, sizes), Inbox(link, sizes)
    until(lambda: True if outbox.step() & inbox.step() else None)
    return inbox.wrong


def messages(net: Net, peer: Peer) -> dict[str, Any]:
    """Sizes around all borders, many times; and one of 64 MiB."""
    link = Link(net, peer)
    wrong = exchange(link, (*SIZES * 4, 64 << 20))
    peer.meet()
    link.close()
    return {"wrong": wrong}


def limits(net: Net, peer: Peer) -> dict[str, Any]:
    """The 33rd request; a message that is too long; several receives at once; foreign memory."""
    link = Link(net, peer)
    room = ctypes.create_string_buffer(64)
    sent = [net.isend(link.sending, room, 0) for _ in range(nccl.REQUESTS)]
    further = [net.isend(link.sending, room, 0)]
    peer.meet()
    posted = [net.irecv(link.receiving, room, 0) for _ in range(nccl.REQUESTS)]
    further += [net.irecv(link.receiving, room, 0)]
    lengths = {nccl.finished(net, request, PATIENCE) for request in sent + posted if request}
    refused = code_of(lambda: net.irecv(link.receiving, room, 64, count=2))
    foreign = code_of(lambda: net.register(link.receiving, room, kind=2))
    long = ctypes.create_string_buffer(101)
    receive, send = net.irecv(link.receiving, room, 50), net.isend(link.sending, long, 101)
    said: list[str] = []
    net._log = lambda _level, line: said.append(line)
    codes = [code_of(lambda: net.test(receive)), code_of(lambda: net.test(send))]
    peer.meet()
    link.close()
    return {
        "posted": [sum(request is not None for request in some) for some in (sent, posted)],
        "further": any(further),
        "lengths": sorted(lengths),
        "several": refused,
        "foreign": foreign,
        "too_long": codes,
        "said": " ".join(said),
    }


def connecting(net: Net, peer: Peer) -> dict[str, Any]:
    """Accept before and after connect; a listener that serves twice, and one that never does."""
    handle, listening = net.listen()
    idle = [net.accept(listening) for _ in range(100)]
    peer.give(handle.raw)
    theirs = ctypes.create_string_buffer(peer.take(), nccl.HANDLE_BYTES)
    early = [net.connect(theirs) for _ in range(100)]
    peer.meet()
    first = second = accepted = None
    accepts: list[Any] = []
    while first is None or second is None or len(accepts) < 2:
        first = first or net.connect(theirs)
        if first and second is None:
            second = net.connect(theirs)
        accepted = net.accept(listening)
        accepts += [accepted] if accepted else []
    peer.meet()
    for comm in (first, second):
        net.close(comm, "Send")
    for comm in accepts:
        net.close(comm, "Recv")
    net.close(listening, "Listen")
    handle, listening = net.listen()
    peer.give(handle.raw)
    theirs = ctypes.create_string_buffer(peer.take(), nccl.HANDLE_BYTES)
    unaccepted = [net.connect(theirs) for _ in range(10)]
    peer.meet()
    net.close(listening, "Listen")
    peer.meet()
    return {
        "idle": any(idle),
        "early": any(early),
        "unaccepted": any(unaccepted),
        "gone": code_of(lambda: net.connect(theirs)),
    }


class Poller(threading.Thread):
    """Reads the memory of a receive while it is written, as a GPU does under NCCL's protocol LL.

    A word of eight bytes has a flag and four bytes of data. When a word has this round's flag, its
    data must be of this round, too.
    """

    def __init__(self, room: Any, round_: int) -> None:
        """Begin to read."""
        super().__init__(daemon=True)
        self.words = np.frombuffer(room, np.uint32).reshape(-1, 2)
        self.round, self.torn, self.partial, self.is_over = round_, 0, 0, False
        self.start()

    def run(self) -> None:
        """Count the words whose data is older than their flag, and reads amid the message."""
        while not self.is_over:
            data, flag = self.words.copy().T
            has_come = flag == self.round
            self.torn += int((has_come & (data != self.round)).sum())
            self.partial += bool(has_come.any() and not has_come.all())

    def end(self) -> None:
        """Stop reading."""
        self.is_over = True
        self.join()


def flags(net: Net, peer: Peer) -> dict[str, Any]:
    """Poll the flags of words while they arrive, round by round in the same memory."""
    link = Link(net, peer)
    room = ctypes.create_string_buffer(FLAGGED_BYTES)
    memory = ctypes.create_string_buffer(FLAGGED_BYTES)
    numbers = np.frombuffer(memory, np.uint32)
    torn = late = partial = 0
    for round_ in range(1, FLAGGED_ROUNDS + 1):
        numbers[:] = round_
        receive = until(lambda: net.irecv(link.receiving, room, FLAGGED_BYTES))
        poller = Poller(room, round_)
        peer.meet()
        send = until(lambda: net.isend(link.sending, memory, FLAGGED_BYTES))
        for request in (send, receive):
            nccl.finished(net, request, PATIENCE)
        late += int((poller.words != round_).sum())
        poller.end()
        torn += poller.torn
        partial += poller.partial
    peer.meet()
    link.close()
    return {"torn": torn, "late": late, "partial": partial}


def closing(net: Net, peer: Peer) -> dict[str, Any]:
    """Close with requests in flight, on both sides; then a new connection works."""
    link = Link(net, peer)
    big = ctypes.create_string_buffer(1 << 20)
    for _ in range(4):
        net.isend(link.sending, big, len(big))
    peer.meet()
    codes = []
    if RANK == 1:
        request = until(lambda: net.irecv(link.receiving, big, 10))
        codes = [code_of(lambda: net.test(request))]
    peer.meet()
    begun = time.monotonic()
    link.close()
    took = time.monotonic() - begun
    peer.meet()
    link = Link(net, peer)
    wrong = exchange(link, SIZES)
    peer.meet()
    link.close()
    return {"took": took, "wrong": wrong, "codes": codes}


def communicators(net: Net, peer: Peer) -> dict[str, Any]:
    """Ask for properties before a second communicator begins, and end one of the two."""
    before = net.properties()
    net.init()
    net.finalize()
    link = Link(net, peer)
    wrong = exchange(link, SIZES)
    peer.meet()
    link.close()
    return {
        "name": net.name,
        "devices": net.devices(),
        "interface": before.name.decode(),
        "kinds": before.ptrSupport,
        "receives": before.maxRecvs,
        "wrong": wrong,
        "protocol": _variable(b"NCCL_PROTO"),
    }


def _variable(name: bytes) -> str:
    """Return a variable as C sees it: Python keeps a copy of the environment."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    return (getenv(name) or b"").decode()


def turnover(net: Net, peer: Peer, count: int) -> dict[str, Any]:
    """Open and close connections; return the growth of descriptors and of memory."""

    def some(times: int) -> tuple[int, int]:
        for _ in range(times):
            link = Link(net, peer)
            exchange(link, (10,))
            peer.meet()
            link.close()
        memory = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
        return len(os.listdir("/proc/self/fd")), memory

    before, after = some(count // 3), some(count)
    return {"descriptors": after[0] - before[0], "bytes": after[1] - before[1]}


def killed(net: Net, peer: Peer) -> dict[str, Any]:
    """Process 1 dies; every request of process 0 fails soon."""
    link = Link(net, peer)
    room = ctypes.create_string_buffer(4 << 20)
    receive = net.irecv(link.receiving, room, len(room))
    send = net.isend(link.sending, room, len(room))
    peer.meet()
    if RANK == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    codes = [code_of(lambda: net.test(receive)), code_of(lambda: net.test(send))]
    took = time.monotonic() - begun
    link.close()
    return {"codes": codes, "took": took}


def main() -> None:
    """Run all scenes, and report what was seen."""
    path, version, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    peer, report, lines = Peer(), dict[str, Any](), list[str]()

    def keep() -> None:
        with open(path, "w") as out:
            json.dump(report, out)

    net = Net(nccl.library(), version, lambda _level, line: lines.append(line))
    net.init()
    for scene in (messages, limits, connecting, flags, closing, communicators):
        print(scene.__name__, file=sys.stderr, flush=True)
        report[scene.__name__] = scene(net, peer)
        net._log = lambda _level, line: lines.append(line)
    if count:
        report["turnover"] = turnover(net, peer, count)
    report["lines"] = lines
    keep()
    peer.meet()
    report["killed"] = killed(net, peer)
    keep()


if __name__ == "__main__":
    main()
