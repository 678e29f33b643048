"""Tolerant all-reduce of gradients under ``DistributedDataParallel``.

The hook tells the core what it cannot see in a flat bucket: which bytes belong to which layer, in
the order of the forward pass, so that front layers travel first; which training step it is, for the
loss budget; and which share of a message may be missing.
"""

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from gradwire import _binding


class LayerOrder:
    """Which layer a parameter belongs to; layer 0 is the first that the forward pass runs.

    A layer is a module with parameters of its own. The order is the one in which modules are
    defined until a forward pass has run, then the one in which that pass ran them; parameters of
    modules that it did not run keep their place behind.
    """

    def __init__(self, module: nn.Module) -> None:
        """Watch the next forward pass of ``module``."""
        self._modules = [
            m for m in module.modules() if next(m.parameters(recurse=False), None) is not None
        ]
        self._run: list[nn.Module] = []
        self._watches = [m.register_forward_pre_hook(self._record) for m in self._modules]
        self._end = module.register_forward_hook(self._finish)
        self._layers = self._number(self._modules)

    @property
    def count(self) -> int:
        """Number of layers in the whole model."""
        return len(self._modules)

    def of(self, parameter: nn.Parameter) -> int:
        """Return the layer of ``parameter``, which must be one of the module's."""
        return self._layers[id(parameter)]

    def _record(self, module: nn.Module, _inputs: object) -> None:
        if not any(module is seen for seen in self._run):
            self._run.append(module)

    def _finish(self, _module: nn.Module, _inputs: object, _outputs: object) -> None:
        for watch in (*self._watches, self._end):
            watch.remove()
        ran = {id(module) for module in self._run}
        self._layers = self._number(
            self._run + [module for module in self._modules if id(module) not in ran]
        )
        self._run = []

    @staticmethod
    def _number(modules: list[nn.Module]) -> dict[int, int]:
        layers: dict[int, int] = {}
        for layer, module in enumerate(modules):
            for parameter in module.parameters(recurse=False):
                layers.setdefault(id(parameter), layer)
        return layers


class GradientHook:
    """What the hook remembers between buckets: the layers, the step, the tolerance."""

    def __init__(self, model: DistributedDataParallel, tolerance: float | None = None) -> None:
        """Prepare the hook for ``model``; see :func:`register`."""
        self._backend = _backend_of(model)
        if tolerance is None:
            tolerance = self._backend.job_tolerance()
        if not 0.0 <= tolerance < 1.0:
            raise ValueError(
                f"gradwire: tolerance {tolerance}: give the share of a gradient message that may "
                "be missing, at least 0 (lossless) and below 1"
            )
        self.tolerance = tolerance
        self.step = 0
        self._order = LayerOrder(model.module)
        self._keys = {id(p): index for index, p in enumerate(model.module.parameters())}

    def all_reduce(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Start the all-reduce of one bucket; the future holds the averaged bucket."""
        parameters = bucket.parameters()
        offsets, layers = self._layers_of(bucket, parameters)
        work = self._backend.allreduce_tagged(
            bucket.buffer(),
            layer_offsets=offsets,
            layers=layers,
            layer_count=self._order.count,
            tolerance=self.tolerance,
            step=self.step,
            tensor_key=self._keys[id(parameters[0])],
        )
        if bucket.is_last():
            self.step += 1
        return work.get_future().then(_only_tensor)

    def _layers_of(
        self, bucket: dist.GradBucket, parameters: list[torch.Tensor]
    ) -> tuple[list[int], list[int]]:
        """Return where each layer of the bucket begins, in bytes, and which layer it is."""
        start = bucket.buffer().data_ptr()
        offsets: list[int] = []
        layers: list[int] = []
        for parameter, gradient in zip(parameters, bucket.gradients(), strict=True):
            layer = self._order.of(parameter)
            if not layers or layers[-1] != layer:
                offsets.append(gradient.data_ptr() - start)
                layers.append(layer)
        return offsets, layers


def register(model: DistributedDataParallel, tolerance: float | None = None) -> GradientHook:
    """Let the gradients of ``model`` travel by layer priority and within a loss tolerance.

    Args:
        model: the wrapped model, before its first backward pass. Its process group must be
            gradwire's.
        tolerance: share of a gradient message that may be missing, 0 for lossless; by default what
            the job says. Every rank must give the same.

    Returns:
        The hook, whose ``step`` counts the backward passes.
    """
    hook = GradientHook(model, tolerance)
    model.register_comm_hook(hook, all_reduce_hook)
    return hook


def all_reduce_hook(
    state: GradientHook, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """Pass one bucket to ``state``: the form in which DDP wants a communication hook."""
    return state.all_reduce(bucket)


def backend_of(group: dist.ProcessGroup | None = None) -> "_binding.Backend":
    """Return gradwire's backend of ``group`` (default: the world), for counters and the job."""
    chosen = group if group is not None else dist.group.WORLD
    if chosen is None:
        raise RuntimeError("gradwire: no process group yet; call init_process_group first")
    backend = chosen._get_backend(torch.device("cpu"))
    backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps it
    if not hasattr(backend, "allreduce_tagged"):
        raise TypeError(
            f"gradwire: the process group runs on {backend.name()!r}; "
            'create it with init_process_group("gradwire")'
        )
    return backend


def _only_tensor(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
    (tensor,) = future.value()
    return tensor


def _backend_of(model: DistributedDataParallel) -> "_binding.Backend":
    return backend_of(model.process_group)
