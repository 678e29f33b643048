"""Facts about products of matrices that are sharded over a grid of ranks."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal import common_distributed

import launching
from gradwire import summa
from launching import Launch

WIRE_OVERHEAD = 1.05
"""Bytes of packets over those of the tensors in them."""


def _on_threads(rank: Callable[[object], None], count: int) -> None:
    """Run ``rank`` on this many threads of this process, each a rank of a threaded group."""
    with torch.autograd.set_multithreading_enabled(False):
        common_distributed.spawn_threads_and_init_comms(rank, world_size=count)(None)


def _reduce(tensor: torch.Tensor, group: dist.ProcessGroup, **_: object) -> dist.Work | None:
    """Reduce to every rank: the threaded group has no reduce to one."""
    return dist.all_reduce(tensor, group=group, async_op=True)


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("side", [1, 2, 4])
def a_grid_multiplies_as_one_rank_does(
    monkeypatch: pytest.MonkeyPatch, side: int, depth: int
) -> None:
    monkeypatch.setattr(dist, "reduce", _reduce)
    draw = torch.Generator().manual_seed(side * 10 + depth)
    rows, inner, columns = (count * side * depth for count in (3, 5, 2))
    a, b, gradient = (
        torch.randint(-9, 10, shape, generator=draw).double()
        for shape in ((rows, inner), (inner, columns), (rows, columns))
    )
    wrong: list[str] = []

    def rank(_: object) -> None:
        grid = summa.Grid(summa.mesh(side, depth))
        own_a = grid.tall_block(a).requires_grad_()
        own_b = grid.square_block(b).requires_grad_()
        product = grid.multiply(own_a, own_b)
        product.backward(grid.tall_block(gradient))
        whole = {
            "product": (product, grid.tall_block(a @ b)),
            "derivative of A": (own_a.grad, grid.tall_block(gradient @ b.T)),
            "derivative of B": (own_b.grad, grid.square_block(a.T @ gradient)),
        }
        place = (grid.layer, grid.row, grid.column)
        wrong.extend(f"{name} at {place}" for name, pair in whole.items() if not torch.equal(*pair))

    _on_threads(rank, side * side * depth)
    assert not wrong


def eight_ranks_send_what_the_formula_says() -> None:
    side, depth, port = 2, 2, launching.free_port()
    job = f'[transport]\nwire = "udp"\n[metrics]\nport = {port}\n'
    arguments = (str(side), str(depth), str(port))
    ranks = Launch("multiplying.py", side * side * depth, arguments, job).run()
    reports = [rank.succeeded() for rank in ranks]
    assert all(all(report["equal"]) for report in reports)
    a, b = reports[0]["blocks"]
    formula = 3 * (side - 1) * (a + b) + 2 * (depth - 1) / depth * b
    mean = sum(report["sent"] for report in reports) / len(reports)
    assert formula < mean < formula * WIRE_OVERHEAD, (mean, formula)


def blocks_that_do_not_fit_are_named() -> None:
    def rank(_: object) -> None:
        grid = summa.Grid(summa.mesh(1))
        with pytest.raises(ValueError, match=r"\(2, 3\).*\(2, 3\)"):
            grid.multiply(torch.zeros(2, 3), torch.zeros(2, 3))
        with pytest.raises(ValueError, match="4 ranks, and the world has 1"):
            summa.mesh(2)

    _on_threads(rank, 1)


def a_matrix_that_cannot_be_cut_is_refused() -> None:
    def rank(_: object) -> None:
        grid = summa.Grid(summa.mesh(2))
        with pytest.raises(ValueError, match=r"\(3, 4\) cannot be cut into 2 equal parts"):
            grid.square_block(torch.zeros(3, 4))

    _on_threads(rank, 4)
