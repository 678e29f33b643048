"""The ways in which scripts use DistributedDataParallel, each as a short training.

Each returns the losses of all steps. With ``hooked`` gradients go through gradwire's hook.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 20
WIDTH = 64


class Branching(nn.Module):
    """Uses one of two branches by turns, and its first layer twice."""

    def __init__(self) -> None:
        """Four layers and one that shares the weights of the first."""
        super().__init__()
        self.first = nn.Linear(WIDTH, WIDTH)
        self.branches = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(2)])
        self.again = nn.Linear(WIDTH, WIDTH)
        self.again.weight = self.first.weight
        self.last = nn.Linear(WIDTH, 1)

    def forward(self, inputs: torch.Tensor, branch: int) -> torch.Tensor:
        """Run first, a branch, again, last."""
        inside = self.branches[branch](self.first(inputs).relu()).relu()
        return self.last(self.again(inside).relu())


def plain(hooked: bool) -> list[float]:
    """Nothing special."""
    return _trained(_network(), hooked)


def static_graph(hooked: bool) -> list[float]:
    """With static_graph."""
    return _trained(_network(), hooked, static_graph=True)


def find_unused_parameters(hooked: bool) -> list[float]:
    """With parameters that take no part in a step, and shared ones."""
    torch.manual_seed(3)
    model = _wrapped(Branching(), hooked, find_unused_parameters=True)
    return _steps(model, lambda inputs, step: model(inputs, step % 2))


def buckets_as_views(hooked: bool) -> list[float]:
    """With gradients that lie in the buckets, which are many."""
    return _trained(_network(), hooked, gradient_as_bucket_view=True, bucket_cap_mb=0.01)


def accumulation(hooked: bool) -> list[float]:
    """Two backward passes to a step, the first without an exchange."""
    model = _wrapped(_network(), hooked)

    def forward(inputs: torch.Tensor, _step: int) -> torch.Tensor:
        with model.no_sync():
            model(inputs[:8]).square().mean().backward()
        return model(inputs[8:])

    return _steps(model, forward)


def autocast(hooked: bool) -> list[float]:
    """With bfloat16 inside, and float32 gradients."""
    model = _wrapped(_network(), hooked)

    def forward(inputs: torch.Tensor, _step: int) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return model(inputs).float()

    return _steps(model, forward)


def bfloat16(hooked: bool) -> list[float]:
    """With gradients in bfloat16."""
    return _trained(_network().bfloat16(), hooked)


def float16(hooked: bool) -> list[float]:
    """With gradients in float16."""
    return _trained(_network().half(), hooked)


def large_float16(hooked: bool) -> list[float]:
    """With gradients in float16 whose sum is out of range, and whose mean is not."""
    model = _wrapped(nn.Linear(1, 1, bias=False).half(), hooked)
    model(torch.full((1, 1), 40_000.0, dtype=torch.float16)).sum().backward()
    return model.module.weight.grad.flatten().tolist()


def mixed_types(hooked: bool) -> list[float]:
    """With gradients of two types, so that each has buckets of its own."""
    network = _network()
    network[0].bfloat16()
    model = _wrapped(nn.Sequential(network[0], _Float(), *network[1:]), hooked)
    return _steps(model, lambda inputs, _step: model(inputs.bfloat16()))


def two_models(hooked: bool) -> list[float]:
    """Two models that take turns, one more often than the other."""
    first, second = (_wrapped(_network(seed), hooked) for seed in (1, 2))

    def forward(inputs: torch.Tensor, step: int) -> torch.Tensor:
        return first(inputs) if step % 3 else second(inputs)

    model = nn.ModuleList([first, second])
    return _steps(model, forward)


def tolerances(hooked: bool) -> list[float]:
    """With tolerances that cut buckets; on a path that loses nothing, nothing is lost."""
    groups = {"*.bias": 0.0, "2": 0.2}
    options = {"tolerance": 0.1, "groups": groups, "priority": ["4"]} if hooked else {}
    model = _wrapped(_network(), hooked, options, bucket_cap_mb=0.02)
    return _steps(model, lambda inputs, _step: model(inputs))


VARIANTS = [
    plain,
    static_graph,
    find_unused_parameters,
    buckets_as_views,
    accumulation,
    autocast,
    bfloat16,
    float16,
    large_float16,
    mixed_types,
    two_models,
    tolerances,
]


class _Float(nn.Module):
    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs.float()


def _network(seed: int = 1) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = [nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 1))


def _wrapped(
    network: nn.Module, hooked: bool, options: dict[str, Any] | None = None, **ddp: Any
) -> DistributedDataParallel:
    model = DistributedDataParallel(network, **ddp)
    if hooked:
        import gradwire.ddp

        gradwire.ddp.register(model, **(options or {}))
    return model


def _trained(network: nn.Module, hooked: bool, **ddp: Any) -> list[float]:
    model = _wrapped(network, hooked, **ddp)
    dtype = next(network.parameters()).dtype
    return _steps(model, lambda inputs, _step: model(inputs.to(dtype)).float())


def _steps(model: nn.Module, forward: Callable[[torch.Tensor, int], torch.Tensor]) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    draws = torch.Generator().manual_seed(100 + dist.get_rank())
    losses = []
    for step in range(STEPS):
        inputs = torch.randn(16, WIDTH, generator=draws)
        optimizer.zero_grad()
        loss = (forward(inputs, step) - 1.0).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
