"""One worker's connection with all servers: a small job of its own, in which it is rank 0.

Since no two workers share a job, a worker that dies takes nothing with it, and one that comes back
is the same to the servers as one that comes for the first time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING

import torch

from gradwire import build
from gradwire.environment import Environment

if TYPE_CHECKING:
    from torch.distributed import Work

    from gradwire import _binding

HEADER = 4
"""64-bit numbers in a header: what it is, and three that depend on it."""

WORKER = 0
"""The worker's rank in its job; server i is rank 1 + i."""

_NOTE_SECONDS = 1.0

ENDLESS = timedelta(days=100)
"""For messages that come when somebody feels like it."""


class Tag(IntEnum):
    """What a message is matched by."""

    REQUEST = 0
    """Header from a worker: a :class:`Request` and its clock."""

    REPLY = 1
    """Header from a server: whether it goes well, the updates applied, this worker's clock."""

    GRADIENT = 2
    """A worker's gradient of the server's shard."""

    PARAMETERS = 3
    """The server's shard, either way."""


class Request(IntEnum):
    """What a worker wants."""

    INSTALL = 0
    """Take the parameters that follow, unless there are some."""

    PUSH = 1
    """Take the gradient that follows."""

    PULL = 2
    """Send the parameters, as soon as the mode lets this worker go on."""

    FINISH = 3
    """This worker has trained to its end."""


@dataclass(frozen=True)
class Peers:
    """Who is at the other end, for messages, by rank in the job."""

    me: int
    names: tuple[str, ...]


class Link:
    """The small job of one worker and all servers, seen from one of them."""

    def __init__(self, core: _binding.Rank, peers: Peers, timeout: timedelta) -> None:
        """Take over a core that has joined."""
        self._peers = peers
        self._core = core
        self._backend = build.load().Backend(
            rank=core,
            group=0,
            ranks=list(range(len(peers.names))),
            position=peers.me,
            timeout=timeout,
        )
        self._failures: list[str] = []
        self._lock = threading.Lock()
        self._noted = threading.Event()
        self.on_failure: Callable[[], None] = lambda: None
        """Called on another thread as soon as any message has failed."""

    def send(self, tensor: torch.Tensor, to: int, tag: Tag) -> Work:
        """Start to send; the tensor must stay as it is until the work is done."""
        return self._watched(self._backend.send([tensor], to, tag), to)

    def receive(self, tensor: torch.Tensor, source: int, tag: Tag) -> Work:
        """Start to receive the next message of this tag."""
        return self._watched(self._backend.recv([tensor], source, tag), source)

    def say(self, to: int, tag: Tag, *numbers: int) -> Work:
        """Start to send a header."""
        header = torch.tensor([*numbers, *[0] * (HEADER - len(numbers))])
        return self.send(header, to, tag)

    @property
    def is_open(self) -> bool:
        """Whether messages can still be sent."""
        return self._core.is_open

    @property
    def failure(self) -> str:
        """Why nothing works any more, if so: the peer's name and the core's words.

        Who waits for a message may hear that it failed just before the reason is noted.
        """
        self._noted.wait(_NOTE_SECONDS)
        with self._lock:
            own = [text for text in self._failures if "aborted" not in text]
            return (own or self._failures or [""])[0]

    def _watched(self, work: Work, peer: int) -> Work:
        work.get_future().add_done_callback(lambda future: self._note(future, peer))
        return work

    def _note(self, future: torch.futures.Future[object], peer: int) -> None:
        """Let one failed message fail all: who waits for another peer must hear of it too."""
        try:
            future.value()
        except RuntimeError as error:
            with self._lock:
                is_first = not self._failures
                self._failures.append(f"{self._peers.names[peer]}: {str(error).splitlines()[0]}")
            self._noted.set()
            if is_first:
                self._backend.abort()
            self.on_failure()

    def abort(self) -> None:
        """Fail everything that is pending, here and at the peers."""
        self._backend.abort()

    def close(self) -> None:
        """Let what is on its way finish, and stop."""
        self._backend.shutdown()
        self._core.close()


def open_core(place: tuple[int, int], host: str, token: str) -> _binding.Rank:
    """Open a rank of a small job; ``place`` is rank and world size."""
    environment = Environment.read()
    return build.load().Rank(
        job=environment.job,
        place=place,
        host=host,
        token=token,
        certificates=environment.certificates,
    )
