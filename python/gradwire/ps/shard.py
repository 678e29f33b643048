"""A server's share of the parameters: adds gradients up and applies them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from gradwire.ps.layout import Layout

Optimize = Callable[[Iterable[tuple[str, nn.Parameter]]], torch.optim.Optimizer]
"""Makes an optimizer of named parameters: ``partial(torch.optim.SGD, lr=0.05)``."""

Schedule = Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]
"""Makes a learning-rate schedule, which is stepped once after each update."""


@dataclass
class Contribution:
    """One worker's gradient of the shard."""

    values: torch.Tensor
    holes: Sequence[tuple[int, int]] = ()
    """Ranges of elements that did not arrive and that have no replacement."""

    never_filled: set[tuple[int, int]] | None = None
    """Ranges without a former gradient of this worker to replace them; ``None`` for all."""

    def settle(self, rule: str, holes: Sequence[tuple[int, int]]) -> None:
        """Handle missing elements by the rule for holes."""
        missing = set(holes)
        if self.never_filled is not None:
            missing &= self.never_filled
        self.never_filled = missing
        by_rule = {"rescale": holes, "previous": sorted(missing)}
        self.holes = by_rule.get(rule, ())


class Shard:
    """Parameters, their gradient, and the optimizer that PyTorch gives.

    Each parameter, or the part of it that lies here, is one flattened tensor to the optimizer. So
    optimizers that work element by element (SGD, Adam, ...) give the same result as on one machine;
    those with norms over whole parameters do not.
    """

    def __init__(
        self,
        layout: Layout,
        bounds: tuple[int, int],
        optimize: Optimize | None,
        schedule: Schedule | None,
    ) -> None:
        """Hold zeros until parameters are installed. Without an optimizer, pushes are added."""
        elements = bounds[1] - bounds[0]
        self.values = torch.zeros(elements, dtype=layout.dtype)
        self.is_installed = False
        self._gradient = torch.zeros_like(self.values)
        pieces = []
        for piece in layout.pieces(bounds):
            parameter = nn.Parameter(self.values[piece.start : piece.end])
            parameter.grad = self._gradient[piece.start : piece.end]
            pieces.append((piece.name, parameter))
        self.optimizer = optimize(pieces) if optimize is not None and pieces else None
        self.schedule = schedule(self.optimizer) if schedule and self.optimizer else None

    def install(self, values: torch.Tensor) -> None:
        """Take first parameters."""
        self.values.copy_(values)
        self.is_installed = True

    def state(self) -> torch.Tensor:
        """Return parameters, optimizer and schedule as bytes, for :meth:`restore`."""
        parts = {"values": self.values, "optimizer": None, "schedule": None}
        if self.optimizer is not None:
            parts["optimizer"] = self.optimizer.state_dict()
        if self.schedule is not None:
            parts["schedule"] = self.schedule.state_dict()
        written = io.BytesIO()
        torch.save(parts, written)
        return torch.frombuffer(written.getbuffer(), dtype=torch.uint8)

    def restore(self, state: torch.Tensor) -> None:
        """Take the state of a server that was here before."""
        parts = torch.load(io.BytesIO(state.numpy().tobytes()), weights_only=True)
        self.install(parts["values"])
        if self.optimizer is not None:
            self.optimizer.load_state_dict(parts["optimizer"])
        if self.schedule is not None:
            self.schedule.load_state_dict(parts["schedule"])

    def apply(self, contributions: Sequence[Contribution]) -> None:
        """Take one step by the mean of gradients, or add their sum if there is no optimizer.

        They are added in the order given, so the same gradients give the same bits. Elements that
        some contributions lack have the mean of the others.
        """
        torch.add(contributions[0].values, 0, out=self._gradient)
        for contribution in contributions[1:]:
            self._gradient.add_(contribution.values)
        self._divide(contributions)
        if self.optimizer is None:
            self.values.add_(self._gradient)
        else:
            self.optimizer.step()
        if self.schedule is not None:
            self.schedule.step()

    def _divide(self, contributions: Sequence[Contribution]) -> None:
        """Divide by the contributions that arrived; without an optimizer, scale up instead."""
        everyone = len(contributions)
        holes = [hole for contribution in contributions for hole in contribution.holes]
        if holes:
            came = torch.full_like(self._gradient, everyone)
            for start, end in holes:
                came[start:end] -= 1
            self._gradient.div_(came.clamp_(min=1))
        elif self.optimizer is not None:
            self._gradient.div_(everyone)
            return
        if holes and self.optimizer is None:
            self._gradient.mul_(everyone)
