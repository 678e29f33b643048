"""Runs servers and workers of a parameter server as threads of one process."""

import contextlib
import functools
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gradwire import ps
from gradwire.ps.meeting import Meeting
from programs import parameter_server

SGD = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def network(seed: int = 7) -> nn.Sequential:
    """Make a small network; its largest layer spans both of two servers."""
    generator = torch.Generator().manual_seed(seed)  # threads share the default one
    model = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 10))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.1, generator=generator)
    return model


def loss_of(model: nn.Module, worker: int, step: int) -> torch.Tensor:
    """Compute the loss of a worker's batch of a step: the same whenever it is asked for."""
    inputs = torch.randn(16, 32, generator=torch.Generator().manual_seed(1000 * worker + step))
    return (model(inputs) - inputs[:, :10]).square().mean()


def flat(model: nn.Module) -> torch.Tensor:
    """Return all parameters as one vector."""
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@dataclass
class Place:
    """Where the processes of a launch would meet, and the job that they would have."""

    monkeypatch: pytest.MonkeyPatch
    folder: Path
    job: str = ""

    def prepare(self) -> None:
        """Set the environment."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
        self.monkeypatch.setenv("MASTER_PORT", str(port))
        self.monkeypatch.delenv("GRADWIRE_JOB", raising=False)
        if self.job:
            path = self.folder / "job.toml"
            path.write_text(self.job)
            self.monkeypatch.setenv("GRADWIRE_JOB", str(path))


Train = Callable[[ps.Setup], Any]


@dataclass
class Launch:
    """Servers and workers, and the function that each worker runs."""

    train: Train
    workers: int = 2
    servers: int = 2
    setup: dict[str, Any] = field(default_factory=dict)
    optimizer: Any = SGD
    patience: float = 60.0
    counters: list[dict[str, int]] = field(default_factory=list)
    """Counters of the servers that have ended."""

    def run(self) -> list[Any]:
        """Return each worker's result or exception, then each server's."""
        world = self.workers + self.servers
        ends: list[Any] = [TimeoutError(f"rank {rank} hangs") for rank in range(world)]
        threads = [
            threading.Thread(target=self._run_one, args=(rank, world, ends), daemon=True)
            for rank in range(world)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(self.patience)
        return ends

    def _run_one(self, rank: int, world: int, ends: list[Any]) -> None:
        try:
            given = {"servers": self.servers, "timeout": 30.0, **self.setup}
            if callable(given.get("mode")):
                given["mode"] = given["mode"](rank)
            setup = ps.Setup(rank=rank, world_size=world, **given)
            if setup.is_server:
                server = ps.Server(setup, self.optimizer)
                ends[rank] = server.serve()
                self.counters.append(server.counters())
            else:
                ends[rank] = self.train(setup)
        except Exception as error:
            ends[rank] = error


def steps(count: int, setup: ps.Setup, pause: float = 0.0) -> torch.Tensor:
    """Train for some steps; return the parameters."""
    model = network(seed=7 + setup.rank)  # worker 0's parameters must win
    with ps.Worker(setup, model) as worker:
        while worker.clock < count:
            model.zero_grad()
            loss_of(model, setup.rank, worker.clock).backward()
            worker.step()
    return flat(model)


def alone(count: int, workers: int, optimize: Any = SGD) -> torch.Tensor:
    """Train in one process on the batches of all workers; return the parameters."""
    model = network()
    optimizer = optimize(model.parameters())
    for step in range(count):
        gradients = []
        for worker in range(workers):
            model.zero_grad()
            loss_of(model, worker, step).backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
        for parameter, *parts in zip(model.parameters(), *gradients, strict=True):
            parameter.grad = torch.stack(parts).sum(0) / workers
        optimizer.step()
    return flat(model)


@dataclass
class Processes:
    """Ranks that run ``programs/parameter_server.py``: processes, and threads of this one.

    A process takes seconds to import PyTorch; only those that are killed need to be one.
    """

    folder: Path
    here: tuple[int, ...] = ()
    world: int = 4
    running: dict[int, subprocess.Popen[str]] = field(default_factory=dict)
    threads: list[threading.Thread] = field(default_factory=list)

    def start_all(self) -> None:
        """Start every rank."""
        for rank in range(self.world):
            if rank in self.here:
                run = functools.partial(self._run_here, rank)
                self.threads.append(threading.Thread(target=run, daemon=True))
                self.threads[-1].start()
            else:
                self.start(rank)

    def _run_here(self, rank: int) -> None:
        with contextlib.suppress(ps.FailedError):  # workers have noted it, and servers' is the end
            parameter_server.run(self.folder, rank, self.world)

    def start(self, rank: int) -> None:
        """Start a process, or start it again."""
        environment = dict(os.environ, OMP_NUM_THREADS="1", RANK=str(rank))
        environment["WORLD_SIZE"] = str(self.world)
        program = Path(__file__).parent / "programs" / "parameter_server.py"
        self.running[rank] = subprocess.Popen(
            [sys.executable, str(program), str(self.folder)],
            env=environment,
            stderr=(self.folder / f"errors{rank}").open("a"),
            text=True,
        )

    def signal(self, rank: int, number: signal.Signals) -> None:
        """Send a signal to a rank."""
        self.running[rank].send_signal(number)

    def code(self, rank: int, patience: float = 60.0) -> int:
        """Wait for the end of a rank."""
        return self.running[rank].wait(patience)

    def errors(self, rank: int) -> str:
        """Return a rank's standard error so far."""
        return (self.folder / f"errors{rank}").read_text()

    def note(self, name: str, patience: float = 180.0) -> str:
        """Wait for a file that a rank writes; return its content."""
        path, end = self.folder / name, time.monotonic() + patience
        while not path.exists():
            said = "\n".join(self.errors(rank) for rank in self.running)
            assert time.monotonic() < end, f"no {name} after {patience} s:\n{said}"
            time.sleep(0.02)
        return path.read_text()

    def end(self) -> None:
        """Kill processes that still run, and end the threads: none may outlive the interpreter."""
        for process in self.running.values():
            process.kill()
            process.wait()
        Meeting(parameter_server.setup_of(0, self.world)).fail("the test is over")
        for thread in self.threads:
            thread.join(20)
