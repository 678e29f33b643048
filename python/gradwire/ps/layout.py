"""Where each parameter lies in the flat vector, and which server has which part of it.

Parameters are concatenated in the order in which the module defines them. Every server has one
contiguous shard; shards differ by at most one alignment unit, so a large parameter may span several
servers.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import nn

_ALIGNED_ELEMENTS = 16
"""Shards begin at multiples of this: at most 128 bytes, a cache line or two."""


@dataclass(frozen=True)
class Piece:
    """The part of one parameter that lies in one shard."""

    name: str
    start: int
    """First element, counted in the shard."""

    end: int
    """Behind its last element."""


@dataclass(frozen=True)
class Layout:
    """Names, sizes and element type of all parameters."""

    dtype: torch.dtype
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, model: nn.Module) -> Layout:
        """Describe the parameters of a model that need gradients."""
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if not named:
            raise ValueError("gradwire.ps: the model has no parameter that needs a gradient")
        first, dtype = named[0][0], named[0][1].dtype
        for name, parameter in named:
            if parameter.dtype != dtype or not dtype.is_floating_point:
                raise TypeError(
                    f"gradwire.ps: {first} is {dtype} and {name} is {parameter.dtype}: all "
                    "parameters must have one floating-point type"
                )
            if parameter.device.type != "cpu":
                raise ValueError(
                    f"gradwire.ps: {name} is on {parameter.device}: gradwire moves tensors in CPU "
                    "memory; move the model there, or its gradients before the push"
                )
        return cls(dtype, tuple(name for name, _ in named), tuple(tuple(p.shape) for _, p in named))

    @classmethod
    def from_text(cls, lines: str) -> Layout:
        """Read the form that :meth:`text` writes."""
        dtype, *rows = lines.splitlines()
        pairs = [row.rsplit(" ", 1) for row in rows]
        shapes = (tuple(int(size) for size in shape.split("x") if size) for _, shape in pairs)
        return cls(getattr(torch, dtype), tuple(name for name, _ in pairs), tuple(shapes))

    def text(self) -> str:
        """Return one line for the type and one for each parameter."""
        rows = [
            f"{name} {'x'.join(str(size) for size in shape)}"
            for name, shape in zip(self.names, self.shapes, strict=True)
        ]
        return "\n".join([str(self.dtype).removeprefix("torch."), *rows])

    def difference(self, other: Layout) -> str:
        """Describe the first difference from ``other``; the text is empty where they are equal."""
        ours, theirs = self.text().splitlines(), other.text().splitlines()
        for number, (mine, yours) in enumerate(zip(ours, theirs, strict=False)):
            if mine != yours:
                what = f"parameter {number} is" if number else "the type is"
                return f"{what} {mine!r} here and {yours!r} there"
        if len(ours) != len(theirs):
            return f"{len(ours) - 1} parameters here and {len(theirs) - 1} there"
        return ""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Elements of each parameter."""
        return tuple(torch.Size(shape).numel() for shape in self.shapes)

    @property
    def elements(self) -> int:
        """Elements of all parameters."""
        return sum(self.sizes)

    def shards(self, servers: int) -> list[tuple[int, int]]:
        """Return the range of elements that each server has."""
        units = -(-self.elements // _ALIGNED_ELEMENTS)
        cuts = [units * server // servers * _ALIGNED_ELEMENTS for server in range(servers)]
        cuts.append(self.elements)
        return [(min(a, cuts[-1]), min(b, cuts[-1])) for a, b in itertools.pairwise(cuts)]

    def pieces(self, shard: tuple[int, int]) -> list[Piece]:
        """Return the parameters that lie in a shard, or in part."""
        begin, end = shard
        pieces, start = [], 0
        for name, size in zip(self.names, self.sizes, strict=True):
            inside = (max(start, begin), min(start + size, end))
            if inside[0] < inside[1]:
                pieces.append(Piece(name, inside[0] - begin, inside[1] - begin))
            start += size
        return pieces
