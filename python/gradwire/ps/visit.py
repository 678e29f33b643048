"""One worker at one server, from its arrival to its end: a thread that serves its requests."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import torch

from gradwire.environment import Environment
from gradwire.ps.link import ENDLESS, HEADER, WORKER, Link, Loss, Peers, Request, Tag, open_core
from gradwire.ps.meeting import Arrival, Meeting
from gradwire.ps.progress import Standing

if TYPE_CHECKING:
    from torch.distributed import Work

    from gradwire.ps.server import Server


_PULLED_LAYERS = 64
"""Parameters travel as the first of this many layers: in a high class, none of them protected."""


class Visit(threading.Thread):
    """Serves one arrival of a worker."""

    def __init__(self, server: Server, meeting: Meeting, arrival: Arrival, number: int) -> None:
        """Prepare; :meth:`start` joins the worker's job."""
        super().__init__(name=f"gradwire-ps-{number}", daemon=True)
        self.worker, self.number, self.place = arrival.worker, number, arrival.place
        self._server, self._meeting, self._arrival = server, meeting, arrival
        self._link: Link | None = None
        self._is_gone = False
        self._sent: list[Work] = []
        self.counters: dict[str, int] = {}

    @property
    def label(self) -> str:
        """The worker as messages name it."""
        return f"worker {self.worker} ({self.place})"

    def run(self) -> None:
        """Serve until the worker has finished or is lost."""
        try:
            self._link = self._joined()
            self._link.on_failure = self._lost
            self._welcome()
            while self._serve_one():
                pass
            self._finish(self._sent)
            self.counters = self._link.counters()
            self._server.vacate(self, Standing.FINISHED)
        except Exception as error:  # after any error the worker is no longer served
            self._lost(str(error))
        finally:
            if self._link is not None:
                self._link.close()

    def leave(self) -> None:
        """End the visit, if it is not over."""
        self._is_gone = True
        if self._link is not None and self._link.is_open:
            self._link.abort()

    def _joined(self) -> Link:
        setup, arrival = self._server.setup, self._arrival
        me = 1 + setup.number
        token = arrival.token or Environment.read().secret()
        core = open_core((me, 1 + setup.servers), self._meeting.host, token)
        core.join(arrival.rendezvous, self._server.join_seconds)
        others = [f"server {server}" for server in range(setup.servers)]
        return Link(core, Peers(me, (self.label, *others)), ENDLESS)

    def _lost(self, reason: str = "") -> None:
        self._is_gone = True
        told = self._link.failure if self._link is not None else ""
        told = told.removeprefix(f"{self.label}: ")
        self._server.vacate(self, Standing.LOST, told or reason)

    def _welcome(self) -> None:
        answer = self._server.seat(self)
        self._await_request()
        self._reply(*answer)

    def _reply(self, *numbers: int) -> None:
        self._sent.append(self._linked.say(WORKER, Tag.REPLY, *numbers))

    @property
    def _linked(self) -> Link:
        if self._link is None:
            raise RuntimeError(f"{self.label} is not connected")
        return self._link

    def _await_request(self) -> None:
        """Post the next header at once: it fails when the worker dies."""
        self._header = torch.zeros(HEADER, dtype=torch.int64)
        self._asked = self._linked.receive(self._header, WORKER, Tag.REQUEST)

    @staticmethod
    def _finish(works: list[Work]) -> None:
        for work in works:
            work.wait()
        works.clear()

    def _serve_one(self) -> bool:
        """Serve the next request; return whether more may follow."""
        self._asked.wait()
        kind, clock, is_whole, _ = self._header.tolist()
        request = Request(kind)
        if request is Request.FINISH:
            return False
        self._await_request()
        {
            Request.INSTALL: self._install,
            Request.PUSH: self._push,
            Request.PULL: self._pull,
        }[request](clock, bool(is_whole))
        return True

    def _install(self, _clock: int, _is_whole: bool) -> None:
        values = self._scratch()
        self._linked.receive(values, WORKER, Tag.PARAMETERS).wait()
        self._server.install(values)

    def _push(self, clock: int, _is_whole: bool) -> None:
        self._server.await_turn(clock, lambda: self._is_gone)
        contribution = self._server.place_for(self, clock)
        if contribution is None:
            loss = Loss(self._tolerance, clock)
            self._linked.receive(self._scratch(), WORKER, Tag.GRADIENT, loss).wait()
            return
        loss, rule = Loss(self._tolerance, clock), self._linked.holes
        if loss.tolerance > 0 and (rule != "previous" or contribution.never_filled is None):
            contribution.values.zero_()
        received = self._linked.receive(contribution.values, WORKER, Tag.GRADIENT, loss)
        received.wait()
        size = contribution.values.itemsize
        holes = [(start // size, (start + length) // size) for start, length in received.holes()]
        contribution.settle(rule, holes)
        self._server.take(self, clock)

    def _pull(self, clock: int, is_whole: bool) -> None:
        if not self._server.await_turn(clock, lambda: self._is_gone):
            self._reply(0)
            return
        self._finish(self._sent)
        self._parameters = self._scratch()
        updates = self._server.copy_to(self._parameters)
        self._reply(1, updates, clock, self._server.kept_updates)
        tolerance = 0.0 if is_whole else self._server.setup.pull_tolerance
        first = ((0, 0),)  # needed by the next forward pass, all of them
        loss = Loss(tolerance, clock, 0, first, _PULLED_LAYERS, keeps_previous=True)
        self._sent.append(self._linked.send(self._parameters, WORKER, Tag.PARAMETERS, loss))

    @property
    def _tolerance(self) -> float:
        given = self._server.setup.tolerance
        return self._linked.job_tolerance if given is None else given

    def _scratch(self) -> torch.Tensor:
        return self._server.scratch()
