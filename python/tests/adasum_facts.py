"""Facts about Adasum: its algebra, and its exchanges among ranks of one process."""

import pytest
import torch

from gradwire import adasum

STARTS = (0, 100, 101, 640)


def _reduced(gradients: list[torch.Tensor], local: int = 1) -> tuple[list[torch.Tensor], list[int]]:
    """Run all ranks in turn; return their results and the bytes that each sent."""
    size = len(gradients)
    values = [gradient.clone() for gradient in gradients]
    sent = [0] * size
    ranks = [adasum.exchanges(v, STARTS, (rank, size), local) for rank, v in enumerate(values)]
    while True:
        steps = [next(rank, None) for rank in ranks]
        if steps[0] is None:
            assert all(step is None for step in steps)
            return values, sent
        mail = [step.sent.clone() for step in steps]
        for rank, step in enumerate(steps):
            assert steps[step.partner].partner == rank
            step.received.copy_(mail[step.partner])
            sent[rank] += step.sent.numel() * step.sent.element_size()


def _gradients_of(size: int, elements: int = 1003) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(size)
    return [torch.randn(elements, generator=generator, dtype=torch.float64) for _ in range(size)]


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def halving_equals_the_tree_of_pairs(size: int) -> None:
    gradients = _gradients_of(size)
    results, _ = _reduced(gradients)
    wanted = adasum.tree(gradients, STARTS)
    for result in results:
        assert torch.equal(result, results[0])
        assert (result - wanted).abs().max() <= 1e-14 * max(1.0, wanted.abs().max().item())


def orthogonal_gradients_are_summed() -> None:
    gradients = [torch.zeros(1003, dtype=torch.float64) for _ in range(4)]
    for rank, gradient in enumerate(gradients):
        gradient[rank::4] = 1.0 + rank
    results, _ = _reduced(gradients)
    assert torch.equal(results[0], torch.stack(gradients).sum(0))


def equal_gradients_are_averaged() -> None:
    gradient = _gradients_of(1)[0]
    results, _ = _reduced([gradient] * 8)
    assert (results[0] - gradient).abs().max() <= 1e-14


def zero_gradients_leave_the_others() -> None:
    gradient = _gradients_of(1)[0]
    results, _ = _reduced([gradient, torch.zeros_like(gradient)])
    assert torch.equal(results[0], gradient)
    results, _ = _reduced([torch.zeros_like(gradient)] * 2)
    assert torch.equal(results[0], torch.zeros_like(gradient))


def ranks_of_a_host_are_averaged_first() -> None:
    gradients = _gradients_of(8)
    results, _ = _reduced(gradients, local=2)
    hosts = [(a + b) / 2 for a, b in zip(gradients[::2], gradients[1::2], strict=True)]
    wanted = adasum.tree(hosts, STARTS)
    assert (results[3] - wanted).abs().max() <= 1e-14 * wanted.abs().max().item() * 4


def bytes_are_those_of_halving_and_24_per_layer() -> None:
    for size, small in [(2, 1), (4, 3), (8, 6), (16, 10)]:
        elements = 1600
        _, sent = _reduced(_gradients_of(size, elements))
        halves = 2 * elements * (size - 1) // size * 8
        assert sent == [halves + small * 24 * len(STARTS)] * size


def groups_that_are_no_power_of_two_are_refused() -> None:
    with pytest.raises(ValueError, match="6 ranks in the group are no power of two; take 4 or 8"):
        adasum.check_size(6)
    with pytest.raises(ValueError, match="3 ranks on each host"):
        adasum.check_size(8, local=3)
