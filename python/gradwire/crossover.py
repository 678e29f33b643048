"""Let two training jobs share the same processors in turns: one computes, the other exchanges.

    lease = gradwire.crossover.share(model, "/tmp/pair", job=0)  # the other job: job=1
    ...train as usual...
    lease.close()

Each rank of a job shares a lease with the rank of the other job on the same host. A job takes the
lease when its forward pass begins and passes it on as soon as its last gradient is ready, so
the other job computes while its gradients are exchanged. Both jobs stay synchronous, and compute
the same values as alone. On all hosts, turns alternate from job 0 on; so no job waits for a turn
that waits for its own messages.

Only the abstract of CrossoverScheduler (Yu et al., arXiv 2103.07974) is public; the rules here are
gradwire's own. Both models stay in memory.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

__all__ = ["JOBS", "Lease", "share"]

JOBS = 2
"""How many jobs take turns."""
_TURN = b"."


class Lease:
    """The right to compute, which two processes of a host pass to each other through named pipes.

    A process that has ended, in whichever way, needs no more turns: its pipe is at its end, and the
    other process computes whenever it wants.
    """

    def __init__(self, folder: str | os.PathLike[str], job: int) -> None:
        """Meet the other job in ``folder``, which is made; blocks until it is there, too.

        Args:
            folder: a folder of this host, the same for both processes and for no others.
            job: 0 for the job that computes first, 1 for the other.

        Raises:
            ValueError: for another ``job``.
        """
        if job not in range(JOBS):
            raise ValueError(
                f"gradwire.crossover: job={job!r}: allowed are 0 and 1, one for each job"
            )
        self._holds = job == 0
        self._is_alone = False
        pipes = [Path(folder, f"to-job{of}") for of in range(JOBS)]
        Path(folder).mkdir(parents=True, exist_ok=True)
        for pipe in pipes:
            with contextlib.suppress(FileExistsError):
                os.mkfifo(pipe)
        # Opening blocks until the other end is opened: both jobs open in the same order.
        ends = {}
        for of, pipe in enumerate(pipes):
            ends[of] = os.open(pipe, os.O_RDONLY if of == job else os.O_WRONLY)
        self._comes, self._goes = ends[job], ends[1 - job]

    @property
    def holds(self) -> bool:
        """Whether this job may compute now."""
        return self._holds

    def take(self) -> None:
        """Wait for the turn of this job, unless it is."""
        if not self._holds and not self._is_alone:
            self._is_alone = os.read(self._comes, 1) != _TURN
        self._holds = True

    def give(self) -> None:
        """Pass the turn to the other job, if it is this job's."""
        if not self._holds:
            return
        self._holds = False
        if not self._is_alone:
            try:
                os.write(self._goes, _TURN)
            except BrokenPipeError:
                self._is_alone = True

    def close(self) -> None:
        """Need no more turns; the other job has all from now on."""
        for end in (self._comes, self._goes):
            if end >= 0:
                os.close(end)
        self._comes = self._goes = -1
        self._holds = self._is_alone = True


def share(model: nn.Module, folder: str | os.PathLike[str], job: int) -> Lease:
    """Let ``model`` compute only in the turns of its job.

    Args:
        model: the model that is trained, usually a ``DistributedDataParallel``. All of its
            parameters that require gradients must take part in each backward pass.
        folder: a folder of each host for this pair of jobs; each rank uses one within it.
        job: 0 for the job that computes first, 1 for the other.
    """
    rank = dist.get_rank() if dist.is_initialized() else 0
    lease = Lease(Path(folder, f"rank{rank}"), job)
    parameters = [one for one in model.parameters() if one.requires_grad]
    missing = set(range(len(parameters)))

    def begins(*_: object) -> None:
        if torch.is_grad_enabled():
            lease.take()

    def ready(number: int) -> None:
        missing.discard(number)
        if not missing:
            missing.update(range(len(parameters)))
            lease.give()

    model.register_forward_pre_hook(begins)
    for number, parameter in enumerate(parameters):
        parameter.register_post_accumulate_grad_hook(lambda _, number=number: ready(number))
    return lease
