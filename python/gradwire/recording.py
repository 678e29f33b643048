"""Makes a table for ``gradwire model show`` and ``sim`` from a recorded script.

A layer is a called module with parameters: its own, or those of modules below it that were never
called. Its forward time starts at the end of the previous layer, so modules without parameters
count for the next layer; those at the end count for the last one. A shared parameter belongs to the
first of its modules.

The simulator takes gradients in the reverse order of the rows. If a backward pass made them in
another order, a gradient counts as ready when those of all later rows are ready.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from gradwire.recorder import Recorder, Step, called_above

WARM_UP = 2
"""Steps at the beginning whose times do not count: memory is allocated, kernels are chosen."""


@dataclass
class _Layer:
    name: str
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A tensor and its times in nanoseconds; the first row of a layer has its forward time."""

    layer: str
    parameters: int
    forward: int
    backward: int
    tensor: str

    def line(self) -> str:
        """Return it as the table has it."""
        return f"{self.layer},{self.parameters},{self.forward},{self.backward},{self.tensor}"


@dataclass(frozen=True)
class Recording:
    """The table of a script."""

    rows: list[Row]
    iteration: int
    """Median nanoseconds from the beginning of the forward pass to the last gradient."""
    remarks: list[str]

    def text(self) -> str:
        """Return the table as it is written to a file."""
        comments = [f"# {remark}\n" for remark in self.remarks]
        rows = [f"{row.line()}\n" for row in self.rows]
        return "".join([*comments, "layer,parameters,forward_ns,backward_ns,tensor\n", *rows])


def recording(recorder: Recorder) -> Recording:
    """Make the table: medians of all steps but the first ones."""
    steps = recorder.steps[WARM_UP:]
    layers = _layers(recorder)
    ready = _ready(steps)
    forward = _forward(steps, layers)
    rows = []
    for module, layer in layers.items():
        made = [(name, of) for name, of in layer.tensors.items() if id(of) in ready]
        made.sort(key=lambda tensor: -ready[id(tensor[1])])
        spans = [(name, of.numel(), ready[id(of)]) for name, of in made] or [("none", 0, 0)]
        for at, (name, parameters, there) in enumerate(spans):
            rows.append(Row(layer.name, parameters, forward[module] * (at == 0), there, name))
    last = statistics.median(max(step.gradients.values()) for step in steps)
    remarks = _remarks(recorder, layers, set(ready))
    counted = f"median of steps {WARM_UP + 1} to {WARM_UP + len(steps)}"
    remarks.append(f"iteration {last / 1e6:.3f} ms, {counted}, as all times below")
    return Recording(_apart(rows), round(last), remarks)


def _apart(rows: list[Row]) -> list[Row]:
    """Turn the times at which gradients are ready into the times between them, last row first."""
    before, apart = 0, []
    for row in reversed(rows):
        there = max(before, row.backward)
        apart.append(Row(row.layer, row.parameters, row.forward, there - before, row.tensor))
        before = there
    return apart[::-1]


def _ready(steps: list[Step]) -> dict[int, int]:
    """Return when each gradient is ready, since the start of the backward pass."""
    times: dict[int, list[int]] = {}
    for step in steps:
        for parameter, there in step.gradients.items():
            times.setdefault(parameter, []).append(there - step.backward)
    return {parameter: round(statistics.median(all_of)) for parameter, all_of in times.items()}


def _forward(steps: list[Step], layers: dict[int, _Layer]) -> dict[int, int]:
    """Return how long the forward pass of each layer takes, by its module's id."""
    times: dict[int, list[int]] = {module: [] for module in layers}
    for step in steps:
        spent: dict[int, int] = {}
        before, last = 0, None
        for module, left in step.left:
            if module in layers:
                spent[module] = spent.get(module, 0) + left - before
                before, last = left, module
        if last is not None:
            spent[last] += step.backward - before
        for module, nanos in spent.items():
            times[module].append(nanos)
    return {module: round(statistics.median(of or [0])) for module, of in times.items()}


def _layers(recorder: Recorder) -> dict[int, _Layer]:
    """Give every parameter its layer; layers by their modules' ids, in the order of the calls."""
    names = dict(_names(recorder.models))
    layers = {module: _Layer(names.get(module, "layer")) for module in recorder.called}
    taken: set[int] = set()
    for module, layer in layers.items():
        own = recorder.called[module].named_parameters(recurse=False)
        _take(layer, [(name, of) for name, of in own if id(of) not in taken], taken)
    for model in recorder.models:
        for name, of in model.named_parameters():
            if id(of) not in taken:
                above = called_above(model, name, layers)
                prefix = len(above) + 1 if above else 0
                module = id(model.get_submodule(above))
                layer = layers.setdefault(module, _Layer(names[module]))
                _take(layer, [(name[prefix:], of)], taken)
    return {module: layer for module, layer in layers.items() if layer.tensors}


def _take(layer: _Layer, tensors: list[tuple[str, torch.Tensor]], taken: set[int]) -> None:
    layer.tensors.update((_plain(name), of) for name, of in tensors)
    taken.update(id(of) for _, of in tensors)


def _names(models: list[nn.Module]) -> Iterator[tuple[int, str]]:
    """Name every module as its model does, each name once."""
    taken: dict[str, int] = {}
    for model in models:
        for within, module in model.named_modules():
            name = _plain(within or type(model).__name__)
            number = taken.get(name, 0)
            taken[name] = number + 1
            yield id(module), f"{name}.{number}" if number else name


def _plain(name: str) -> str:
    """Replace characters that a table of comma-separated values cannot hold."""
    return re.sub(r'[",\s\x00-\x1f]', "_", name)


def _remarks(recorder: Recorder, layers: dict[int, _Layer], made: set[int]) -> list[str]:
    """Describe the measurements and omissions."""
    where = "on a GPU, by events in its stream" if recorder.on_gpu else "on a CPU"
    remarks = [f"recorded {where}, torch {torch.__version__}"]
    tensors = [of for layer in layers.values() for of in layer.tensors.values()]
    without = [of for of in tensors if id(of) not in made]
    if without:
        elements = sum(of.numel() for of in without)
        remarks.append(f"left out: {len(without)} tensors ({elements} elements) without gradients")
    return remarks
