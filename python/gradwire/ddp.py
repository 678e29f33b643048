"""Tolerant all-reduce of gradients under ``DistributedDataParallel``.

The hook tells the core facts that a flat bucket does not show:

- which bytes belong to which layer, in the order of the forward pass, so that front layers travel
  first;
- the training step, for the loss budget;
- the share of a message that may be missing.

Only gradients pass through the hook. DDP itself sends parameters and buffers, never lossily.

If all gradients of a bucket have one tolerance, the bucket is one message. Otherwise it is cut
where the tolerance changes, so that each gradient has exactly its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gradwire import adasum
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
from gradwire.tuning import Tuning

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "GradientHook",
    "LayerOrder",
    "adasum_hook",
    "all_reduce_hook",
    "backend_of",
    "register",
]

Reduced = torch.futures.Future[torch.Tensor]


def register(
    model: DistributedDataParallel,
    tolerance: float | None = None,
    *,
    groups: Groups | None = None,
    priority: Sequence[str] = (),
    scaler: LossScaler | None = None,
    **how: "Unpack[Reduction]",
) -> "GradientHook":
    """Let the gradients of ``model`` travel by layer priority and within a loss tolerance.

    Args:
        model: the wrapped model, before its first backward pass. Its process group must be
            gradwire's.
        tolerance: share of a gradient message that may be missing, 0 for lossless; by default
            the job's. Every rank must give the same, here and below.
        groups: other tolerances for parts of the model: ``{"embed": 0.0, "*.norm": 0.0}`` by names
            of modules or parameters as in ``model.module.named_parameters()``, with everything
            below them; if several match, the strictest counts. Or a function of a parameter's
            name and the parameter that returns its tolerance, ``None`` for the default.
        priority: names of modules whose gradients go before all others, the most urgent first, for
            example ``["head"]``. The other layers follow in the order in which the forward pass
            runs them, since the next one needs them so.
        scaler: the ``torch.amp.GradScaler`` of a training in mixed precision. When it changes the
            scale of the loss, the values that error feedback keeps follow.
        how: ``codec`` shortens gradients between hosts: ``"onebit"``, ``"tbq"``, ``"terngrad"``,
            ``"blockfloat"``, ``"topk"`` or ``"topk:0.01"`` with the share of the values that are
            sent; ``"none"`` for none, by default the job's. ``reduce="adasum"`` combines gradients
            by Adasum, lossless and among a power of two of ranks, instead of their average. See
            ``docs/codecs.md``.

    Returns:
        The hook, whose ``step`` counts the backward passes that exchanged gradients, and whose
        ``state_dict()`` belongs into a checkpoint when the job says ``holes = "error-feedback"`` or
        there is a codec.
    """
    is_adasum = check_reduction(how).get("reduce") == adasum.ADASUM
    if is_adasum:
        adasum.check_size(model.process_group.size())
        if tolerance or groups:
            raise ValueError(
                'gradwire: reduce="adasum" is lossless: leave tolerance and groups out'
            )
    hook = GradientHook(model, tolerance, groups=groups, priority=priority, scaler=scaler, **how)
    if is_adasum:
        model.register_comm_hook(hook, adasum_hook)
        return hook
    model.register_comm_hook(hook, all_reduce_hook)
    return hook


@dataclass(frozen=True)
class _Piece:
    """A stretch of a bucket with one tolerance: one all-reduce."""

    start: int
    message: Message
    offsets: list[int]
    """Bytes from ``start`` at which each of ``layers`` begins."""
    layers: list[int]


class GradientHook:
    """The hook's state between buckets: layers, step, tolerances, and gradients that are owed."""

    def __init__(
        self,
        model: DistributedDataParallel,
        tolerance: float | None = None,
        *,
        groups: Groups | None = None,
        priority: Sequence[str] = (),
        scaler: LossScaler | None = None,
        **how: "Unpack[Reduction]",
    ) -> None:
        """Prepare the hook for ``model``; see :func:`register`."""
        if model.mixed_precision is not None:
            raise ValueError(
                "gradwire: DistributedDataParallel(mixed_precision=...) has a hook of its own; "
                "use torch.autocast, or a model in bfloat16 or float16, instead"
            )
        self._group = model.process_group
        self._backend = backend_of(self._group, next(model.module.parameters()).device)
        self.step = 0
        self._wire_step: int | None = None
        self._order = LayerOrder(model.module, priority)
        self._names = {id(p): name for name, p in model.module.named_parameters()}
        default = self._backend.job_tolerance() if tolerance is None else tolerance
        shares = tolerances(model.module, default, groups)
        agree(self._group, shares, priority, how)
        self._tolerances = _by_parameter(model, shares)
        self._sizes = {name: p.numel() for name, p in model.module.named_parameters()}
        self._cut_anew = False
        self._cuts: dict[tuple[object, ...], list[_Piece]] = {}
        self._codec = codec_of(how.get("codec"))
        self._residuals = Residuals(self._backend, scaler, self._codec)
        self._tuning = Tuning(self._group, self._backend)

    @property
    def group(self) -> dist.ProcessGroup:
        """The ranks whose gradients are combined."""
        return self._group

    def all_reduce(self, bucket: dist.GradBucket) -> Reduced:
        """Start the all-reduce of one bucket; the future holds the averaged bucket."""
        if self._wire_step is None:
            self._begin_step()
        pieces = self._pieces_of(bucket)
        flat = bucket.buffer()
        op = dist.ReduceOp.AVG
        if flat.dtype == torch.float16:  # whose sum may be out of range while its average is not
            flat.div_(self._group.size())
            op = dist.ReduceOp.SUM
        works = [self._start(flat, piece, op) for piece in pieces]
        if bucket.is_last():
            self.step += 1
            self._wire_step = None
        # A future that PyTorch collects from others does not know of devices; this one does.
        whole = works[0] if len(works) == 1 else self._backend.join(works, flat)
        return whole.get_future().then(_only_tensor)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of this rank's hook, between two steps; every rank has its own.

        Apart from ``step`` it holds the gradients that error feedback still owes: they were lost in
        the last step, and are added to the next.
        """
        return state_of(self._group, self.step, self._residuals)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state that :meth:`state_dict` returned on this rank and world size."""
        check_state(state, self._group, self._sizes)
        self._residuals.load(state)
        self.step = state["step"]

    def scale_residuals(self, factor: float) -> None:
        """Multiply the gradients that error feedback keeps: ``factor`` is new loss scale / old one.

        For a training that scales its loss without a ``scaler``: call it between the two steps, on
        every rank.
        """
        self._residuals.scale(factor)

    def _start(self, flat: torch.Tensor, piece: _Piece, op: dist.ReduceOp) -> dist.Work:
        gradients = flat[piece.start : piece.start + piece.message.elements]
        self._residuals.pay(piece.message, gradients)
        return self._backend.allreduce_tagged(
            gradients,
            layer_offsets=piece.offsets,
            layers=piece.layers,
            layer_count=self._order.count,
            tolerance=piece.message.tolerance,
            step=self._wire_step,
            tensor_key=piece.message.key,
            op=op,
            codec=self._codec.number,
            codec_share=self._codec.share,
        )

    def _begin_step(self) -> None:
        self._wire_step = next_step()
        self._residuals.follow_scaler()
        if self._tuning.begin_step():  # other chunks move this rank's own part of a tensor
            self._cut_anew = True
        if self._cut_anew:  # gradients owed to messages of the old buckets; none is in flight
            self._residuals.collect()
            self._cut_anew = False

    def _pieces_of(self, bucket: dist.GradBucket) -> list[_Piece]:
        """Cut a bucket. DDP changes its buckets once, after the first step."""
        parameters = bucket.parameters()
        identity = (self._order.settled, bucket.buffer().dtype, *map(id, parameters))
        if identity not in self._cuts:
            self._cut_anew = True
            self._cuts[identity] = self._cut(bucket, parameters)
            for piece in self._cuts[identity]:
                self._residuals.watch(piece.message)
        return self._cuts[identity]

    def _cut(self, bucket: dist.GradBucket, parameters: list[torch.Tensor]) -> list[_Piece]:
        flat = bucket.buffer()
        starts = [g.storage_offset() - flat.storage_offset() for g in bucket.gradients()]
        stretches: list[list[tuple[torch.Tensor, int]]] = []
        for parameter, start in zip(parameters, starts, strict=True):
            last = stretches[-1][0][0] if stretches else None
            if last is None or self._tolerances[id(last)] != self._tolerances[id(parameter)]:
                stretches.append([])
            stretches[-1].append((parameter, start))
        return [self._piece(stretch, flat) for stretch in stretches]

    def _piece(self, stretch: list[tuple[torch.Tensor, int]], flat: torch.Tensor) -> _Piece:
        first = stretch[0][1]
        offsets: list[int] = []
        layers: list[int] = []
        for parameter, start in stretch:
            layer = self._order.of(parameter)
            if not layers or layers[-1] != layer:
                offsets.append((start - first) * flat.element_size())
                layers.append(layer)
        members = tuple((self._names[id(p)], start - first, p.numel()) for p, start in stretch)
        share = self._tolerances[id(stretch[0][0])]
        message = Message(share, flat.dtype, members, Message.new_key())
        return _Piece(first, message, offsets, layers)


def all_reduce_hook(state: GradientHook, bucket: dist.GradBucket) -> Reduced:
    """Pass one bucket to ``state``: the signature of DDP's communication hooks."""
    return state.all_reduce(bucket)


def adasum_hook(state: GradientHook, bucket: dist.GradBucket) -> Reduced:
    """Combine one bucket by Adasum, layer by layer, before the next one begins."""
    flat = bucket.buffer()
    parts = bucket.gradients()
    starts = sorted(part.storage_offset() - flat.storage_offset() for part in parts)
    adasum.all_reduce(flat, group=state.group, starts=starts)
    if bucket.is_last():
        state.step += 1
    done: Reduced = torch.futures.Future()
    done.set_result(flat)
    return done


def _by_parameter(model: DistributedDataParallel, by_name: dict[str, float]) -> dict[int, float]:
    """Tolerances by parameter: the strictest if it has several names."""
    shares: dict[int, float] = {}
    for name, parameter in model.module.named_parameters(remove_duplicate=False):
        shares[id(parameter)] = min(by_name[name], shares.get(id(parameter), 1.0))
    return shares


def _only_tensor(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
    (tensor,) = future.value()
    return tensor
