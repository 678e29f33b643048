"""Facts about sweeps over Ray: the results, wherever a cell ran and whichever worker died."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gradwire

CELLS = 16
PLAN = """
[base]
fabric = "fabric.toml"
[ranges]
tolerance = ["0%", "10%"]
seed = "1..=8"
"""

_slow = pytest.mark.skipif(
    not os.environ.get("GRADWIRE_SLOW"), reason="starts a cluster; GRADWIRE_SLOW=1 runs it"
)


def _plan(folder: Path, workload: str) -> Path:
    """Write a plan and the fabric that it names."""
    (folder / "fabric.toml").write_text('shape = "fat-tree:k=4@100G"\n')
    plan = folder / "plan.toml"
    plan.write_text(PLAN.replace("[ranges]", f'workload = "{workload}"\n[ranges]'))
    return plan


def _results_of_the_command(plan: Path, out: Path) -> str:
    command = Path(sys.executable).with_name("gradwire")
    subprocess.run([command, "sim", "sweep", plan, "--out", out], check=True)
    return (out / "results.jsonl").read_text()


def _finished(out: Path) -> int:
    return len(list((out / "cells").glob("*.json")))


@contextlib.contextmanager
def _cluster_of_two_workers() -> Iterator[tuple[Any, list[Any]]]:
    """Start a head that runs nothing and two workers of one CPU, each with a raylet of its own."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    try:
        yield cluster, [cluster.add_node(num_cpus=1) for _ in range(2)]
    finally:
        cluster.shutdown()


def _descendants(process: int) -> Iterator[int]:
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            yield child
            yield from _descendants(child)


def _has_a_cell_under_way(process: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        commands = (Path(f"/proc/{child}/cmdline") for child in _descendants(process))
        return any(b"--told" in command.read_bytes() for command in commands)
    return False


def _raylet(worker: Any) -> subprocess.Popen[bytes]:
    return worker.all_processes["raylet"][0].process


@_slow
def a_killed_worker_costs_no_cell(tmp_path: Path) -> None:
    plan = _plan(tmp_path, "permutation:16MB")
    out = tmp_path / "ray"
    seen = []
    with _cluster_of_two_workers() as (cluster, workers):
        victim = _raylet(workers[0])

        def kill_in_the_middle() -> None:
            while _finished(out) < 3 or not _has_a_cell_under_way(victim.pid):
                time.sleep(0.01)
            os.kill(victim.pid, signal.SIGKILL)
            seen.append(_finished(out))

        killer = threading.Thread(target=kill_in_the_middle, daemon=True)
        killer.start()
        results = gradwire.sweep(plan, address=cluster.address, out=out, progress=False)
        assert victim.wait(timeout=10) == -signal.SIGKILL
        assert _raylet(workers[1]).poll() is None
    assert seen[0] < CELLS - 2
    assert len(results) == CELLS
    assert all(result["result"]["finished"] == result["result"]["flows"] for result in results)
    expected = _results_of_the_command(plan, tmp_path / "command")
    assert (out / "results.jsonl").read_text() == expected


@_slow
def a_cluster_is_started_where_none_is_named_and_finished_cells_are_kept(tmp_path: Path) -> None:
    plan = _plan(tmp_path, "permutation:64KB")
    expected = _results_of_the_command(plan, tmp_path / "plan.results")
    kept = sorted((tmp_path / "plan.results" / "cells").glob("*.json"))
    for path in kept[:4]:
        path.unlink()
    times = [path.stat().st_mtime_ns for path in kept[4:]]
    assert len(gradwire.sweep(plan, parallel=2)) == CELLS
    assert (tmp_path / "plan.results" / "results.jsonl").read_text() == expected
    assert [path.stat().st_mtime_ns for path in kept[4:]] == times


def without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'gradwire\[ray\]'"):
        gradwire.sweep("plan.toml")


def a_wrong_plan_is_named_with_its_line_and_starts_nothing(tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text('[base]\nfabrik = "single:4@25G"\n')
    with pytest.raises(gradwire.SweepError, match=r"line 2: unknown key `fabrik`"):
        gradwire.sweep(plan)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.toml"]
