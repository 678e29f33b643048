"""A worker: pushes gradients, pulls parameters, counts its steps."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING

import torch
from torch import nn

from gradwire.ddp import LayerOrder
from gradwire.environment import Environment
from gradwire.ps.codes import Code
from gradwire.ps.layout import Layout
from gradwire.ps.link import HEADER, WORKER, Link, Loss, Peers, Request, Tag, open_core
from gradwire.ps.meeting import Arrival, FailedError, Meeting
from gradwire.ps.redundancy import JOIN_SECONDS, check_redundancy
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
        self._worker.carry_on(lambda: self._worker.finish(self._works))
        self._works.clear()

    def replace(self, works: list[Work]) -> None:
        """Wait for other operations: a server was replaced, and the gradient is sent again."""
        self._works[:] = works

    def add(self, works: list[Work]) -> None:
        """Wait for more operations."""
        self._works += works


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
        self._code = Code.of_job()
        if self._code is not None:
            check_redundancy(self._code, setup)
        self._generation = -1
        self._kept: dict[int, torch.Tensor] = {}
        self._find_servers()
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

    def _find_servers(self) -> None:
        """Wait until all servers have their state; raises when one does not come back in time."""
        if self._code is not None:
            self._generation = self._meeting.whole_generation(self._generation)

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
            least = self.setup.timeout if self._code is None else JOIN_SECONDS
            core.join(core.rendezvous(), min(self.setup.timeout, least))
        except RuntimeError as error:
            raise FailedError(
                f"gradwire.ps: not all of {'; '.join(names)} have let this worker in: {error}"
            ) from error
        limit = timedelta(seconds=self.setup.timeout + _SLACK_SECONDS)
        return Link(core, Peers(WORKER, ("this worker", *names)), limit)

    def _enter(self) -> None:
        """Find the servers, give them parameters if they have none, and take theirs."""
        answers = self._replies()
        clocks = [clock for _, _, clock, _ in answers]
        is_sync = self.setup.mode.name == "sync"
        self.clock = min(clocks) if is_sync else max(clocks)
        if self.setup.number == 0 and any(updates < 0 for _, updates, _, _ in answers):
            self._gather(self._pulled, dict(enumerate(self._parameters)))
            for server in range(self.setup.servers):
                self._ask(server, Request.INSTALL, self.clock, self._pulled)
        self.carry_on(lambda: self._pull(0.0))

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
        if self._code is not None:
            self._kept[self.clock] = self._gradient.clone()
        self._last = Push(self, [])
        self.clock += 1
        generation = self._generation

        def send() -> None:
            if self._generation == generation:  # else it was sent when a server was replaced
                self._last.add(self._push(range(self.setup.servers), self._gradient))

        self.carry_on(send)
        return self._last

    def _push(self, servers: Sequence[int], gradient: torch.Tensor, clock: int = -1) -> list[Work]:
        step = clock if clock >= 0 else self.clock - 1
        works = [self._ask(server, Request.PUSH, step, gradient) for server in servers]
        return [work for some in works for work in some]

    def carry_on(self, action: Callable[[], None]) -> None:
        """Act; where redundancy lets a lost server be replaced, catch up and act again."""
        while True:
            try:
                return action()
            except RuntimeError as error:
                if self._code is None or not self._link.has_failed:
                    raise
                self._catch_up(error)

    def _catch_up(self, error: RuntimeError) -> None:
        """Meet the servers again, and push the gradients that a new one of them lacks."""
        self._drop()
        while True:
            try:
                self._find_servers()
            except FailedError:
                raise
            except RuntimeError:  # the store is gone
                raise error from None
            try:
                self._link = self._met()
                works = []
                for server, (_, _, clock, _) in enumerate(self._replies()):
                    for step in range(clock, self.clock):
                        works += self._push([server], self._kept_gradient(step), step)
                return self._last.replace(works)
            except RuntimeError:  # one more server was lost
                if self._meeting.has_failed():
                    raise self._meeting.failure() from None
                self._drop()

    def _kept_gradient(self, step: int) -> torch.Tensor:
        if step not in self._kept:
            text = (
                f"gradwire.ps: a server goes on at step {step}, whose gradient this worker does "
                "not have any more: start again from a checkpoint"
            )
            self._meeting.fail(text)
            raise self._meeting.failure()
        return self._kept[step]

    def pull(self) -> None:
        """Replace the model's parameters by the servers', as soon as the mode allows it.

        Synchronous: when the gradients of all workers up to this clock are applied. Bounded-stale:
        when no worker is more than ``staleness`` steps behind this one. Asynchronous: at once.
        """
        self.carry_on(lambda: self._pull(self.setup.pull_tolerance))

    def _pull(self, tolerance: float) -> None:
        works = [
            self._link.receive(
                self._pulled[begin:end],
                1 + server,
                Tag.PARAMETERS,
                self._loss(server, tolerance, self.clock),
            )
            for server, (begin, end) in enumerate(self._shards)
        ]
        is_whole = int(tolerance == 0)
        asked = [
            self._link.say(1 + server, Tag.REQUEST, Request.PULL, self.clock, is_whole)
            for server in range(self.setup.servers)
        ]
        kept = min(kept for _, _, _, kept in self._replies())
        self._kept = {step: gradient for step, gradient in self._kept.items() if step >= kept}
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
            self.carry_on(self._say_finished)
            self._link.close()

    def _say_finished(self) -> None:
        self._last.wait()
        self.finish(
            [
                self._link.say(1 + server, Tag.REQUEST, Request.FINISH, self.clock)
                for server in range(self.setup.servers)
            ]
        )

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

    def _loss(self, server: int, tolerance: float, clock: int) -> Loss:
        """Return the tolerance, and the places of the layers in a server's shard."""
        layers = []
        for piece in self._layout.pieces(self._shards[server]):
            layer = self._order.of(self._parameters[self._layout.names.index(piece.name)])
            if not layers or layers[-1][1] != layer:
                layers.append((piece.start * self._layout.dtype.itemsize, layer))
        return Loss(tolerance, clock, 1 + server, tuple(layers), self._order.count)

    def _ask(self, server: int, request: Request, clock: int, flat: torch.Tensor) -> list[Work]:
        """Send a server a request and its shard of a vector."""
        is_push = request is Request.PUSH
        tag = Tag.GRADIENT if is_push else Tag.PARAMETERS
        loss = self._loss(server, self._tolerance if is_push else 0.0, clock)
        begin, end = self._shards[server]
        said = self._link.say(1 + server, Tag.REQUEST, request, clock)
        return [said, self._link.send(flat[begin:end], 1 + server, tag, loss)]

    def _replies(self) -> list[tuple[int, int, int, int]]:
        """Wait for a reply of every server.

        It has whether all is well, the updates applied, this worker's clock, and the updates whose
        gradients the worker need not keep.
        """
        headers = [torch.zeros(HEADER, dtype=torch.int64) for _ in self._shards]
        self.finish(
            [
                self._link.receive(header, 1 + server, Tag.REPLY)
                for server, header in enumerate(headers)
            ]
        )
        answers = [(int(h[0]), int(h[1]), int(h[2]), int(h[3])) for h in headers]
        if not all(is_well for is_well, _, _, _ in answers):
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
