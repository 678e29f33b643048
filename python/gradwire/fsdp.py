"""Tolerant reduce-scatter of gradients under FSDP2 (``torch.distributed.fsdp.fully_shard``).

FSDP2 reduces the gradients of each sharded module at once, in one reduce-scatter, so each has one
layer and one tolerance: the most urgent layer in it, and the strictest tolerance. Parameters
travel in all-gathers, which this module does not touch and which are always lossless.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import ReduceScatter

from gradwire.gradients import (
    Groups,
    LayerOrder,
    LossScaler,
    Message,
    Reduction,
    Residuals,
    agree,
    backend_of,
    check_reduction,
    check_state,
    codec_of,
    next_step,
    state_of,
    tolerances,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = ["ShardedGradients", "TaggedReduceScatter", "register"]

_ROOT = "(root)"
"""Stands for the name of the model itself, which is empty."""


def register(
    model: nn.Module,
    tolerance: float | None = None,
    *,
    groups: Groups | None = None,
    priority: Sequence[str] = (),
    scaler: LossScaler | None = None,
    **how: Unpack[Reduction],
) -> ShardedGradients:
    """Let the gradients of ``model`` travel by layer priority and within a loss tolerance.

    Args:
        model: a module on which ``fully_shard`` was called, on its parts before it as usual, and
            whose forward pass has not run. Its device mesh must be gradwire's.
        tolerance: share of a gradient message that may be missing, 0 for lossless; by default the
            job's tolerance. Every rank must give the same, here and below.
        groups: other tolerances for parts of the model, as in :func:`gradwire.ddp.register`.
            Parameters that are sharded together take the strictest of their tolerances.
        priority: names of modules whose gradients go before all others, the most urgent first.
        scaler: the ``torch.amp.GradScaler`` of a training in mixed precision. When it changes the
            scale of the loss, the values that error feedback keeps follow.
        how: ``codec`` shortens gradients between hosts, as in :func:`gradwire.ddp.register`.

    Returns:
        The state of these gradients, with ``step``, ``state_dict()`` and ``load_state_dict()`` as
        on the hook of :func:`gradwire.ddp.register`.
    """
    if check_reduction(how).get("reduce") == "adasum":
        raise ValueError('gradwire: reduce="adasum" is for DistributedDataParallel')
    gradients = ShardedGradients(
        model, tolerance, groups=groups, priority=priority, scaler=scaler, **how
    )
    for unit in gradients.units:
        unit.modules[0].set_custom_reduce_scatter(TaggedReduceScatter(gradients, unit))
    return gradients


@dataclass(frozen=True)
class Unit:
    """Modules whose parameters are sharded, gathered and reduced together."""

    name: str
    modules: list[FSDPModule]
    parts: list[nn.Module]
    """Modules in it with parameters of their own."""

    tolerance: float


class ShardedGradients:
    """The state of a sharded model's gradients between reduce-scatters."""

    def __init__(
        self,
        model: nn.Module,
        tolerance: float | None = None,
        *,
        groups: Groups | None = None,
        priority: Sequence[str] = (),
        scaler: LossScaler | None = None,
        **how: Unpack[Reduction],
    ) -> None:
        """Prepare for ``model``; see :func:`register`."""
        if not isinstance(model, FSDPModule):
            raise TypeError(
                f"gradwire: a {type(model).__name__} that is not sharded; call fully_shard(model) "
                "first, or gradwire.ddp.register for DistributedDataParallel"
            )
        world = dist.group.WORLD
        self._backend = backend_of(world, next(model.parameters()).device)
        self._group = world
        self.step = 0
        self._wire_step = 0
        self._reduced: set[str] = set()
        self._order = LayerOrder(model, priority)
        default = self._backend.job_tolerance() if tolerance is None else tolerance
        shares = tolerances(model, default, groups)
        agree(self._group, shares, priority, how)
        self.units = list(_units_of(model, shares))
        self._messages: dict[str, Message] = {}
        self._codec = codec_of(how.get("codec"))
        self._residuals = Residuals(self._backend, scaler, self._codec)

    def tags_of(self, unit: Unit, gradients: torch.Tensor) -> dict[str, Any]:
        """Return the tags of the gradients of ``unit``, and add their residuals."""
        message = self._message_of(unit, gradients)
        self._residuals.pay(message, gradients)
        return {
            "layer": self._order.of_modules(unit.parts),
            "layer_count": self._order.count,
            "tolerance": message.tolerance,
            "step": self._wire_step,
            "tensor_key": message.key,
            "codec": self._codec.number,
            "codec_share": self._codec.share,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this rank, between two steps; every rank has its own."""
        return state_of(self._group, self.step, self._residuals)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that :meth:`state_dict` returned on this rank and world size."""
        units = {unit.name for unit in self.units}
        owed = state.get("residuals", {})
        check_state(state, self._group, {key: None for key in owed if _unit_of(key) in units})
        self._residuals.load(state)
        self.step = state["step"]

    def scale_residuals(self, factor: float) -> None:
        """Multiply what error feedback keeps: ``factor`` is new loss scale / old one."""
        self._residuals.scale(factor)

    def _message_of(self, unit: Unit, gradients: torch.Tensor) -> Message:
        """Find the message. Its length differs if parameters had no gradient."""
        length = gradients.numel()
        name = f"{unit.name}:{length}:{gradients.dtype}"
        if not self._reduced or name in self._reduced:
            self._begin_step()
        self._reduced.add(name)
        if name not in self._messages:
            members = ((name, 0, length),)
            message = Message(unit.tolerance, gradients.dtype, members, Message.new_key())
            self._messages[name] = message
            self._residuals.watch(message)
        return self._messages[name]

    def _begin_step(self) -> None:
        """Begin a step, with the first message of all or with one that the last step has sent."""
        self._reduced.clear()
        self._wire_step = next_step()
        self._residuals.follow_scaler()
        self.step += 1


class TaggedReduceScatter(ReduceScatter):
    """The reduce-scatter of one unit, with the interface that FSDP2 expects."""

    def __init__(self, gradients: ShardedGradients, unit: Unit) -> None:
        """Reduce the gradients of ``unit``."""
        self._gradients = gradients
        self._unit = unit

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Return memory for gradients."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Reduce ``input_tensor``, which holds one ``output_tensor`` per rank of ``group``."""
        if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):  # the user set a factor: lossless
            return dist.reduce_scatter_single(
                output_tensor, input_tensor, op=op, group=group, async_op=async_op
            )
        tags = self._gradients.tags_of(self._unit, input_tensor)
        backend = backend_of(group, input_tensor.device)
        work = backend.reduce_scatter_tagged(output_tensor, input_tensor, op=op, **tags)
        if async_op:
            return work
        work.wait()
        return None


def _units_of(model: nn.Module, by_name: Mapping[str, float]) -> Iterator[Unit]:
    """Find modules that were sharded together: ``fully_shard`` takes one module or several."""
    together: dict[int, list[tuple[str, FSDPModule]]] = {}
    for name, module in model.named_modules():
        if isinstance(module, FSDPModule):
            together.setdefault(id(module._get_fsdp_state()), []).append((name, module))
    for named in together.values():
        parts = {name: part for top in named for name, part in _parts_of(*top)}
        if not parts:
            continue
        shares = [
            by_name[f"{name}.{own}".lstrip(".")]
            for name, part in parts.items()
            for own, _ in part.named_parameters(recurse=False)
        ]
        modules = [module for _, module in named]
        yield Unit(named[0][0] or _ROOT, modules, list(parts.values()), min(shares))


def _parts_of(name: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Return modules with own parameters in a sharded module, but not in nested ones."""
    if next(module.parameters(recurse=False), None) is not None:
        yield name, module
    for child_name, child in module.named_children():
        if not isinstance(child, FSDPModule):
            yield from _parts_of(f"{name}.{child_name}".lstrip("."), child)


def _unit_of(message_name: str) -> str:
    return message_name.rsplit(":", 2)[0]
