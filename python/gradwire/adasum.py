"""Adasum: a reduction that averages parallel gradients and adds orthogonal ones.

The sum of two gradients of a layer is ``(1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b``: their sum if
they are orthogonal, their average if they are parallel (Maleki et al., MLSys 2021, arXiv
2006.02924). More than two are combined in pairs, then pairs of pairs.

:func:`exchanges` is the algorithm without a network: vector halving and distance doubling. At
distance 1, 2, 4 .. a rank swaps one half of its range with its partner, computes three dot products
per layer on the half that it keeps, and adds them up over the ranks that hold the rest of both
vectors. Then the ranges are gathered back. A rank sends ``2 (P - 1) / P`` times the tensor, and 24
bytes per layer in each of ``1 + .. + log2 P`` small messages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

ADASUM = "adasum"
"""Names the reduction: ``gradwire.all_reduce(tensor, op=gradwire.ADASUM)``."""

_TINY = math.sqrt(torch.finfo(torch.float64).tiny)
"""Squares of norms below this count as those of zero vectors."""


@dataclass(frozen=True)
class Exchange:
    """A message to a partner, and room for the one that the partner sends meanwhile."""

    partner: int
    sent: torch.Tensor
    received: torch.Tensor


def check_size(size: int, local: int = 1) -> None:
    """Raise unless ``size`` ranks, of which each ``local`` share a host, can pair up."""
    for count, of in ((size, "ranks in the group"), (local, "ranks on each host")):
        if count < 1 or count & (count - 1):
            raise ValueError(
                f"gradwire: adasum combines ranks in pairs, and {count} {of} are no power of two; "
                f"take {1 << max(count.bit_length() - 1, 0)} or {1 << count.bit_length()}, or "
                'reduce="average"'
            )
    if local > size:
        raise ValueError(f"gradwire: {local} ranks on each host of a group of {size} ranks")


def exchanges(
    values: torch.Tensor, starts: Sequence[int], seat: tuple[int, int], local: int = 1
) -> Iterator[Exchange]:
    """Reduce ``values`` in place; the caller carries each exchange before it asks for the next.

    Args:
        values: a flat tensor of floats, as long on every rank.
        starts: the first element of each layer, ascending from 0.
        seat: this rank and the number of ranks, a power of two.
        local: ranks on each host, a power of two, neighbours by number: they are averaged, and
            only hosts are combined by Adasum.
    """
    rank, size = seat
    check_size(size, local)
    whole = [0, values.numel()]
    ranges: list[tuple[int, int, int]] = []
    first, end = whole
    distance = 1
    while distance < size:
        middle = first + (end - first) // 2
        is_right = bool(rank & distance)
        kept, given = ((middle, end), (first, middle))[:: 1 if is_right else -1]
        received = torch.empty_like(values[kept[0] : kept[1]])
        partner = rank ^ distance
        yield Exchange(partner, values[given[0] : given[1]], received)
        own = values[kept[0] : kept[1]]
        if distance < local:
            own.add_(received).div_(2)
        else:
            left, right = (received, own) if is_right else (own, received)
            bounds = _layers_within(starts, kept)
            dots = _dot_products(left, right, bounds)
            yield from _summed(dots, rank, distance)
            _combine(own, (left, right), bounds, dots)
        ranges.append((first, end, distance))
        first, end = kept
        distance *= 2
    for before, after, distance in reversed(ranges):
        partner = rank ^ distance
        # The range of the partner is the other half.
        other = (before, first) if end == after and first != before else (end, after)
        yield Exchange(partner, values[first:end], values[other[0] : other[1]])
        first, end = before, after


def all_reduce(
    tensor: torch.Tensor,
    op: str = ADASUM,
    group: dist.ProcessGroup | None = None,
    *,
    starts: Sequence[int] = (0,),
    local: int = 1,
) -> None:
    """Reduce a contiguous tensor of floats in place by Adasum.

    Args:
        tensor: the gradient of this rank, and afterwards the result, equal on all ranks.
        op: :data:`ADASUM`. For sums and averages call ``torch.distributed.all_reduce``.
        group: the ranks, a power of two; by default all.
        starts: the first element of each layer; by default the tensor is one layer.
        local: ranks on each host, whose gradients are averaged first.
    """
    if op != ADASUM:
        raise ValueError(f"gradwire: op {op!r}: this function has ADASUM only")
    if not tensor.is_floating_point():
        raise ValueError(f"gradwire: adasum of {tensor.dtype}: give a tensor of floats")
    group = group or dist.group.WORLD
    flat = tensor.view(-1)
    for exchange in exchanges(flat, starts, (group.rank(), group.size()), local):
        _carry(exchange, group)


def _carry(exchange: Exchange, group: dist.ProcessGroup) -> None:
    """Swap one pair of messages."""
    peer = dist.get_global_rank(group, exchange.partner)
    sent = dist.isend(exchange.sent.contiguous(), peer, group)
    dist.recv(exchange.received, peer, group)
    sent.wait()


def _layers_within(starts: Sequence[int], kept: tuple[int, int]) -> list[tuple[int, int]]:
    """Return each layer's stretch of a range, relative to it; empty where it has no part."""
    first, end = kept
    ends = [*starts[1:], max(end, starts[-1])]
    clamp = [(max(a, first), min(b, end)) for a, b in zip(starts, ends, strict=True)]
    return [(a - first, max(a, b) - first) if a < b else (0, 0) for a, b in clamp]


def _dot_products(
    left: torch.Tensor, right: torch.Tensor, bounds: Sequence[tuple[int, int]]
) -> torch.Tensor:
    """Return a.b, a.a and b.b of each layer, in double precision."""
    dots = torch.zeros(len(bounds), 3, dtype=torch.float64, device=left.device)
    for row, (start, end) in zip(dots, bounds, strict=True):
        a, b = left[start:end].double(), right[start:end].double()
        row[0], row[1], row[2] = a @ b, a @ a, b @ b
    return dots


def _summed(dots: torch.Tensor, rank: int, distance: int) -> Iterator[Exchange]:
    """Add up the dot products over the ranks that hold parts of both vectors.

    Both partners add the same two numbers, so all ranks end with the same bits.
    """
    step = 1
    while step <= distance:
        theirs = torch.empty_like(dots)
        yield Exchange(rank ^ step, dots.clone(), theirs)
        dots.add_(theirs)
        step *= 2


def _combine(
    own: torch.Tensor,
    pair: tuple[torch.Tensor, torch.Tensor],
    bounds: Sequence[tuple[int, int]],
    dots: torch.Tensor,
) -> None:
    left, right = pair
    for (start, end), (ab, aa, bb) in zip(bounds, dots.tolist(), strict=True):
        of_left = 1.0 - ab / (2.0 * aa) if aa >= _TINY else 1.0
        of_right = 1.0 - ab / (2.0 * bb) if bb >= _TINY else 1.0
        a, b = left[start:end], right[start:end]
        own[start:end] = a * of_left + b * of_right


def tree(gradients: Sequence[torch.Tensor], starts: Sequence[int] = (0,)) -> torch.Tensor:
    """Return the Adasum of whole gradients, in pairs of pairs: the definition, for checks."""
    level = list(gradients)
    check_size(len(level))
    while len(level) > 1:
        level = [_pair(a, b, starts) for a, b in zip(level[::2], level[1::2], strict=True)]
    return level[0]


def _pair(a: torch.Tensor, b: torch.Tensor, starts: Sequence[int]) -> torch.Tensor:
    bounds = _layers_within(starts, (0, a.numel()))
    combined = a.clone()
    _combine(combined, (a, b), bounds, _dot_products(a, b, bounds))
    return combined
