"""Starts servers that keep each other's state: threads, and processes that can be killed."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import serving
from gradwire import ps
from gradwire.ps.setup import Setup
from launching import PROGRAMS, own_zygote
from serving import Place
from zygote import Rank, Start

STEPS = 24
KILLED_AT = 13
WORKERS = 2


@dataclass
class Servers:
    """Servers: threads of this process, and processes that can be killed and replaced."""

    place: Place
    count: int = 4
    processes: tuple[int, ...] = (3,)
    timeout: float = 30.0
    running: dict[int, Rank] = field(default_factory=dict)
    started: list[tuple[int, Rank, Path]] = field(default_factory=list)
    ends: dict[int, Any] = field(default_factory=dict)

    def start(self, server: int, life: str = "lives") -> Rank:
        """Start a process that serves, also in place of another."""
        environment = dict(os.environ, RANK=str(WORKERS + server), WORLD_SIZE=str(self.world))
        errors = self.place.folder / f"server{server}-{len(self.started)}"
        arguments = [str(self.count), str(self.timeout), life]
        program = str(PROGRAMS / "redundant.py")
        rank = Rank(own_zygote(), Start(program, arguments, environment, str(errors), False))
        self.running[server] = rank
        self.started.append((server, rank, errors))
        return rank

    def kill(self, *servers: int) -> None:
        """Kill servers, all before any end is waited for."""
        for server in servers:
            self.running[server].kill()

    @property
    def world(self) -> int:
        """Ranks of the launch."""
        return WORKERS + self.count

    def train(self, act: Callable[[], None]) -> list[Any]:
        """Train, and act at one step; return each worker's parameters or error."""
        for server in self.processes:
            self.start(server)
        here = [s for s in range(self.count) if s not in self.processes]
        ranks = [*range(WORKERS), *(WORKERS + server for server in here)]
        threads = [
            threading.Thread(target=self._run, args=(rank, act), daemon=True) for rank in ranks
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return [self.ends.get(rank, TimeoutError(f"rank {rank} hangs")) for rank in range(WORKERS)]

    def _run(self, rank: int, act: Callable[[], None]) -> None:
        try:
            setup = Setup(
                servers=self.count, timeout=self.timeout, rank=rank, world_size=self.world
            )
            if setup.is_server:
                self.ends[rank] = ps.Server(setup, adam).serve()
            else:
                self.ends[rank] = _steps(setup, act)
        except Exception as error:
            self.ends[rank] = error


def adam(parameters: Any) -> torch.optim.Optimizer:
    """Make an optimizer that has state."""
    return torch.optim.Adam(parameters, lr=0.01)


def _steps(setup: Setup, act: Callable[[], None]) -> torch.Tensor:
    model = serving.network(seed=7 + setup.rank)
    with ps.Worker(setup, model) as worker:
        while worker.clock < STEPS:
            if setup.rank == 0 and worker.clock == KILLED_AT:
                act()
            model.zero_grad()
            serving.loss_of(model, setup.rank, worker.clock).backward()
            worker.step()
    return serving.flat(model)
