"""Runs a cell: forks its ranks from this process, which already has PyTorch and the data.

Importing PyTorch takes a rank seconds, forking it milliseconds. A rank is a process of its own all
the same: one that dies or hangs spoils only its own cell.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import torch._dynamo  # noqa: F401  (DDP imports it when it is made, which takes ranks seconds)

from gradwire import launch
from gradwire.study import training
from gradwire.study.cells import WORLD, Cell
from gradwire.study.task import Task

LIMIT_S = 180.0
"""Time after which the ranks of a cell are killed."""

_ENDING = (signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class CellError(RuntimeError):
    """A cell has failed; the message gives the cause or the ranks' error output."""


def run(cell: Cell, task: Task) -> dict[str, Any]:
    """Train a cell on ranks of its own; return its record."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gradwire-study-") as name:
        folder = Path(name)
        (folder / "job.toml").write_text(cell.job())
        sys.stdout.flush()
        sys.stderr.flush()
        processes = [_fork(cell, task, rank, folder) for rank in range(WORLD)]
        try:
            used = _wait(processes, started + LIMIT_S)
        finally:
            _kill(processes)
        paths = [folder / f"rank{rank}.json" for rank in range(WORLD)]
        if not all(path.exists() for path in paths):
            raise CellError(f"{cell.id}: {_said(folder)}")
        reports = [json.loads(path.read_text()) for path in paths]
    return _record(cell, reports, {**used, "wall_s": round(time.monotonic() - started, 2)})


def _fork(cell: Cell, task: Task, rank: int, folder: Path) -> int:
    # Python would lose an exception that a signal handler raises in its own work around a fork.
    held = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    process = os.fork()
    if process == 0:
        _become(cell, task, rank, folder)
    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    return process


def _become(cell: Cell, task: Task, rank: int, folder: Path) -> NoReturn:
    """Run one rank, then end without the exit handlers: they are the parent's."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # with who forked it
        for number in _ENDING:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        errors = os.open(folder / f"errors{rank}.txt", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD))
        os.environ.update(MASTER_ADDR="127.0.0.1", GRADWIRE_JOB=str(folder / "job.toml"))
        os.environ.update(GRADWIRE_IFNAME="=lo", GRADWIRE_LOG="warn")
        report = training.train(cell, task, rank, folder / "store")
        launch.close_all()
        part = folder / f"rank{rank}.part"
        part.write_text(json.dumps(report))
        part.replace(folder / f"rank{rank}.json")
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _wait(processes: list[int], until: float) -> dict[str, float]:
    """Wait for all ranks; return their CPU time and memory. Ranks that end leave the list."""
    cpu, resident = 0.0, 0
    while processes and time.monotonic() < until:
        end = os.pidfd_open(processes[0])
        select.select([end], [], [], max(0.0, until - time.monotonic()))
        os.close(end)
        ended, _, usage = os.wait4(processes[0], os.WNOHANG)
        if ended:
            processes.pop(0)
            cpu += usage.ru_utime + usage.ru_stime
            resident = max(resident, usage.ru_maxrss)
    return {"cpu_s": round(cpu, 2), "largest_rank_mib": round(resident / 1024)}


def _kill(processes: list[int]) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _said(folder: Path) -> str:
    """Collect the end of each rank's error output."""
    texts = [path.read_text()[-1500:].strip() for path in sorted(folder.glob("errors*.txt"))]
    return "\n".join(text for text in texts if text) or f"its ranks ran longer than {LIMIT_S:g} s"


def _record(cell: Cell, reports: list[dict[str, Any]], used: dict[str, float]) -> dict[str, Any]:
    """Combine the ranks' reports into the cell's record."""
    if len({report["parameter_hash"] for report in reports}) > 1:
        raise CellError(f"{cell.id}: the ranks ended with different parameters")
    names = ("sent_segments", "lost_segments", "repaired_segments", "faults_dropped")
    counted = {name: sum(report["counters"][name] for report in reports) for name in names}
    return {
        "id": cell.id,
        "task": cell.task,
        "seed": cell.seed,
        "drop": cell.drop,
        "tolerance": cell.tolerance,
        "holes": cell.holes,
        "transform": cell.transform,
        "part": cell.part,
        "accepted": _accepted(cell, reports, counted),
        "curve": reports[0]["curve"],
        "counted": counted,
        "joined_s": round(max(report["joined_s"] for report in reports), 2),
        "trained_s": round(max(report["trained_s"] for report in reports), 2),
        **used,
    }


def _accepted(cell: Cell, reports: list[dict[str, Any]], counted: dict[str, int]) -> float:
    """Share of gradients that stayed missing.

    On the wire only the reduce-scatter half of an all-reduce can lose segments, and both halves
    have equally many: so this is lost segments over half of those sent.
    """
    if not cell.is_lossy_on_the_wire:
        return sum(report["zeroed"] for report in reports) / len(reports)
    return counted["lost_segments"] / max(counted["sent_segments"] / 2, 1)
