"""Two jobs that take turns: one at a time computes, and both compute what they compute alone."""

import hashlib
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
dist = torch.distributed

forking = multiprocessing.get_context("forkserver")
"""Its server imports PyTorch once, and forks itself for every rank."""
forking.set_forkserver_preload(["torch._dynamo", "torch.nn.parallel", "pytest"])

STEPS = 5
WORLD = 2


def _note(path: Path, what: str) -> None:
    with path.open("ab") as file:
        os.write(file.fileno(), f"{what}\n".encode())


def _turns(folder: Path, job: int, turns: int) -> None:
    from gradwire.crossover import Lease

    lease = Lease(folder / "pair", job)
    for _ in range(turns):
        lease.take()
        _note(folder / "log", f"begin {job}")
        _note(folder / "log", f"end {job}")
        lease.give()
    lease.close()


def _run(target: Any, calls: list[tuple[Any, ...]]) -> None:
    processes = [forking.Process(target=target, args=call) for call in calls]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(processes)


def turns_alternate_until_one_job_has_ended(tmp_path: Path) -> None:
    _run(_turns, [(tmp_path, 0, 3), (tmp_path, 1, 6)])
    log = (tmp_path / "log").read_text().split("\n")
    jobs = [line.split()[1] for line in log if line.startswith("begin")]
    assert jobs == ["0", "1"] * 3 + ["1"] * 3
    assert all(log[at].split()[1] == log[at + 1].split()[1] for at in range(0, 18, 2))


def other_jobs_than_two_are_refused(tmp_path: Path) -> None:
    from gradwire.crossover import Lease

    with pytest.raises(ValueError, match="allowed are 0 and 1"):
        Lease(tmp_path, 2)


def _train(folder: Path, job: int, rank: int, place: str) -> None:
    from torch.nn.parallel import DistributedDataParallel

    from gradwire import crossover

    store = dist.FileStore(str(folder / f"store{place}{job}"), WORLD)
    dist.init_process_group("gradwire", store=store, rank=rank, world_size=WORLD)
    torch.manual_seed(job)
    torch.set_num_threads(1)
    layers = [torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    lease = crossover.share(model, folder / "pair", job) if place == "both" else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.Generator().manual_seed(7 * job + rank)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(16, 64, generator=data)).square().mean().backward()
        optimizer.step()
    if lease:
        lease.close()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    (folder / f"{place}-{job}-{rank}").write_text(digest.hexdigest())
    dist.destroy_process_group()


def jobs_in_turns_compute_what_they_compute_alone(tmp_path: Path) -> None:
    ranks = [(job, rank) for job in (0, 1) for rank in range(WORLD)]
    for place in ("both", "alone"):
        _run(_train, [(tmp_path, job, rank, place) for job, rank in ranks])
    for job in (0, 1):
        places = [(how, rank) for how in ("both", "alone") for rank in range(WORLD)]
        values = {(tmp_path / f"{how}-{job}-{rank}").read_text() for how, rank in places}
        assert len(values) == 1, f"job {job}"
