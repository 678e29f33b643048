"""A worker: pushes gradients, pulls parameters, counts its steps."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING

import torch
from torch import nn

from gradwire.ddp import LayerOrder
from gradwire.environment import Environment
from gradwire.ps.layout import Layout
from gradwire.ps.link import HEADER, WORKER, Link, Loss, Peers, Request, Tag, open_core
from gradwire.ps.meeting import Arrival, FailedError, Meeting
from gradwire.ps.setup import Setup

if TYPE_CHECKING:
    from torch.distributed import Work

_SLACK_SECONDS = 15.0
"""A server's own timeouts, which know whom it waits for, end before a worker's."""


class Push:
    """A push on its way."""

    def __init__(self, worker: Worker, works: list[Work]) -> None:
        """Keep the operations that :meth:`wait` finishes."""
        self._worker, self._works = worker, works

    def wait(self) -> None:
        """Return when every server has the gradient; raises when one never will."""
        self._worker.finish(self._works)
        self._works = []


class Worker:
    """This process as a worker of a parameter server, for one model.

    ``model`` gets the servers' parameters at once: those of worker 0, or, when this worker was
    restarted, the current ones. ``clock`` is the step with which to continue.
    """

    def __init__(self, setup: Setup, model: nn.Module) -> None:
        """Meet the servers; blocks until all of them and worker 0 have arrived."""
        if setup.is_server:
            raise ValueError(f"gradwire.ps: rank {setup.rank} is a server: make a Server of it")
        self.setup, self.clock = setup, 0
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._layout = Layout.of(model)
        self._meeting = Meeting(setup)
        self._compare_layouts()
        self._servers = self._meeting.servers()
        self._shards = self._layout.shards(setup.servers)
        self._gradient = torch.zeros(self._layout.elements, dtype=self._layout.dtype)
        self._pulled = torch.zeros_like(self._gradient)
        self._order = LayerOrder(model)
        self._last = Push(self, [])
        self._link = self._met()
        self._tolerance = setup.tolerance
        if self._tolerance is None:
            self._tolerance = self._link.job_tolerance
        try:
            self._enter()
        except BaseException:
            self._drop()
            raise

    def _compare_layouts(self) -> None:
        theirs = Layout.from_text(self._meeting.agree_on_layout(self._layout.text()))
        difference = self._layout.difference(theirs)
        if difference:
            self._meeting.fail(
                f"gradwire.ps: worker {self.setup.number} and worker 0 have different models: "
                f"{difference}"
            )
            raise self._meeting.failure()

    def _met(self) -> Link:
        """Open a job of this worker and all servers, and ask the servers in."""
        own = Environment.read().secret()  # not for the store: each server has it, too
        token = own or secrets.token_hex(32)
        core = open_core((WORKER, 1 + self.setup.servers), self._meeting.host, token)
        self._meeting.arrive(
            Arrival(self.setup.number, self._meeting.place, core.rendezvous(), "" if own else token)
        )
        names = [f"server {i} ({place})" for i, place in enumerate(self._servers)]
        try:
            core.join(core.rendezvous(), self.setup.timeout)
        except RuntimeError as error:
            raise FailedError(
                f"gradwire.ps: not all of {'; '.join(names)} have let this worker in: {error}"
            ) from error
        limit = timedelta(seconds=self.setup.timeout + _SLACK_SECONDS)
        return Link(core, Peers(WORKER, ("this worker", *names)), limit)

    def _enter(self) -> None:
        """Find the servers, give them parameters if they have none, and take theirs."""
        answers = self._replies()
        clocks = [clock for _, _, clock in answers]
        is_sync = self.setup.mode.name == "sync"
        self.clock = min(clocks) if is_sync else max(clocks)
        if self.setup.number == 0 and any(updates < 0 for _, updates, _ in answers):
            self._gather(self._pulled, dict(enumerate(self._parameters)))
            self._ask(Request.INSTALL, Tag.PARAMETERS, self._pulled, 0.0)
        self._pull(0.0)

    def push(self, gradients: Mapping[str, torch.Tensor] | None = None) -> Push:
        """Start to send this step's gradient, and count the step.

        Args:
            gradients: by name of the parameter, of its shape; without, each parameter's ``grad``.
                A parameter that is left out counts as zero.

        Returns:
            The push; the caller may reuse the gradients at once.
        """
        self._last.wait()
        self._gather(self._gradient, self._by_number(gradients))
        works = self._ask(Request.PUSH, Tag.GRADIENT, self._gradient, self._tolerance)
        self._last = Push(self, works)
        self.clock += 1
        return self._last

    def pull(self) -> None:
        """Replace the model's parameters by the servers', as soon as the mode allows it.

        Synchronous: when the gradients of all workers up to this clock are applied. Bounded-stale:
        when no worker is more than ``staleness`` steps behind this one. Asynchronous: at once.
        """
        self._pull(self.setup.pull_tolerance)

    def _pull(self, tolerance: float) -> None:
        works = [
            self._link.receive(
                self._pulled[begin:end], 1 + server, Tag.PARAMETERS, self._loss(server, tolerance)
            )
            for server, (begin, end) in enumerate(self._shards)
        ]
        is_whole = int(tolerance == 0)
        asked = [
            self._link.say(1 + server, Tag.REQUEST, Request.PULL, self.clock, is_whole)
            for server in range(self.setup.servers)
        ]
        self._replies()
        self.finish(works + asked)
        start = 0
        with torch.no_grad():
            for parameter in self._parameters:
                end = start + parameter.numel()
                parameter.copy_(self._pulled[start:end].view_as(parameter))
                start = end

    def step(self) -> None:
        """Push the gradients and pull the parameters: in place of ``optimizer.step()``."""
        self.push()
        self.pull()

    def counters(self) -> dict[str, int]:
        """Return the counters of this worker's end of the wire."""
        return self._link.counters()

    def close(self) -> None:
        """Tell the servers that this worker has completed its training. Idempotent."""
        if self._link.is_open:
            asked = [
                self._link.say(1 + server, Tag.REQUEST, Request.FINISH, self.clock)
                for server in range(self.setup.servers)
            ]
            self.finish(asked)
            self._link.close()

    def __enter__(self) -> Worker:
        """Return this worker."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Finish; after an error, let the servers know that this worker is lost."""
        if kind is None:
            self.close()
        else:
            self._drop()

    def _by_number(self, gradients: Mapping[str, torch.Tensor] | None) -> dict[int, torch.Tensor]:
        if gradients is None:
            return {i: p.grad for i, p in enumerate(self._parameters) if p.grad is not None}
        numbers = {name: number for number, name in enumerate(self._layout.names)}
        for name, gradient in gradients.items():
            if name not in numbers:
                known = ", ".join(self._layout.names)
                raise ValueError(f"gradwire.ps: no parameter {name!r}: the model has {known}")
            shape = self._layout.shapes[numbers[name]]
            if tuple(gradient.shape) != shape:
                raise ValueError(
                    f"gradwire.ps: a gradient of {tuple(gradient.shape)} for {name!r}, whose "
                    f"shape is {shape}"
                )
        return {numbers[name]: gradient for name, gradient in gradients.items()}

    def _gather(self, flat: torch.Tensor, tensors: Mapping[int, torch.Tensor]) -> None:
        """Concatenate tensors; missing ones are zero."""
        start = 0
        for number, size in enumerate(self._layout.sizes):
            part = flat[start : start + size]
            if number in tensors:
                part.copy_(tensors[number].detach().reshape(-1))
            else:
                part.zero_()
            start += size

    def _loss(self, server: int, tolerance: float) -> Loss:
        """Return the tolerance, and the places of the layers in a server's shard."""
        layers = []
        for piece in self._layout.pieces(self._shards[server]):
            layer = self._order.of(self._parameters[self._layout.names.index(piece.name)])
            if not layers or layers[-1][1] != layer:
                layers.append((piece.start * self._layout.dtype.itemsize, layer))
        return Loss(tolerance, self.clock, 1 + server, tuple(layers), self._order.count)

    def _ask(self, request: Request, tag: Tag, flat: torch.Tensor, tolerance: float) -> list[Work]:
        """Send every server a request and its shard of a vector."""
        works = []
        for server, (begin, end) in enumerate(self._shards):
            works.append(self._link.say(1 + server, Tag.REQUEST, request, self.clock))
            loss = self._loss(server, tolerance)
            works.append(self._link.send(flat[begin:end], 1 + server, tag, loss))
        return works

    def _replies(self) -> list[tuple[int, int, int]]:
        """Wait for a reply of every server: all is well, updates applied, this worker's clock."""
        headers = [torch.zeros(HEADER, dtype=torch.int64) for _ in self._shards]
        self.finish(
            [
                self._link.receive(header, 1 + server, Tag.REPLY)
                for server, header in enumerate(headers)
            ]
        )
        answers = [(int(header[0]), int(header[1]), int(header[2])) for header in headers]
        if not all(is_well for is_well, _, _ in answers):
            self._drop()
            raise self._meeting.failure()
        return answers

    def finish(self, works: list[Work]) -> None:
        """Wait for messages; raises the first failure, with the server's name."""
        try:
            for work in works:
                work.wait()
        except RuntimeError as error:
            self._drop()
            raise self._explained() from error

    def _drop(self) -> None:
        """Leave without having finished: to the servers this worker is lost."""
        self._link.abort()
        self._link.close()

    def _explained(self) -> FailedError:
        """Return the failure that servers have noted, otherwise name the server that failed."""
        try:
            if self._meeting.has_failed():
                return self._meeting.failure()
        except RuntimeError:  # the first server keeps the store, and may be the one that is gone
            pass
        return FailedError(f"gradwire.ps: at clock {self.clock}: {self._link.failure}")
