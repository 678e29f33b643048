"""Lets the processes of a launch find each other and exchange notes, through PyTorch's store.

Tensors do not pass here. The keys are below ``gradwire.ps``:

- ``setup``: the configuration, which must be equal on all processes;
- ``layout``: the parameters, written by worker 0;
- ``server/<i>``: the address of a server;
- ``join/<n>``: the n-th arrival of a worker, also of a restarted one;
- ``ended/<i>``: a server has finished;
- ``generation``, and ``present/<g>/<i>``, ``rendezvous/<g>``, ``live/<g>/<i>`` of each: how many
  servers have come in place of others, which servers are there, where they meet, and which
  serve workers (:mod:`gradwire.ps.redundancy`);
- ``finished/<w>``: after how many steps a worker has finished, for servers that come later;
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
_SLACK_SECONDS = 5.0
"""Servers, which know which one is lost, give up before workers do."""

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

    def announce_server(self) -> bool:
        """Publish the address of this server; return whether there was one in its place before."""
        key = f"server/{self.setup.number}"
        is_replacement = self._store.check([key])
        self._store.set(key, self.place)
        return is_replacement

    def replace_server(self) -> None:
        """Ask all servers to meet anew, with this one in place of a lost one."""
        self._store.add("generation", 1)

    def generation(self) -> int:
        """Return how many servers have come in place of others."""
        return int(self._store.add("generation", 0))

    def note_present(self, generation: int) -> None:
        """Tell the other servers that this one is there."""
        self._store.set(f"present/{generation}/{self.setup.number}", "yes")

    def absent(self, generation: int) -> list[int]:
        """Return the servers that are not there."""
        keys = self._each(f"present/{generation}")
        return [server for server, key in enumerate(keys) if not self._store.check([key])]

    def note_live(self, generation: int) -> None:
        """Tell workers that this server has its state."""
        self._store.set(f"live/{generation}/{self.setup.number}", "yes")

    def note_rendezvous(self, generation: int, rendezvous: str, token: str) -> None:
        """Publish where the servers' job meets."""
        self._store.set(f"rendezvous/{generation}", json.dumps([rendezvous, token]))

    def rendezvous(self, generation: int, patience: float) -> tuple[str, str]:
        """Return where the servers' job meets, and its token."""
        key = f"rendezvous/{generation}"
        if not wait_until(lambda: self._store.check([key]), patience):
            raise RuntimeError("the first server has not opened the servers' job")
        rendezvous, token = json.loads(self._store.get(key))
        return rendezvous, token

    def whole_generation(self, last: int) -> int:
        """Wait for a generation after ``last`` in which all servers serve; return its number."""
        end = time.monotonic() + self.setup.timeout + _SLACK_SECONDS
        while True:
            generation = self.generation()
            if generation > last and self._store.check(self._each(f"live/{generation}")):
                return generation
            if self.has_failed():
                raise self.failure()
            if time.monotonic() > end:
                raise FailedError(
                    "gradwire.ps: a server was lost and none came in its place within "
                    f"{self.setup.timeout:.0f} s: start one with the same RANK in time"
                )
            time.sleep(_POLL_SECONDS)

    def _each(self, prefix: str) -> list[str]:
        return [f"{prefix}/{server}" for server in range(self.setup.servers)]

    def note_finished(self, worker: int, clock: int) -> None:
        """Tell servers that come later that a worker has finished."""
        self._store.set(f"finished/{worker}", str(clock))

    def finished(self) -> dict[int, int]:
        """Return the workers that have finished, and after how many steps."""
        keys = {worker: f"finished/{worker}" for worker in range(self.setup.workers)}
        return {w: int(self._store.get(key)) for w, key in keys.items() if self._store.check([key])}

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

    def arrivals(self) -> int:
        """Return how many workers have arrived by now."""
        return int(self._store.add("joins", 0))

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
