"""Sweeps of simulated fabrics over the machines of a Ray cluster.

Plan, cells and results are those of ``gradwire sim sweep``. Its command lists the cells, runs each
of them on a worker, and gathers the results. Workers share no disk with the driver: the files that
a plan names travel to them, and results come back, through Ray.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path, PurePath
from types import ModuleType
from typing import IO, Any

RETRIES = 5
"""How often a cell is run again because the worker that had it died."""

_CHECK_FAILED = 1
"""Exit code of the command when all results are gathered and cells have failed."""


class SweepError(RuntimeError):
    """A plan is wrong, or cells have failed; the message says which."""

    def __init__(self, message: str, results: list[dict[str, Any]] | None = None) -> None:
        """Report ``message``; ``results`` has the records of all cells, failed ones too."""
        super().__init__(message)
        self.results = results or []


def sweep(
    plan: str | os.PathLike[str],
    address: str | None = None,
    out: str | os.PathLike[str] | None = None,
    parallel: int | None = None,
    progress: bool = True,
) -> list[dict[str, Any]]:
    """Run every unfinished cell of a plan under Ray.

    gradwire must be installed in the same version on every machine of the cluster. Paths in the
    plan are relative to it, and such files are sent along; a file with an absolute path must exist
    on every machine.

    Args:
        plan: the plan, as ``gradwire sim sweep`` takes it.
        address: of a Ray cluster, or ``"auto"`` for the one of this machine; by default a cluster
            is started on this machine and ended again, unless ``ray.init`` was called before.
        out: folder of the results, by default beside the plan, with its name and ``.results``.
        parallel: how many cells run at the same time; by default as many as the cluster has CPUs.
        progress: whether to show progress on standard error, if that is a terminal.

    Returns:
        The records of ``results.jsonl`` in the folder, in the order of the plan.

    Raises:
        ImportError: Ray is not installed.
        SweepError: the plan is wrong, or cells have failed; all others have been run.
    """
    ray = _imported_ray()
    plan = Path(plan).resolve()
    folder = Path(out).resolve() if out else plan.with_suffix(".results")
    cells = _cells_of(plan, folder)
    missing = [cell for cell in cells if not cell["finished"]]
    if missing:
        (folder / "cells").mkdir(parents=True, exist_ok=True)
        with _connected(ray, address):
            told = _Progress(len(cells), len(missing), sys.stderr if progress else None)
            for cell, record in _records(ray, plan.parent, missing, parallel):
                _keep(folder / "cells" / f"{cell['id']}.json", record)
                told.one_more()
            told.end()
    return _gathered(plan, folder)


def _imported_ray() -> ModuleType:
    try:
        import ray
    except ImportError as error:
        raise ImportError(
            "gradwire: Ray is not installed in this environment; run: pip install 'gradwire[ray]', "
            "or run the plan on this machine: gradwire sim sweep"
        ) from error
    return ray


@contextlib.contextmanager
def _connected(ray: ModuleType, address: str | None) -> Iterator[None]:
    """Connect to the cluster, and disconnect at the end unless the caller had connected."""
    if ray.is_initialized():
        yield
        return
    ray.init(address=address, logging_level="warning", log_to_driver=False)
    try:
        yield
    finally:
        ray.shutdown()


def _records(
    ray: ModuleType, folder: Path, cells: list[dict[str, Any]], parallel: int | None
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield each cell with its record, in the order in which they end."""
    run = ray.remote(num_cpus=1, max_retries=RETRIES)(_run_cell)
    inputs: dict[tuple[str, ...], Any] = {}
    waiting = iter(cells)
    running: dict[Any, dict[str, Any]] = {}
    while True:
        while len(running) < (parallel or len(cells)) and (cell := next(waiting, None)):
            names = tuple(cell["files"])
            if names not in inputs:
                inputs[names] = ray.put({name: (folder / name).read_bytes() for name in names})
            running[run.remote(cell["order"], inputs[names])] = cell
        if not running:
            return
        for done in ray.wait(list(running))[0]:
            cell = running.pop(done)
            try:
                yield cell, ray.get(done)
            except ray.exceptions.RayError as error:
                yield cell, _failure(cell["order"], f"its worker was lost: {error}")


def _run_cell(order: dict[str, Any], files: dict[str, bytes]) -> str:
    """Run one cell on this machine and return its record as a line of JSON; runs on a worker."""
    with tempfile.TemporaryDirectory(prefix="gradwire-sweep-") as root:
        folder = _placed(Path(root), files)
        said = Path(root) / "said"
        with said.open("w") as errors:
            process = subprocess.Popen(
                [_command(), "sim", "sweep", "--told"],
                cwd=folder,
                env=dict(os.environ, GRADWIRE_JOB=""),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        with process:
            assert process.stdin is not None
            assert process.stdout is not None
            # The cell ends when its input does, so nothing is left behind when this worker dies.
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
            record = process.stdout.read()
        if record.endswith("\n"):
            return record
        message = f"its process ended with exit code {process.returncode}: {said.read_text()}"
        return _failure(order, message.strip())


def _placed(root: Path, files: dict[str, bytes]) -> Path:
    """Lay files out below ``root`` and return the folder that their names are relative to."""
    relative = [name for name in files if not PurePath(name).is_absolute()]
    upwards = max((PurePath(name).parts.count("..") for name in relative), default=0)
    folder = root.joinpath("files", *["down"] * upwards)
    folder.mkdir(parents=True)
    for name in relative:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])
    return folder


def _failure(order: dict[str, Any], error: str) -> str:
    return json.dumps({"id": order["id"], "scenario": order["scenario"], "error": error}) + "\n"


def _keep(path: Path, record: str) -> None:
    """Write a cell's file: whole, or not at all."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(record)
    part.replace(path)


def _cells_of(plan: Path, folder: Path) -> list[dict[str, Any]]:
    listed = _ran("sim", "sweep", str(plan), "--out", str(folder), "--list", "--json")
    if listed.returncode:
        raise SweepError(_message(listed))
    return [json.loads(line) for line in listed.stdout.splitlines()]


def _gathered(plan: Path, folder: Path) -> list[dict[str, Any]]:
    gathered = _ran("sim", "sweep", str(plan), "--out", str(folder), "--gather")
    if gathered.returncode not in (0, _CHECK_FAILED):
        raise SweepError(_message(gathered))
    text = (folder / "results.jsonl").read_text()
    results = [json.loads(line) for line in text.splitlines()]
    if gathered.returncode:
        raise SweepError(_message(gathered), results)
    return results


def _ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([_command(), *arguments], capture_output=True, text=True, check=False)


def _message(ended: subprocess.CompletedProcess[str]) -> str:
    return "gradwire: " + ended.stderr.strip().removeprefix("error: ")


def _command() -> str:
    """Find the command of this installation: beside its Python, else on the path."""
    beside = Path(sys.executable).with_name("gradwire")
    found = str(beside) if beside.exists() else shutil.which("gradwire")
    if found is None:
        raise SweepError(
            f"gradwire: the command `gradwire` is neither beside {sys.executable} nor on the path; "
            "run: pip install --force-reinstall gradwire"
        )
    return found


class _Progress:
    """The progress of a sweep, on one line of a terminal."""

    def __init__(self, cells: int, missing: int, stream: IO[str] | None) -> None:
        self._cells = cells
        self._missing = missing
        self._done = 0
        self._stream = stream if stream is not None and stream.isatty() else None
        self._started = time.monotonic()

    def one_more(self) -> None:
        """Count a cell and print the remaining time."""
        self._done += 1
        left = self._missing - self._done
        if self._stream:
            seconds = (time.monotonic() - self._started) / self._done * left
            line = f"{self._cells - left}/{self._cells} cells, about {seconds:.0f} s left"
            print(f"\r{line:<60}", end="", file=self._stream, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if self._stream:
            print(file=self._stream)
