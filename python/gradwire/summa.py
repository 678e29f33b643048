"""Multiplies matrices that are sharded over a grid of ranks: SUMMA in 2.5 dimensions.

::

    mesh = gradwire.summa.mesh(side=2, depth=2)  # 8 ranks
    grid = gradwire.summa.Grid(mesh)
    a, b = grid.tall_block(whole_a), grid.square_block(whole_b)
    c = grid.multiply(a, b)  # this rank's block of the product, with derivatives

``depth`` layers of ``side`` times ``side`` ranks share one product C = A B. A and C, the
activations, are cut into ``depth * side`` blocks of rows and ``side`` blocks of columns, so that
each rank has one block. B, the weights, is cut into ``side`` times ``side`` blocks, and every layer
has all of them. A depth of 1 is the plain SUMMA of two dimensions.

In step k each rank of a row receives the row's block k of A, and each rank of a column the column's
block k of B. It adds their product to its block of C, while the blocks of step k + 1 are on their
way. The derivatives take two more such rounds, with reduces in place of broadcasts, and an
all-reduce of B's derivative over the layers.

On average a rank sends ``3 (side - 1) (|A| + |B|) + 2 (depth - 1) / depth |B|`` elements in all
three rounds, where ``|A|`` and ``|B|`` are the elements of its blocks. The form is that of
arXiv 2105.14500.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.autograd.function import FunctionCtx
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

__all__ = ["Grid", "mesh"]

_LAYER, _ROW, _COLUMN = "layer", "row", "column"


def mesh(side: int, depth: int = 1, device_type: str = "cpu") -> DeviceMesh:
    """Return the mesh of all ranks: ``depth`` layers, ``side`` rows, ``side`` columns.

    Raises:
        ValueError: The world has not ``depth * side * side`` ranks.
    """
    ranks, world = depth * side * side, dist.get_world_size()
    if min(side, depth) < 1 or ranks != world:
        raise ValueError(
            f"a grid of {depth} layers of {side} x {side} has {ranks} ranks, and the world has "
            f"{world}: choose a side and a depth such that depth * side * side is {world}"
        )
    names = (_LAYER, _ROW, _COLUMN)
    return init_device_mesh(device_type, (depth, side, side), mesh_dim_names=names)


class Grid:
    """This rank's place in a grid of ranks that multiply together.

    Args:
        mesh: A mesh of three dimensions, named layer, row and column, as :func:`mesh` makes it. It
            may be a part of a larger mesh.

    Raises:
        ValueError: The mesh has other dimensions, or fewer rows than columns or the reverse.
    """

    def __init__(self, mesh: DeviceMesh) -> None:
        """Find this rank's place and its groups in ``mesh``."""
        names = mesh.mesh_dim_names or ()
        if tuple(names) != (_LAYER, _ROW, _COLUMN):
            raise ValueError(
                f"a mesh of the dimensions {names} was given, and a grid has {_LAYER}, {_ROW}, "
                f"{_COLUMN}: make it with gradwire.summa.mesh"
            )
        self.depth, self.side, columns = mesh.mesh.shape
        if self.side != columns:
            raise ValueError(f"a layer of {self.side} x {columns} ranks is no square")
        self.layer, self.row, self.column = (mesh.get_local_rank(name) for name in names)
        # The ranks of one row differ in their column.
        self._along_row = mesh.get_group(_COLUMN)
        self._along_column = mesh.get_group(_ROW)
        self._over_layers = mesh.get_group(_LAYER)

    def tall_block(self, whole: torch.Tensor) -> torch.Tensor:
        """Return this rank's block of a matrix such as A: its rows are shared among layers, too."""
        rows = self._part(whole, 0, self.layer * self.side + self.row, self.depth * self.side)
        return self._part(rows, 1, self.column, self.side).contiguous()

    def square_block(self, whole: torch.Tensor) -> torch.Tensor:
        """Return this rank's block of a matrix such as B, which every layer has."""
        rows = self._part(whole, 0, self.row, self.side)
        return self._part(rows, 1, self.column, self.side).contiguous()

    def multiply(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Return this rank's block of the product, of shape ``(a.shape[0], b.shape[1])``.

        All ranks of the grid call it in the same order, and ``backward`` too: both communicate.

        Args:
            a: This rank's block of A, of shape ``(rows, inner)``.
            b: This rank's block of B, of shape ``(inner, columns)``.

        Raises:
            ValueError: The blocks are no matrices, or do not fit each other.
        """
        if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0] or a.dtype != b.dtype:
            raise ValueError(
                f"blocks of shapes {tuple(a.shape)} ({a.dtype}) and {tuple(b.shape)} ({b.dtype}) "
                "have no product: the columns of the first are the rows of the second"
            )
        return _Product.apply(self, a, b)

    def _part(self, whole: torch.Tensor, dim: int, index: int, parts: int) -> torch.Tensor:
        if whole.dim() != 2 or whole.shape[dim] % parts:
            raise ValueError(
                f"a tensor of shape {tuple(whole.shape)} cannot be cut into {parts} equal parts "
                f"along dimension {dim}: pad it to a multiple of {parts}"
            )
        size = whole.shape[dim] // parts
        return whole.narrow(dim, index * size, size)

    def _row_panels(self, own: torch.Tensor) -> _Panels:
        return _Panels(own, self._along_row, self.column, self.side)

    def _column_panels(self, own: torch.Tensor) -> _Panels:
        return _Panels(own, self._along_column, self.row, self.side)


class _Panels:
    """The blocks of all ranks of a row or column, one after the other, the next one ahead."""

    def __init__(self, own: torch.Tensor, group: dist.ProcessGroup, place: int, side: int) -> None:
        self._own, self._group, self._place, self._side = own.contiguous(), group, place, side

    def __iter__(self) -> Iterator[torch.Tensor]:
        ahead = self._start(0)
        for turn in range(self._side):
            panel, work = ahead
            if turn + 1 < self._side:
                ahead = self._start(turn + 1)
            if work is not None:
                work.wait()
            yield panel

    def _start(self, turn: int) -> tuple[torch.Tensor, dist.Work | None]:
        panel = self._own if turn == self._place else torch.empty_like(self._own)
        if self._side == 1:
            return panel, None
        return panel, dist.broadcast(panel, group=self._group, group_src=turn, async_op=True)


class _Sums:
    """Sums of terms of all ranks of a row or column: the sum of turn k belongs to place k."""

    def __init__(self, group: dist.ProcessGroup, place: int, side: int) -> None:
        self._group, self._place, self._side = group, place, side
        self._pending: list[dist.Work] = []
        self._own: torch.Tensor | None = None

    def add(self, turn: int, term: torch.Tensor) -> None:
        if turn == self._place:
            self._own = term
        if self._side > 1:
            work = dist.reduce(term, group=self._group, group_dst=turn, async_op=True)
            self._pending.append(work)

    def own(self) -> torch.Tensor:
        for work in self._pending:
            work.wait()
        assert self._own is not None
        return self._own


class _Product(torch.autograd.Function):
    """C = A B on a grid; dA = dC B^T and dB = A^T dC."""

    @staticmethod
    def forward(ctx: FunctionCtx, grid: Grid, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        ctx.grid = grid
        ctx.save_for_backward(a, b)
        product = a.new_zeros(a.shape[0], b.shape[1])
        panels = zip(grid._row_panels(a), grid._column_panels(b), strict=True)
        for left, right in panels:
            product.addmm_(left, right)
        return product

    @staticmethod
    def backward(
        ctx: FunctionCtx, gradient: torch.Tensor
    ) -> tuple[None, torch.Tensor | None, torch.Tensor | None]:
        grid: Grid = ctx.grid
        a, b = ctx.saved_tensors
        _, wants_a, wants_b = ctx.needs_input_grad
        return (
            None,
            _a_gradient(grid, gradient, b) if wants_a else None,
            _b_gradient(grid, a, gradient) if wants_b else None,
        )


def _a_gradient(grid: Grid, gradient: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    sums = _Sums(grid._along_row, grid.column, grid.side)
    for turn, panel in enumerate(grid._column_panels(b)):
        sums.add(turn, gradient @ panel.T)
    return sums.own()


def _b_gradient(grid: Grid, a: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    sums = _Sums(grid._along_column, grid.row, grid.side)
    for turn, panel in enumerate(grid._row_panels(a)):
        sums.add(turn, panel.T @ gradient)
    own = sums.own()
    if grid.depth > 1:
        dist.all_reduce(own, group=grid._over_layers)
    return own
