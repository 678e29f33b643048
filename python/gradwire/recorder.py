"""Watch a training script: note when each layer's forward pass and each gradient was done.

PyTorch's global module hooks, and one hook on each parameter of a model, report these times; the
script is not changed. A step is a backward pass with the forward passes before it. ``recording``
makes a table of the times, and ``record`` runs the script.

A global hook costs each call of any module some microseconds. So after a step that has called no
new module, only layers keep a hook; modules that are called later are not seen.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn.modules import module as every
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.utils.hooks import RemovableHandle

_WRAPPERS = (DataParallel, DistributedDataParallel)


class Enough(BaseException):
    """All steps are recorded; no ``except Exception`` of a script may keep it from ending."""


@dataclass(frozen=True)
class Step:
    """Times of one step in nanoseconds since the start of its first forward pass."""

    left: list[tuple[int, int]]
    """Each forward pass of a module that ended: the module's id, and when."""

    backward: int
    """When the backward pass began."""

    gradients: dict[int, int]
    """When the gradient of each parameter was ready, by its id."""

    began: int = 0
    """When the first forward pass began, in nanoseconds of the host's clock."""


class _Clock(Protocol):
    """Sets marks, and measures the times between them."""

    def mark(self) -> Any:  # noqa: ANN401
        """Take a mark now."""

    def nanos(self, marks: list[Any]) -> list[int]:
        """Return the time of each mark, from the first one."""


class HostClock:
    """The clock of the process: a CPU has finished its work when the call returns."""

    mark = staticmethod(time.perf_counter_ns)
    """Take a mark now. Every hook does, so it is the clock itself: a function around it would cost
    as much again."""

    def nanos(self, marks: list[int]) -> list[int]:
        """Return the time of each mark, from the first one."""
        return [mark - marks[0] for mark in marks]


class _CudaClock:
    """Events in the stream of a GPU, which computes after the call returns."""

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def nanos(self, marks: list[torch.cuda.Event]) -> list[int]:
        torch.cuda.synchronize()
        return [round(marks[0].elapsed_time(mark) * 1e6) for mark in marks]


@dataclass
class _Open:
    """The current step."""

    marks: list[tuple[str, int, Any]] = field(default_factory=list)
    """What happened, to the module or parameter with which id, and the clock's mark."""
    began: int = 0

    def has(self, what: str) -> bool:
        """Return whether it happened at all."""
        return any(happened == what for happened, _, _ in self.marks)

    def closed(self, clock: _Clock) -> Step:
        """Return the times of it."""
        nanos = clock.nanos([mark for _, _, mark in self.marks])
        at = [(what, of, at) for (what, of, _), at in zip(self.marks, nanos, strict=True)]
        return Step(
            left=[(of, nanos) for what, of, nanos in at if what == "left"],
            backward=next(nanos for what, _, nanos in at if what == "backward"),
            gradients={of: nanos for what, of, nanos in at if what == "gradient"},
            began=self.began,
        )


def called_above(model: nn.Module, name: str, called: Container[int]) -> str:
    """Return the name of the nearest module above a parameter that was called; "" is the model."""
    while "." in name:
        name = name.rpartition(".")[0]
        if id(model.get_submodule(name)) in called:
            return name
    return ""


class Recorder:
    """Records ``wanted`` steps, then ends the script by :class:`Enough`."""

    def __init__(self, wanted: int) -> None:
        """Record nothing yet; :meth:`watching` begins."""
        self.wanted = wanted
        self.steps: list[Step] = []
        self.models: list[nn.Module] = []
        """Modules that were called from outside of any other, in the order of their first call."""
        self.called: dict[int, nn.Module] = {}
        """Every module whose forward pass was called, in the order of their first calls."""
        self.on_gpu = False
        self._open = _Open()
        self._clock: _Clock = HostClock()
        self._depth = 0
        self._outermost: list[nn.Module] = []
        """What was called for each of the models: itself, or its wrapper."""
        self._known = 0
        """How many modules had been called when the last step ended."""
        self._is_settled = False
        self._hooks: list[RemovableHandle] = []
        self._is_backward = False
        self._backward = torch.autograd.backward

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch every module and every backward pass of this process meanwhile."""
        self._hooks = [
            every.register_module_forward_pre_hook(self._enter),
            every.register_module_forward_hook(self._leave, always_call=True),
        ]
        torch.autograd.backward = self._watched_backward
        try:
            yield
        finally:
            torch.autograd.backward = self._backward
            self._unhook()

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _settle(self) -> None:
        """After a step that has called no new module, watch only the layers."""
        before, self._known = self._known, len(self.called)
        if self._is_settled or self._known > before:
            return
        self._is_settled = True
        self._unhook()
        layers = {
            id(layer): layer
            for model in self.models
            for name, _ in model.named_parameters(remove_duplicate=False)
            for layer in [model.get_submodule(called_above(model, name, self.called))]
        }
        self._hooks = [
            *(module.register_forward_pre_hook(self._enter_model) for module in self._outermost),
            *(module.register_forward_hook(self._leave_layer) for module in layers.values()),
        ]

    def _enter_model(self, module: nn.Module, _inputs: object) -> None:
        if self._is_watching():
            self._begin(module)

    def _leave_layer(self, module: nn.Module, _inputs: object, _output: object) -> None:
        if self._is_watching():
            self._open.marks.append(("left", id(module), self._clock.mark()))

    def _is_watching(self) -> bool:
        """Forward passes of a validation, and those that a checkpoint runs again, do not count."""
        return torch.is_grad_enabled() and not self._is_backward

    def _enter(self, module: nn.Module, _inputs: object) -> None:
        if not self._is_watching():
            return
        if self._depth == 0:
            self._begin(module)
        self._depth += 1
        self.called.setdefault(id(module), module)

    def _leave(self, module: nn.Module, _inputs: object, _output: object) -> None:
        if self._is_watching() and self._depth > 0:
            self._depth -= 1
            self._open.marks.append(("left", id(module), self._clock.mark()))

    def _begin(self, module: nn.Module) -> None:
        if id(module) not in self.called:
            self._meet(module)
        if not self._open.marks:
            self._open.began = time.time_ns()
            self._open.marks.append(("begun", id(module), self._clock.mark()))

    def _meet(self, module: nn.Module) -> None:
        """See a model for the first time."""
        self._outermost.append(module)
        self.models.append(module.module if isinstance(module, _WRAPPERS) else module)
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._gradient)
            if parameter.is_cuda and not self.on_gpu:
                self.on_gpu, self._clock, self._open = True, _CudaClock(), _Open()

    def _gradient(self, parameter: torch.Tensor) -> None:
        self._open.marks.append(("gradient", id(parameter), self._clock.mark()))

    def _watched_backward(self, *inputs: Any, **options: Any) -> None:  # noqa: ANN401
        if self._is_backward:
            self._backward(*inputs, **options)
            return
        self._open.marks.append(("backward", 0, self._clock.mark()))
        self._is_backward = True
        try:
            self._backward(*inputs, **options)
        finally:
            self._is_backward = False
        self._end()

    def _end(self) -> None:
        step, self._open, self._depth = self._open, _Open(), 0
        if step.has("begun") and step.has("gradient") and len(self.steps) < self.wanted:
            self.steps.append(step.closed(self._clock))
        if len(self.steps) >= self.wanted:
            raise Enough
        self._settle()
