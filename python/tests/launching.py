"""Starts the ranks of a job as real processes and collects their reports."""

import atexit
import contextlib
import functools
import importlib.metadata
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradwire import build
from zygote import Rank, Start, Zygote

PROGRAMS = Path(__file__).parent / "programs"
ABOUT_ENDS = {"ending.py", "failing.py", "forked.py", "interrupted.py", "leaving.py"}
"""Programs of tests that look at the ends of ranks, not only at what they do."""

_FIRST_PORT = 20_000 + os.getpid() % 30 * 400
_PORTS = itertools.cycle(range(_FIRST_PORT, _FIRST_PORT + 400, 8))
"""Below those that the kernel gives away, and not those of the other test process. Metrics of
several ranks take the numbers between two of them."""


@dataclass(frozen=True)
class Ended:
    """How one rank ended."""

    code: int
    errors: str
    report: Any

    def succeeded(self) -> Any:
        """Return the rank's report; fails the test if the rank failed."""
        assert self.code == 0, f"exit code {self.code}:\n{self.errors}"
        return self.report


@dataclass(frozen=True)
class Launch:
    """A program of ``programs/`` and how to start it."""

    program: str
    world: int = 2
    arguments: tuple[str, ...] = ()
    job: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    jobs_by_rank: tuple[str, ...] = ()
    inside: tuple[tuple[str, ...], ...] = ()
    """For each rank, the command that starts it, for example in a network namespace."""
    timeout: float = 120.0

    def run(self) -> list[Ended]:
        """Start every rank, wait for all of them, kill those that still run after the timeout."""
        with tempfile.TemporaryDirectory() as folder:
            port = free_port()
            started = [self._start(rank, port, Path(folder)) for rank in range(self.world)]
            try:
                errors = [process.communicate(timeout=self.timeout)[1] for process in started]
            except subprocess.TimeoutExpired:
                for process in started:
                    process.kill()
                said = "\n".join(process.communicate()[1][-2000:] for process in started)
                raise AssertionError(f"still running after {self.timeout} s:\n{said}") from None
            reports = [_report_of(Path(folder), rank) for rank in range(self.world)]
        return [
            Ended(process.returncode, error, report)
            for process, error, report in zip(started, errors, reports, strict=True)
        ]

    def _start(self, rank: int, port: int, folder: Path) -> subprocess.Popen[str] | Rank:
        job = self.jobs_by_rank[rank] if self.jobs_by_rank else self.job
        environment = dict(os.environ, OMP_NUM_THREADS="1", MASTER_ADDR="127.0.0.1")
        environment.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(self.world))
        for name in ("GRADWIRE_JOB", "GRADWIRE_LOG", "GRADWIRE_TRACE", "GRADWIRE_IFNAME"):
            environment.pop(name, None)
        environment.update(self.variables, MASTER_PORT=str(port))
        if job:
            path = folder / f"job{rank}.toml"
            path.write_text(job)
            environment["GRADWIRE_JOB"] = str(path)
        program = str(PROGRAMS / self.program)
        arguments = [str(folder / f"report{rank}.json"), *self.arguments]
        if not self.inside:
            errors = str(folder / f"errors{rank}.txt")
            dismantled = self.program in ABOUT_ENDS and self.arguments != ("starts",)
            return Rank(own_zygote(), Start(program, arguments, environment, errors, dismantled))
        command = [*self.inside[rank], sys.executable, program, *arguments]
        return subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )


@functools.cache
def own_zygote() -> Zygote:
    """Return the process of these tests that forks itself; it starts when first asked for."""
    zygote = Zygote()
    atexit.register(zygote.end)
    return zygote


def _report_of(folder: Path, rank: int) -> Any:
    path = folder / f"report{rank}.json"
    return json.loads(path.read_text()) if path.exists() else None


def is_oldest_torch() -> bool:
    """Return whether these tests run with the oldest PyTorch that gradwire accepts."""
    major, minor = importlib.metadata.version("torch").split(".")[:2]
    return (int(major), int(minor)) == build.MINIMUM_TORCH


def free_port() -> int:
    """Return a TCP port of loopback that is free, and that no other test process asks for."""
    while True:
        port = next(_PORTS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
