"""The clocks of a parameter server: pushes of each worker, and which may continue."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from gradwire.ps.meeting import FailedError
from gradwire.ps.setup import Mode


class Standing(Enum):
    """The state of a worker."""

    AWAITED = "has not arrived"
    HERE = "is here"
    LOST = "was lost"
    FINISHED = "has finished"


_ON_THE_WAY = frozenset({Standing.AWAITED, Standing.HERE})


@dataclass
class Seat:
    """One worker, as its server sees it."""

    clock: int = 0
    """Steps pushed."""

    standing: Standing = Standing.AWAITED
    visit: int = -1
    """Number of the arrival that holds the seat."""

    since: float = field(default_factory=time.monotonic)
    """When the standing last changed."""

    place: str = ""
    """Rank and address."""

    def become(self, standing: Standing) -> None:
        """Change the standing."""
        self.standing, self.since = standing, time.monotonic()


class Progress:
    """The clocks of all workers. The owner holds the lock."""

    def __init__(self, mode: Mode, workers: int) -> None:
        """Await all workers at clock 0."""
        self.mode = mode
        self.seats = [Seat() for _ in range(workers)]
        self.updates = 0
        """Optimizer steps taken."""

    def resume(self, updates: int, finished: Mapping[int, int]) -> None:
        """Go on after some updates; ``finished`` has the steps of workers that will not come back.

        Raises:
            FailedError: a worker has finished whose gradients are needed again.
        """
        self.updates = updates
        for worker, seat in enumerate(self.seats):
            seat.clock = updates
            if worker in finished:
                if finished[worker] > updates:
                    raise FailedError(
                        f"gradwire.ps: this server goes on after step {updates}, and worker "
                        f"{worker} has finished after step {finished[worker]}: its gradients are "
                        "gone; start again from a checkpoint"
                    )
                seat.become(Standing.FINISHED)

    def may_go_on(self, clock: int) -> bool:
        """Whether a worker that has pushed ``clock`` steps may work on the next one."""
        if self.mode.staleness is None:
            return True
        if self.mode.name == "sync":
            return self.updates >= clock
        return self.slowest() >= clock - self.mode.staleness

    def slowest(self) -> int:
        """Return the lowest clock of awaited workers; infinite if there are none."""
        return min((self.seats[worker].clock for worker in self.awaited()), default=1 << 62)

    def awaited(self) -> list[int]:
        """Return the workers that others wait for.

        A synchronous step needs a lost worker's gradient, and waits for it to come back.
        """
        gone = {Standing.FINISHED}
        if self.mode.name != "sync":
            gone.add(Standing.LOST)
        return [w for w, seat in enumerate(self.seats) if seat.standing not in gone]

    def arrive(self, worker: int, visit: int, place: str) -> int:
        """Seat a worker, for the first time or again; return the clock with which to continue.

        A worker that comes back continues beside the slowest of the others, unless the mode has
        kept its step open.
        """
        seat = self.seats[worker]
        if self.mode.name != "sync" and seat.standing is Standing.LOST:
            others = [self.seats[w].clock for w in self.awaited()]
            seat.clock = max([seat.clock, *([min(others)] if others else [])])
        seat.visit, seat.place = visit, place
        seat.become(Standing.HERE)
        return seat.clock

    def complete(self) -> list[int]:
        """Return the workers whose gradients make the next synchronous update, if all are here."""
        if any(self.seats[worker].clock <= self.updates for worker in self.awaited()):
            return []
        return [w for w, seat in enumerate(self.seats) if seat.clock > self.updates]

    def is_over(self) -> bool:
        """Whether no worker will push again: a lost worker need not return to finish alone."""
        standings = {seat.standing for seat in self.seats}
        done = {Standing.FINISHED} if self.mode.name == "sync" else set(Standing) - _ON_THE_WAY
        return Standing.FINISHED in standings and standings <= done

    def hopeless(self, patience: float) -> str:
        """Name the lost worker without which training cannot continue, after this many seconds."""
        lost = [(w, seat) for w, seat in enumerate(self.seats) if seat.standing is Standing.LOST]
        if self.mode.name != "sync" and len(lost) < len(self.seats):
            return ""
        end = time.monotonic() - patience
        gone = [(w, seat) for w, seat in lost if seat.since < end]
        if not gone or (self.mode.name != "sync" and len(gone) < len(lost)):
            return ""
        worker, seat = gone[0]
        return (
            f"worker {worker} ({seat.place}) was lost at clock {seat.clock} and did not come back"
        )

    def laggards(self) -> str:
        """Name the awaited workers and their clocks."""
        behind = self.slowest()
        seats = [(worker, self.seats[worker]) for worker in self.awaited()]
        return "; ".join(
            f"worker {worker} ({seat.place or f'rank {worker}'}) {seat.standing.value}"
            f" at clock {seat.clock}"
            for worker, seat in seats
            if seat.clock == behind
        )
