"""A server: holds a shard of the parameters, and serves every worker until all have finished."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import torch

from gradwire.ps.codes import Code
from gradwire.ps.layout import Layout
from gradwire.ps.meeting import FailedError, Meeting, wait_until
from gradwire.ps.progress import Progress, Standing
from gradwire.ps.redundancy import JOIN_SECONDS, Redundancy, check_redundancy
from gradwire.ps.setup import Setup
from gradwire.ps.shard import Contribution, Optimize, Schedule, Shard
from gradwire.ps.visit import Visit

_POLL_SECONDS = 0.02
_LEAVE_SECONDS = 10.0
"""How long a server that is done waits for others."""

_HEARING_SECONDS = 2.0
"""How long a server still lets workers in to tell them that training has failed."""


class Server:
    """This process as a server. ``serve()`` returns when all workers have finished."""

    def __init__(
        self, setup: Setup, optimizer: Optimize | None = None, schedule: Schedule | None = None
    ) -> None:
        """Prepare to serve; nothing is opened yet.

        Args:
            setup: the same as on every process.
            optimizer: makes the optimizer of this server's parameters, which come flattened and
                with their names: ``functools.partial(torch.optim.SGD, lr=0.05)``. Without one,
                pushes of workers are added to the parameters.
            schedule: makes the learning-rate schedule, stepped once after each update. With
                bounded-stale and asynchronous training, every push is an update.
        """
        if not setup.is_server:
            raise ValueError(
                f"gradwire.ps: rank {setup.rank} of {setup.world_size} is a worker: the last "
                f"{setup.servers} ranks are servers"
            )
        self.setup = setup
        self._optimize, self._schedule = optimizer, schedule
        self._progress = Progress(setup.mode, setup.workers)
        self._changed = threading.Condition()
        self._failed, self._failed_at = "", 0.0
        self._shard: Shard
        self._contributions: list[Contribution]
        self._visits: list[Visit] = []
        self._code = Code.of_job()
        if self._code is not None:
            check_redundancy(self._code, setup)
        self._redundancy: Redundancy | None = None
        self._first_arrival = 0

    def serve(self) -> None:
        """Serve until all workers have finished; raises when training cannot continue."""
        self._meeting = Meeting(self.setup)
        is_replacement = self._meeting.announce_server()
        layout = Layout.from_text(self._meeting.layout())
        bounds = layout.shards(self.setup.servers)[self.setup.number]
        self._shard = Shard(layout, bounds, self._optimize, self._schedule)
        self._contributions = [
            Contribution(torch.zeros_like(self._shard.values)) for _ in self._progress.seats
        ]
        if self._code is not None:
            self._protect(self._code, is_replacement)
        visits = self._visits = self._admit_all()
        wait_until(lambda: not any(v.is_alive() for v in visits), _LEAVE_SECONDS)
        if self._redundancy is not None:
            self._redundancy.stop()
        for visit in visits:
            visit.leave()
        self._meeting.end(_HEARING_SECONDS if self._failed else _LEAVE_SECONDS)
        if self._failed:
            raise FailedError(self._failed)

    def _protect(self, code: Code, is_replacement: bool) -> None:
        """Meet the other servers, and take the state of the server that was here before."""
        if is_replacement:
            self._meeting.replace_server()
        redundancy = Redundancy(code, self._meeting, self._changed, is_replacement)
        redundancy.report = self.report
        redundancy.start()
        if is_replacement:
            try:
                rebuilt = redundancy.rebuilt()
            except FailedError:
                redundancy.stop()  # its thread must not outlive the interpreter
                raise
            self._shard.restore(rebuilt.state)
            self._progress.resume(rebuilt.updates, self._meeting.finished())
            self._first_arrival = self._meeting.arrivals()
            redundancy.serves()
        self._redundancy = redundancy

    @property
    def join_seconds(self) -> float:
        """How long a worker's job may take to meet; with redundancy, the next may follow soon."""
        return self.setup.timeout if self._code is None else min(self.setup.timeout, JOIN_SECONDS)

    def counters(self) -> dict[str, int]:
        """Return the counters towards workers that have finished; call it after ``serve()``."""
        total: dict[str, int] = {}
        for visit in self._visits:
            for name, count in visit.counters.items():
                total[name] = total.get(name, 0) + count
        return total

    def _admit_all(self) -> list[Visit]:
        """Admit workers until none will push again, or training has failed."""
        visits: list[Visit] = []
        while not self._is_over():
            arrival = self._meeting.arrival(self._first_arrival + len(visits))
            if arrival is None:
                with self._changed:
                    self._changed.wait(_POLL_SECONDS)
                continue
            for earlier in visits:
                if earlier.worker == arrival.worker:
                    earlier.leave()  # whether it knows that it is over or not
            visits.append(Visit(self, self._meeting, arrival, len(visits)))
            visits[-1].start()
        return visits

    def _is_over(self) -> bool:
        if not self._failed and self._meeting.has_failed():
            self._stop(str(self._meeting.failure()))
        with self._changed:
            is_settled = bool(self._failed) or self._is_waiting_for_a_server()
            reason = "" if is_settled else self._progress.hopeless(self.setup.timeout)
        if reason:
            self._give_up(f"{reason} within {self.setup.timeout:.0f} s")
        if self._failed:
            return time.monotonic() > self._failed_at + _HEARING_SECONDS
        return self._progress.is_over()

    def _is_waiting_for_a_server(self) -> bool:
        return self._redundancy is not None and self._redundancy.is_waiting

    def _give_up(self, reason: str) -> None:
        """End training on all processes; the first caller chooses the words."""
        self._meeting.fail(f"gradwire.ps: {reason}")
        self._stop(str(self._meeting.failure()))

    def _stop(self, text: str) -> None:
        with self._changed:
            self._failed, self._failed_at = text, time.monotonic()
            self._changed.notify_all()

    def report(self, text: str) -> None:
        """Print a message on standard error."""
        print(f"gradwire.ps: server {self.setup.number}: {text}", file=sys.stderr, flush=True)

    def seat(self, visit: Visit) -> tuple[int, int, int, int]:
        """Give a worker its seat: whether all is well, updates applied, its clock, and those kept.

        Without parameters, -1 updates are applied. Updates are kept when every server could be
        replaced by one that has them.
        """
        with self._changed:
            clock = self._progress.arrive(visit.worker, visit.number, visit.place)
            self._changed.notify_all()
            updates = self._progress.updates if self._shard.is_installed else -1
            return int(not self._failed), updates, clock, self.kept_updates

    def vacate(self, visit: Visit, standing: Standing, reason: str = "") -> None:
        """Note that a worker has finished or was lost, unless it has returned already."""
        if standing is Standing.FINISHED and self._redundancy is not None:
            clock = self._progress.seats[visit.worker].clock
            self._meeting.note_finished(visit.worker, clock)
        with self._changed:
            seat = self._progress.seats[visit.worker]
            if seat.visit != visit.number or seat.standing is not Standing.HERE:
                return
            seat.become(standing)
            self._update(visit.worker)
            self._changed.notify_all()
        if standing is Standing.LOST and not self._failed:
            self.report(
                f"{visit.label} was lost at clock {seat.clock}: {reason}; {self._outlook()}"
            )

    def _outlook(self) -> str:
        if self.setup.mode.name == "sync":
            return f"the others wait up to {self.setup.timeout:.0f} s for it to come back"
        return "the others go on, and it may come back"

    def await_turn(self, clock: int, is_gone: Callable[[], bool]) -> bool:
        """Wait until a worker that has pushed ``clock`` steps may continue; return whether it may.

        It may not if training has failed, if it is gone itself, or if others do not arrive in time.
        """

        def ready() -> bool:
            there = self._shard.is_installed and self._progress.may_go_on(clock)
            if self._redundancy is not None:
                there = there and self._redundancy.may_continue(clock)
            return there or bool(self._failed) or is_gone()

        with self._changed:
            in_time = self._changed.wait_for(ready, self.setup.timeout)
            may = in_time and not self._failed and not is_gone()
        if not in_time:
            self._give_up(
                f"a worker at clock {clock} has waited {self.setup.timeout:.0f} s: "
                f"{self._progress.laggards()}"
            )
        return may

    def install(self, values: torch.Tensor) -> None:
        """Take the first parameters, unless there are some already."""
        with self._changed:
            if not self._shard.is_installed:
                self._shard.install(values)
                self._offer_snapshot()
            self._changed.notify_all()

    def scratch(self) -> torch.Tensor:
        """Return room for a shard."""
        return torch.empty_like(self._shard.values)

    def place_for(self, visit: Visit, clock: int) -> Contribution | None:
        """Return the place for a worker's gradient; ``None`` if this step was already taken."""
        if self._failed or clock < self._progress.seats[visit.worker].clock:
            return None
        return self._contributions[visit.worker]

    def take(self, visit: Visit, clock: int) -> None:
        """Process a gradient that has arrived in its place."""
        with self._changed:
            self._progress.seats[visit.worker].clock = clock + 1
            self._update(visit.worker)
            self._changed.notify_all()

    def _update(self, worker: int) -> None:
        """Apply all complete updates, after a worker has pushed or left."""
        if self.setup.mode.name == "sync":
            workers = self._progress.complete()
        else:
            is_here = self._progress.seats[worker].standing is Standing.HERE
            workers = [worker] if is_here else []
        if workers:
            self._shard.apply([self._contributions[worker] for worker in workers])
            self._progress.updates += 1
            self._offer_snapshot()

    def _offer_snapshot(self) -> None:
        if self._redundancy is not None and self._redundancy.is_due(self._progress.updates):
            self._redundancy.offer(self._progress.updates, self._shard.state())

    @property
    def kept_updates(self) -> int:
        """Updates that no worker has to push again, whichever server is lost."""
        return self._redundancy.committed if self._redundancy is not None else 0

    def copy_to(self, values: torch.Tensor) -> int:
        """Copy the parameters as they are now; returns the updates applied."""
        with self._changed:
            values.copy_(self._shard.values)
            return self._progress.updates
