"""How the binding without a compiler treats tensors on devices: by copies in CPU memory.

The caller waits for the copies to the host; with the compiled binding they run beside the network
(``csrc/staging.hpp``). Not here: the operations (``fallback.py``).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import torch


@dataclass
class Call:
    """An operation before its submission: arguments for the core, and the place of its result."""

    kind: str
    outputs: list[torch.Tensor]
    buffer: torch.Tensor | None = None
    input: torch.Tensor | None = None
    root: int = 0
    reduce: int = 0
    tag: int = 0
    splits: tuple[list[int], list[int]] | None = None
    timeout: timedelta | None = None
    land: Callable[[], None] | None = None
    fields: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Staging:
    """How a group treats tensors of devices; here ``wait()`` always waits on the host."""

    stream_wait: bool
    of_host: bool


def is_on_device(call: Call) -> bool:
    """Whether a call's tensors are on a device: all of them must be on the same one."""
    devices = {tensor.device for tensor in (call.buffer, call.input) if tensor is not None}
    if len(devices) > 1:
        names = " and ".join(sorted(map(str, devices)))
        raise ValueError(
            f"gradwire: {call.kind} of tensors on {names}: all tensors of one call must be on one "
            "device"
        )
    if torch.device("meta") in devices:
        raise ValueError(
            f"gradwire: {call.kind} of a meta tensor: it has no memory; give a real one"
        )
    return bool(devices) and devices != {torch.device("cpu")}


def stage(call: Call) -> None:
    """Let a call use copies in CPU memory; the caller waits for them, and the result is in place.

    The copies back run on a thread of the core, whose current stream is not the caller's.
    """
    if call.buffer is None:
        return
    on_device, host, land = call.buffer, call.buffer.to("cpu", copy=True), call.land
    call.buffer = host
    if call.input is not None:
        call.input = call.input.to("cpu", copy=True)

    def back() -> None:
        if call.kind != "send":
            on_device.copy_(host)
        if land is not None:
            land()
        if on_device.device.type != "cpu":
            torch.accelerator.current_stream(on_device.device).synchronize()

    call.land = back
