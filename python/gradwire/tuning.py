"""Chunk and credit of a job, found in its first steps (``collectives.tuning`` of the job).

This module decides which steps belong to a trial, and makes all ranks change between the same two
steps. Not here: the choice of the next trial (the core), and the definition of a step (the hook).

A trial is a few steps: one in which the change settles, then some that are measured. Rank 0
measures, asks the core, and broadcasts the answer; every rank takes part in the broadcast before
the first gradients of the same step. A dead rank makes it fail, like any other operation.
"""

from __future__ import annotations

import itertools
import statistics
import time
import weakref
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from gradwire import _binding

__all__ = ["SETTLING_STEPS", "TRIAL_STEPS", "Tuning"]

SETTLING_STEPS = 4
"""Steps before the first trial: DDP rebuilds its buckets, memory is used for the first time."""
TRIAL_STEPS = 4
"""Steps of a trial, the first of which is not measured."""

_tuned: weakref.WeakSet[dist.ProcessGroup] = weakref.WeakSet()


class Tuning:
    """The state of the trials of one process group."""

    def __init__(self, group: dist.ProcessGroup, backend: _binding.Backend) -> None:
        """Prepare the job's trials: none if others have begun in ``group``."""
        trials = int(backend.job()["collectives.tuning"])
        self.is_over = trials == 0 or group in _tuned or group.size() < dist.get_world_size()
        """Whether chunk and credit stay as they are from now on."""
        if not self.is_over:
            _tuned.add(group)
        self._group = group
        self._backend = backend
        self._step = 0
        self._starts: list[float] = []

    def begin_step(self) -> bool:
        """Begin a step before its first gradients are sent; return whether a size changed.

        All ranks of the group must call it equally often.
        """
        if self.is_over:
            return False
        step, self._step = self._step - SETTLING_STEPS, self._step + 1
        self._starts.append(time.perf_counter())
        if step < 0 or step % TRIAL_STEPS != 0:
            return False
        before = self._schedule()
        self._change()
        self._starts = [time.perf_counter()]
        return self._schedule() != before

    def _change(self) -> None:
        told = torch.zeros(3, dtype=torch.int64)
        if self._group.rank() == 0:
            told = torch.tensor(self._backend.tune(self._measured()), dtype=torch.int64)
        dist.broadcast(told, group=self._group, group_src=0)
        going_on, chunk, credit = told.tolist()
        self._backend.reschedule(chunk, credit)
        self.is_over = not going_on

    def _measured(self) -> float:
        """Return the median time of a step of this trial, without the first one.

        An evaluation or a checkpoint between two steps falls into one of them, and does not depend
        on chunk and credit; the median ignores it.
        """
        ends = self._starts[1:]
        steps = [end - start for start, end in itertools.pairwise(ends)]
        return statistics.median(steps)

    def _schedule(self) -> tuple[str, ...]:
        job = self._backend.job()
        return tuple(job[f"collectives.{key}"] for key in ("chunk", "credit"))
