"""A process group for torchft, whose members change during a training.

``torchft.Manager(pg=ProcessGroupGradwire(), ...)`` takes it where the examples of torchft have
``ProcessGroupGloo``. Each quorum is a job of its own: the old job is aborted, its threads and
sockets end, and the members of the new quorum meet at the quorum's store with a new secret.

torchft is no dependency of this package: install it as its own pages say.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _DistributedBackendOptions
from torch.distributed import AllreduceOptions, ReduceOp
from torchft.process_group import ProcessGroupWrapper

from gradwire import launch
from gradwire.gradients import next_step

if TYPE_CHECKING:
    from gradwire import _binding

__all__ = ["ProcessGroupGradwire"]

_KIND = dist.ProcessGroup.BackendType.CUSTOM


class ProcessGroupGradwire(ProcessGroupWrapper):
    """A gradwire backend that can be configured again, with other members.

    Args:
        timeout: how long the members may take to meet, and an operation to end.
        tolerance: share of an all-reduce's messages that may be missing, below 1; for sums and
            means of floats only, and 0 for lossless. All members give the same. It suits DiLoCo,
            whose outer gradients are large, rare, and travel far.
    """

    def __init__(
        self, timeout: timedelta = timedelta(seconds=60), *, tolerance: float = 0.0
    ) -> None:
        """Create a group without members; :meth:`reconfigure` gives it some."""
        if not 0 <= tolerance < 1:
            raise ValueError(
                f"gradwire: a tolerance of {tolerance}: give a share of a message, from 0 to below "
                "1"
            )
        super().__init__(timeout)
        self._tolerance = tolerance
        self._backend: _binding.Backend | None = None

    def getBackendName(self) -> str:  # noqa: N802 (torchft's name)
        """Return the name by which torchft knows this kind of group."""
        return "torchft-gradwire"

    def allreduce(
        self, tensors: list[torch.Tensor], opts: AllreduceOptions | ReduceOp
    ) -> dist.Work:
        """Sum over the members, within the tolerance where there is one."""
        op = getattr(opts, "reduceOp", opts)
        (first, *others) = tensors
        is_tolerant = self._tolerance > 0 and first.is_floating_point() and not others
        if self._backend is None or not is_tolerant or op not in (ReduceOp.SUM, ReduceOp.AVG):
            return super().allreduce(tensors, opts)
        return self._backend.allreduce_tagged(
            first,
            layer_offsets=[],
            layers=[],
            layer_count=0,  # unknown: the only layer of a model would be a protected one
            tolerance=self._tolerance,
            step=next_step(),
            tensor_key=0,
            op=op,
        )

    def shutdown(self) -> None:
        """Leave the job; operations that are pending here may end before."""
        self._backend = None
        super().shutdown()

    def _create_pg(self, store: dist.Store, rank: int, world_size: int) -> dist.ProcessGroup:
        options = _DistributedBackendOptions()
        options.store = store
        options.group_rank = rank
        options.group_size = world_size
        options.timeout = self._timeout
        self._backend = launch.create_backend(options)
        group = dist.ProcessGroup(store, rank, world_size)
        group._set_default_backend(_KIND)
        for device in ("cpu", "cuda"):
            group._register_backend(torch.device(device), _KIND, self._backend)
        return group
