"""What the hooks know about a model: order, tolerances, state. No packets."""

from typing import Any

import pytest
import torch
from torch import nn

from gradwire import ddp, gradients
from programs.training import Reversed


def layers_are_numbered_in_the_order_in_which_they_run() -> None:
    model = Reversed()
    order = ddp.LayerOrder(model)
    assert [order.of(p) for p in model.parameters()] == [0, 0, 1, 1, 2, 2]
    model(torch.zeros(1, 256))
    assert order.of(model.first.weight) == order.of(model.first.bias) == 0
    assert order.of(model.last.weight) == 2
    assert order.count == 3


def layers_that_do_not_run_come_last() -> None:
    model = Reversed()
    model.forward = lambda inputs: model.middle(inputs)
    order = ddp.LayerOrder(model)
    model(torch.zeros(1, 256))
    assert [order.of(m.weight) for m in (model.middle, model.last, model.first)] == [0, 1, 2]


class Attending(nn.Module):
    """Attention, whose projection is used by the module around it, and a shared embedding."""

    def __init__(self) -> None:
        """A head that shares its weights with the embedding, defined in the wrong order."""
        super().__init__()
        self.head = nn.Linear(8, 10, bias=False)
        self.norm = nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.embed = nn.Embedding(10, 8)
        self.head.weight = self.embed.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Run embedding, attention, norm, head."""
        inside = self.embed(tokens)
        return self.head(self.norm(self.attention(inside, inside, inside)[0]))


def _ran(priority: tuple[str, ...] = ()) -> tuple[Attending, ddp.LayerOrder]:
    model = Attending()
    order = ddp.LayerOrder(model, priority)
    model(torch.zeros(1, 3, dtype=torch.long))
    return model, order


def a_layer_that_the_module_around_it_runs_goes_with_that_one() -> None:
    model, order = _ran()
    layers = (model.attention.in_proj_weight, model.attention.out_proj.weight, model.norm.weight)
    assert [order.of(parameter) for parameter in layers] == [1, 2, 3]


def a_shared_parameter_is_as_urgent_as_its_first_use() -> None:
    model, order = _ran()
    assert order.of(model.head.weight) == order.of(model.embed.weight) == 0


def what_has_priority_comes_first_in_its_order() -> None:
    model, order = _ran(("norm", "atten*"))
    layers = (model.norm.weight, model.attention.in_proj_weight, model.attention.out_proj.weight)
    assert [order.of(parameter) for parameter in layers] == [0, 1, 2]
    assert order.of(model.embed.weight) == 3


def each_parameter_has_the_strictest_tolerance_that_names_it() -> None:
    groups = {"attention": 0.2, "*.bias": 0.0, "attention.out_proj.bias": 0.1}
    shares = gradients.tolerances(Attending(), 0.05, groups)
    assert shares["embed.weight"] == shares["norm.weight"] == 0.05
    assert shares["attention.in_proj_weight"] == shares["attention.out_proj.weight"] == 0.2
    assert shares["attention.out_proj.bias"] == shares["norm.bias"] == 0.0


def a_function_may_choose_tolerances() -> None:
    shares = gradients.tolerances(
        Attending(), 0.05, lambda _name, parameter: 0.0 if parameter.ndim == 1 else None
    )
    assert (shares["norm.weight"], shares["embed.weight"]) == (0.0, 0.05)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: gradients.tolerances(m, 0.05, {"embedding": 0.0}), "groups has ['embedding']"),
        (lambda m: ddp.LayerOrder(m, ["tail"]), "priority has ['tail'], which the model lacks"),
        (lambda m: gradients.tolerances(m, 1.0, None), "at least 0 (lossless) and below 1"),
        (lambda m: gradients.tolerances(m, 0.0, {"norm": -0.5}), "tolerance -0.5 of norm.weight"),
    ],
)
def what_the_model_has_not_is_named(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match="gradwire") as raised:
        call(Attending())
    assert words in str(raised.value)


class _Pair:
    """The part of a process group that states look at."""

    def rank(self) -> int:
        return 1

    def size(self) -> int:
        return 2


STATE = {"version": 1, "rank": 1, "world_size": 2, "step": 7, "residuals": {"w": torch.ones(4)}}


def a_state_of_this_rank_and_model_is_accepted() -> None:
    assert gradients.check_state(STATE, _Pair(), {"w": 4}) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rank": 0}, "the state of rank 0 of 2, and this is rank 1 of 2"),
        ({"world_size": 4}, "the state of rank 1 of 4"),
        ({"version": 9}, "a state of version 9"),
        ({"residuals": {"w": torch.ones(5)}}, "owes 5 elements to 'w', and this model has 4"),
        ({"residuals": {"v": torch.ones(4)}}, "owes 4 elements to 'v', and this model has no"),
    ],
)
def a_foreign_state_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match="gradwire") as raised:
        gradients.check_state({**STATE, **change}, _Pair(), {"w": 4})
    assert words in str(raised.value)


def a_state_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="'world_size'"):
        gradients.check_state({"step": 1, "version": 1}, _Pair(), {})
