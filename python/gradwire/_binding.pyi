"""The compiled part: a rank of the core, and PyTorch's backend over it."""

from collections.abc import Sequence

import torch
from torch._C._distributed_c10d import Backend as _Backend
from torch.distributed import ReduceOp, Store, Work

def close_all(ranks: Sequence[Rank], patience: float) -> None:
    """Close several ranks at the same time: each waits for the other ranks of its own job.

    ``patience`` is how many seconds they wait; with 0, operations in flight end here at once.
    """

class Rank:
    """This process's place in a job: sockets, driver thread, completion pool."""

    def __init__(
        self,
        settings: tuple[str, str, str],
        place: tuple[int, int, int],
        host: str,
        credentials: tuple[str, str, str, str],
        job: str,
    ) -> None:
        """Open the sockets.

        Args:
            settings: Path of the job file, folder of traces, level of the log; empty for defaults.
            place: Rank, world size, and number on this host, negative where that is not known.
            host: A local address that peers can reach.
            credentials: Token, and paths of certificate, key and authority; empty for none.
            job: Key at which the ranks' store counts the groups of this job.
        """

    def rendezvous(self) -> str:
        """Return the ``host:port`` at which rank 0 awaits the others."""

    def join(self, rendezvous: str, timeout_seconds: float) -> None:
        """Block until every rank of the job has joined."""

    def trace(self) -> str:
        """Return what the flight recorder holds, as JSON; empty before the rank has joined."""

    def close(self) -> None:
        """Let pending operations finish for some seconds, then stop. Idempotent."""

    @property
    def job(self) -> str:
        """The key at which the ranks' store counts the groups of this job."""

    @property
    def is_open(self) -> bool:
        """Whether the rank has not been closed."""

    def takes_operations(self) -> bool:
        """Whether operations can begin: false once the job has ended on any rank, and in a fork."""

class Staging:
    """How a group treats tensors of devices."""

    def __init__(self, *, stream_wait: bool, of_host: bool) -> None:
        """Let ``wait()`` block the current stream only; stage tensors of the host, too."""

class Backend(_Backend):
    """The backend of one process group."""

    def __init__(
        self,
        rank: Rank,
        group: tuple[int, Sequence[int], int],
        store: Store,
        options: _Backend.Options,
        staging: Staging,
    ) -> None:
        """Create a group: its number, its members as ranks of the job, this process's position.

        ``options`` has the timeout, and the name by which PyTorch knows the backend; ``store`` is
        the group's own.
        """

    def allreduce_tagged(
        self,
        tensor: torch.Tensor,
        *,
        layer_offsets: Sequence[int],
        layers: Sequence[int],
        layer_count: int,
        tolerance: float,
        step: int,
        tensor_key: int,
        op: ReduceOp = ...,
        codec: int = ...,
        codec_share: float = ...,
    ) -> Work:
        """Reduce a gradient bucket in place, by default to its average.

        ``layers[i]`` begins at byte ``layer_offsets[i]`` of the bucket; layer 0 is the first in
        forward order. ``tolerance`` is the share that may be missing; 0 is lossless.
        """

    def join(self, works: Sequence[Work], tensor: torch.Tensor) -> Work:
        """Make one work of several; ``tensor`` is its result."""

    def reduce_scatter_tagged(
        self,
        output: torch.Tensor,
        input: torch.Tensor,
        *,
        layer: int,
        layer_count: int,
        tolerance: float,
        step: int,
        tensor_key: int,
        op: ReduceOp = ...,
        codec: int = ...,
        codec_share: float = ...,
    ) -> Work:
        """Reduce ``input``, which holds one ``output`` per rank and belongs to one layer."""

    def take_residual(
        self, tensor_key: int, elements: int, dtype: torch.dtype
    ) -> torch.Tensor | None:
        """Take the residual of a tensor: ``elements`` values, zero where error feedback keeps none.

        The next step no longer adds it. ``None`` where nothing is kept.
        """

    def scale_residual(self, tensor_key: int, factor: float) -> None:
        """Multiply the values that error feedback keeps of a tensor by new loss scale / old one.

        Every rank does so between the same two steps.
        """

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Take no part in a split; PyTorch calls it on ranks that are not in the new group."""

    def counters(self) -> dict[str, int]:
        """Return the counters of this process's rank since it was opened."""

    def job(self) -> dict[str, str]:
        """Return the resolved job, each key with dots (``transport.mtu``) and its value as text."""

    def job_tolerance(self) -> float:
        """Return the share of a gradient message that the job allows to be missing."""

    def tune(self, step_seconds: float) -> tuple[bool, int, int]:
        """Ask the job's tuning for the next step: whether to measure it, chunk, credit in bytes.

        ``step_seconds`` is the duration of a step with the last answer; it is ignored the first
        time. If there is nothing left to measure, the answer is the best, and final. Asking changes
        nothing: one rank asks, and tells the others.
        """

    def reschedule(self, chunk: int, credit: int) -> None:
        """Change chunk and credit, in bytes, on every rank between the same two operations."""

class Message(Work):
    """A message between two ranks on its way."""

    def holes(self) -> list[tuple[int, int]]:
        """Return which bytes of a received tensor stayed as they were: first byte and count."""

class Loss:
    """The share of a message that may be missing, and the facts by which the core chooses well."""

    def __init__(
        self,
        *,
        layer_offsets: Sequence[int],
        layers: Sequence[int],
        layer_count: int,
        tolerance: float,
        step: int,
        tensor_key: int,
        keeps_previous: bool,
    ) -> None:
        """Take what :meth:`Backend.allreduce_tagged` takes.

        With ``keeps_previous`` only the former values replace missing ones, whatever the job's
        ``holes`` says.
        """

def send_lossy(backend: Backend, tensor: torch.Tensor, to: int, tag: int, loss: Loss) -> Message:
    """Send a contiguous tensor, of which floats may be lost within the tolerance."""

def receive_lossy(
    backend: Backend, tensor: torch.Tensor, source: int, tag: int, loss: Loss
) -> Message:
    """Receive into a contiguous tensor; lost elements keep their old values there."""
