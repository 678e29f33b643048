"""Lets the processes of a launch find each other and exchange notes, through PyTorch's store.

Tensors do not pass here. The keys are below ``gradwire.ps``:

- ``setup``: the configuration, which must be equal on all processes;
- ``layout``: the parameters, written by worker 0;
- ``server/<i>``: the address of a server;
- ``join/<n>``: the n-th arrival of a worker, also of a restarted one;
- ``ended/<i>``: a server has finished;
- ``failed``: why training cannot continue, in the words that all processes raise.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta

import torch.distributed as dist

from gradwire import interfaces
from gradwire.environment import Environment
from gradwire.ps.setup import Setup

_POLL_SECONDS = 0.02
_CONNECT_SECONDS = 300.0
_DEFAULT_PORT = "29500"


class FailedError(RuntimeError):
    """Training over the parameter server cannot continue; names the process and the cause."""


@dataclass(frozen=True)
class Arrival:
    """The arrival of a worker: a small job of it and the servers is about to start."""

    worker: int
    place: str
    """Its rank and address, for messages."""

    rendezvous: str
    token: str


class Meeting:
    """This process's way to the store."""

    def __init__(self, setup: Setup) -> None:
        """Connect, and compare the configuration; raises if it differs."""
        environment = Environment.read()
        self.setup = setup
        self.host = interfaces.bind_address(environment.interface, environment.master_address)
        self._store = dist.PrefixStore("gradwire.ps", _store(environment, setup))
        self._agree()

    @property
    def place(self) -> str:
        """This process as messages name it."""
        return f"rank {self.setup.rank}, {self.host}, process {os.getpid()}"

    def _agree(self) -> None:
        ours = self.setup.agreed()
        theirs = json.loads(self._first("setup", json.dumps(ours)))
        for key, value in ours.items():
            if theirs[key] != value:
                self.fail(
                    f"gradwire.ps: {key} is {value!r} on rank {self.setup.rank} and "
                    f"{theirs[key]!r} on another: give every process the same Setup"
                )
                raise self.failure()

    def _first(self, key: str, value: str) -> str:
        """Write ``key`` unless a process has written it; return the value of the first writer."""
        return self._store.compare_set(key, "", value).decode()

    def fail(self, text: str) -> None:
        """Note for all processes why training is over; the first note stays."""
        self._first("failed", text)

    def failure(self) -> FailedError:
        """Return the error that all processes raise."""
        return FailedError(self._store.get("failed").decode())

    def has_failed(self) -> bool:
        """Whether a process has noted that training is over."""
        return self._store.check(["failed"])

    def wait_for(self, key: str, who: str) -> str:
        """Return the value of ``key``; raises when ``who`` does not write it in time."""
        end = time.monotonic() + self.setup.timeout
        while not self._store.check([key]):
            if self.has_failed():
                raise self.failure()
            if time.monotonic() > end:
                raise FailedError(
                    f"gradwire.ps: {who} has not arrived within {self.setup.timeout:.0f} s; is it "
                    "running, with the same MASTER_ADDR and MASTER_PORT?"
                )
            time.sleep(_POLL_SECONDS)
        return self._store.get(key).decode()

    def agree_on_layout(self, text: str) -> str:
        """Worker 0 publishes the parameters; returns its text."""
        if self.setup.number == 0 and not self.setup.is_server:
            return self._first("layout", text)
        return self.layout()

    def layout(self) -> str:
        """Return the text of worker 0."""
        return self.wait_for("layout", "worker 0 (rank 0)")

    def announce_server(self) -> None:
        """Publish the address of this server."""
        self._store.set(f"server/{self.setup.number}", self.place)

    def servers(self) -> list[str]:
        """Return the addresses of all servers."""
        return [
            self.wait_for(
                f"server/{server}", f"server {server} (rank {self.setup.rank_of_server(server)})"
            )
            for server in range(self.setup.servers)
        ]

    def arrive(self, arrival: Arrival) -> None:
        """Ask all servers to join a worker's job."""
        number = self._store.add("joins", 1) - 1
        self._store.set(f"join/{number}", json.dumps(asdict(arrival)))

    def arrival(self, number: int) -> Arrival | None:
        """Return the arrival with this number if there is one by now."""
        key = f"join/{number}"
        return Arrival(**json.loads(self._store.get(key))) if self._store.check([key]) else None

    def end(self, patience: float) -> None:
        """Note that this server has ended; the process that runs the store waits for the others."""
        self._store.set(f"ended/{self.setup.number}", "yes")
        others = [f"ended/{server}" for server in range(self.setup.servers)]
        if self.setup.number == 0:
            wait_until(lambda: self._store.check(others), patience)


def wait_until(is_done: Callable[[], bool], patience: float) -> bool:
    """Poll until a condition holds; return whether it did within ``patience`` seconds."""
    end = time.monotonic() + patience
    while not is_done():
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _store(environment: Environment, setup: Setup) -> dist.Store:
    """Connect to the store of ``torchrun``, or to the first server's."""
    if environment.is_under_agent:
        store, _, _ = next(dist.rendezvous("env://"))
        return store
    if not environment.master_address:
        raise ValueError(
            "gradwire.ps: MASTER_ADDR is not set: start this program by torchrun, or give every "
            "process the host of the first server in MASTER_ADDR"
        )
    return dist.TCPStore(
        environment.master_address,
        int(environment.master_port or _DEFAULT_PORT),
        is_master=setup.is_server and setup.number == 0,
        timeout=timedelta(seconds=min(setup.timeout, _CONNECT_SECONDS)),
        wait_for_workers=False,
    )
