"""One worker's connection with all servers: a small job of its own, in which it is rank 0.

Each worker has a job of its own. So a worker that dies breaks no other job, and servers treat one
that returns like one that comes for the first time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend

from gradwire import build
from gradwire.environment import Environment

if TYPE_CHECKING:
    from gradwire import _binding

HEADER = 4
"""64-bit numbers in a header: a request or a status, and three that depend on it."""

WORKER = 0
"""The worker's rank in its job; server i is rank 1 + i."""

_NOTE_SECONDS = 1.0

ENDLESS = timedelta(days=100)
"""For messages that are sent at any time."""


class Tag(IntEnum):
    """The tag by which a message is matched."""

    REQUEST = 0
    """Header from a worker: a :class:`Request` and its clock."""

    REPLY = 1
    """Header from a server: whether it goes well, the updates applied, this worker's clock."""

    GRADIENT = 2
    """A worker's gradient of the server's shard."""

    PARAMETERS = 3
    """The server's shard, either way."""


class ServerTag(IntEnum):
    """The tags of messages between servers, in the job that they have with redundancy."""

    HEADER = 0
    """What a server has, or the length of its state."""

    STATE = 1
    """A piece of a server's state."""

    URGENT = 2
    """A symbol without which a lost server has not its own state."""

    SYMBOLS = 3
    """Another symbol that a lost server had."""


class Request(IntEnum):
    """The requests of a worker."""

    INSTALL = 0
    """Accept the parameters that follow, unless the server has some."""

    PUSH = 1
    """Take the gradient that follows."""

    PULL = 2
    """Send the parameters, as soon as the mode lets this worker continue; whole, if so asked."""

    FINISH = 3
    """This worker has trained to its end."""


@dataclass(frozen=True)
class Loss:
    """The tolerance of a message, and hints by which the core chooses the losses."""

    tolerance: float = 0.0
    """Share that may be missing; there the receiver's tensor keeps its old values."""

    step: int = 0
    """Whose loss budget it counts against."""

    key: int = 0
    """The same for the same tensor in every step; 0 for none."""

    layers: tuple[tuple[int, int], ...] = ()
    """The byte at which each layer begins; layer 0 is the first of the forward pass."""

    layer_count: int = 0
    """Layers of the model; 0 when they are not known."""

    keeps_previous: bool = False
    """Whether holes keep the receiver's former values, in place of the job's rule for holes."""

    def told(self) -> _binding.Loss:
        """Return this in the form that the core takes."""
        return build.load().Loss(
            layer_offsets=[offset for offset, _ in self.layers],
            layers=[layer for _, layer in self.layers],
            layer_count=self.layer_count,
            tolerance=self.tolerance,
            step=self.step,
            tensor_key=self.key,
            keeps_previous=self.keeps_previous,
        )


LOSSLESS = Loss()


@dataclass(frozen=True)
class Peers:
    """Names of the peers for messages, by rank in the job."""

    me: int
    names: tuple[str, ...]


class Link:
    """The small job of one worker and all servers, seen from one of them."""

    def __init__(self, core: _binding.Rank, peers: Peers, timeout: timedelta) -> None:
        """Take over a core that has joined."""
        self._peers = peers
        self._core = core
        self._binding = build.load()
        self._backend = self._binding.Backend(
            rank=core,
            group=(0, list(range(len(peers.names))), peers.me),
            store=dist.HashStore(),  # for monitored barriers, which links do not use
            options=Backend.Options("gradwire", timeout),
            staging=self._binding.Staging(stream_wait=False, of_host=False),
        )
        self._failures: list[str] = []
        self._lock = threading.Lock()
        self._noted = threading.Event()
        self.on_failure: Callable[[], None] = lambda: None
        """Called on another thread as soon as any message has failed."""

    def send(
        self, tensor: torch.Tensor, to: int, tag: Tag | ServerTag, loss: Loss | None = None
    ) -> _binding.Message:
        """Start to send; the tensor must stay as it is until the work is done."""
        told = (loss or LOSSLESS).told()
        sent = self._binding.send_lossy(self._backend, tensor, to, tag, told)
        return self._watched(sent, to)

    def receive(
        self, tensor: torch.Tensor, source: int, tag: Tag | ServerTag, loss: Loss | None = None
    ) -> _binding.Message:
        """Start to receive the next message of this tag, which is sent with the same tolerance."""
        told = (loss or LOSSLESS).told()
        received = self._binding.receive_lossy(self._backend, tensor, source, tag, told)
        return self._watched(received, source)

    def say(self, to: int, tag: Tag, *numbers: int) -> _binding.Message:
        """Start to send a header."""
        header = torch.tensor([*numbers, *[0] * (HEADER - len(numbers))])
        return self.send(header, to, tag)

    @property
    def job_tolerance(self) -> float:
        """Share of a gradient that the job lets be missing."""
        return self._backend.job_tolerance()

    @cached_property
    def holes(self) -> str:
        """The job's rule for missing elements: ``rescale``, ``zero``, ..."""
        return self._backend.job()["holes"].strip('"')

    def counters(self) -> dict[str, int]:
        """Return the counters of this end of the link."""
        return self._backend.counters()

    @property
    def is_open(self) -> bool:
        """Whether messages can still be sent."""
        return self._core.is_open

    @property
    def has_failed(self) -> bool:
        """Whether a message has failed."""
        with self._lock:
            return bool(self._failures)

    @property
    def failure(self) -> str:
        """The reason of a failure, if there was one: the peer's name and the core's words.

        A waiter may learn of a failed message just before the reason is noted.
        """
        self._noted.wait(_NOTE_SECONDS)
        with self._lock:
            own = [text for text in self._failures if "aborted" not in text]
            return (own or self._failures or [""])[0]

    def _watched(self, work: _binding.Message, peer: int) -> _binding.Message:
        work.get_future().add_done_callback(lambda future: self._note(future, peer))
        return work

    def _note(self, future: torch.futures.Future[object], peer: int) -> None:
        """Make one failed message fail all: waiters for other peers must learn of it, too."""
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
        """Fail all pending messages, here and at the peers."""
        self._backend.abort()

    def close(self) -> None:
        """Let messages in flight finish, and stop."""
        self._backend.shutdown()
        self._core.close()


def open_core(place: tuple[int, int], host: str, token: str) -> _binding.Rank:
    """Open a rank of a small job; ``place`` is rank and world size."""
    environment = Environment.read()
    return build.load().Rank(
        settings=(environment.job, environment.trace, environment.log),
        place=(*place, -1),
        host=host,
        credentials=(token, *environment.certificates),
        job="",
    )
