"""The configuration of a parameter server, and the place of this process in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from gradwire.environment import Environment


@dataclass(frozen=True)
class Mode:
    """How far workers may drift apart; made by :data:`SYNC`, :data:`ASYNC` or :func:`SSP`."""

    name: str
    """``sync``, ``ssp`` or ``async``."""

    staleness: int | None
    """Steps that a worker may be ahead of the slowest one; ``None`` for any number."""

    def __str__(self) -> str:
        """Return the form in which errors show the mode."""
        return f"ssp(staleness={self.staleness})" if self.name == "ssp" else self.name

    @staticmethod
    def named(name: str, staleness: int = 0) -> Mode:
        """Return the mode of a command line: ``sync``, ``ssp`` or ``async``."""
        modes = {"sync": SYNC, "async": ASYNC}
        if name == "ssp":
            return SSP(staleness)
        if name not in modes:
            raise ValueError(f"gradwire.ps: mode {name!r}: allowed are sync, ssp and async")
        return modes[name]


SYNC = Mode("sync", 0)
"""Each step applies the mean of all workers' gradients once: as data-parallel training does."""

ASYNC = Mode("async", None)
"""Each gradient is applied when it arrives; no worker waits for another."""


def SSP(staleness: int) -> Mode:  # noqa: N802 - a mode like the constants beside it
    """Apply each gradient as it arrives; no worker runs ahead by more than ``staleness``."""
    if staleness < 0:
        raise ValueError(f"gradwire.ps: staleness {staleness}: give the steps, 0 or more")
    return Mode("ssp", staleness)


@dataclass(frozen=True)
class Setup:
    """The configuration of a parameter server, equal on every process of the launch.

    The last ``servers`` ranks of the launch are servers, the others workers. Ranks are those of
    ``torchrun``: ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and ``MASTER_PORT``. Without
    ``torchrun``, the first server keeps the store: ``MASTER_ADDR`` is its host.
    """

    servers: int = 1
    """How many ranks serve; each holds an equal share of the parameters' bytes."""

    mode: Mode = SYNC
    """How far workers may drift apart."""

    tolerance: float | None = None
    """Share of a pushed gradient that may be missing, below 1; ``None``: the job's."""

    pull_tolerance: float = 0.0
    """Share of pulled parameters that may be missing: the worker's former values stay there."""

    timeout: float = 300.0
    """Seconds that a worker waits for others, or for a lost one to come back."""

    rank: int = field(default_factory=lambda: _number("RANK", Environment.read().rank))
    """This process in the launch."""

    world_size: int = field(
        default_factory=lambda: _number("WORLD_SIZE", Environment.read().world_size)
    )
    """Processes of the launch."""

    def __post_init__(self) -> None:
        """Refuse impossible values."""
        if self.servers < 1:
            raise ValueError(f"gradwire.ps: {self.servers} servers: give 1 or more")
        if self.servers >= self.world_size:
            raise ValueError(
                f"gradwire.ps: {self.servers} servers among {self.world_size} ranks leave no "
                f"worker: give 1 to {self.world_size - 1} servers, or launch more ranks"
            )
        if not 0 <= self.rank < self.world_size:
            raise ValueError(
                f"gradwire.ps: rank {self.rank} of a launch of {self.world_size}: ranks are 0 to "
                f"{self.world_size - 1}"
            )
        _check_share("tolerance", 0.0 if self.tolerance is None else self.tolerance)
        _check_share("pull_tolerance", self.pull_tolerance)
        if self.timeout <= 0:
            raise ValueError(f"gradwire.ps: a timeout of {self.timeout} s: it must be above 0")

    @property
    def workers(self) -> int:
        """How many ranks train."""
        return self.world_size - self.servers

    @property
    def is_server(self) -> bool:
        """Whether this process serves."""
        return self.rank >= self.workers

    @property
    def number(self) -> int:
        """This process among the servers, or among the workers."""
        return self.rank - self.workers if self.is_server else self.rank

    def rank_of_server(self, server: int) -> int:
        """Return the rank in the launch of a server."""
        return self.workers + server

    def agreed(self) -> dict[str, str]:
        """Return the values that must be equal on all processes, as text."""
        return {
            "world_size": str(self.world_size),
            "servers": str(self.servers),
            "mode": str(self.mode),
            "tolerance": "of the job" if self.tolerance is None else str(self.tolerance),
            "pull_tolerance": str(self.pull_tolerance),
        }


def _number(name: str, value: str) -> int:
    if not value.isdigit():
        given = f"is {value!r}" if value else "is not set"
        raise ValueError(
            f"gradwire.ps: {name} {given}: start this program by torchrun, or set RANK, "
            "WORLD_SIZE, MASTER_ADDR and MASTER_PORT for every process"
        )
    return int(value)


def _check_share(name: str, share: float) -> None:
    if not 0.0 <= share < 1.0:
        raise ValueError(
            f"gradwire.ps: {name} {share}: give the share that may be missing, at least 0 "
            "(lossless) and below 1"
        )
