"""The late device as PyTorch sees it: ``torch.device("late", 0)``, compiled for the tests.

Import this before ``init_process_group``. Every copy on it starts late, by a random time from the
seed of ``GRADWIRE_SEED``.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import torch
from torch.utils import cpp_extension

from gradwire import build
from gradwire.environment import Environment

HERE = Path(__file__).resolve().parent
LONGEST_US = 300
SEED = int(os.environ.get("GRADWIRE_SEED", "1"))


def _compiled() -> ModuleType:
    """Compile once for these sources and this PyTorch; many ranks may ask at once."""
    sources = [HERE / name for name in ("late.cpp", "memory.hpp", "streams.hpp")]
    content = hashlib.sha256(torch.__version__.encode() + sys.version.encode())
    for source in sources:
        content.update(source.read_bytes())
    folder = Environment.read().caches[0] / f"late-device-{content.hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock-of-tests").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            with build._ninja_on_path():
                cpp_extension.load(
                    name="late_device",
                    sources=[str(sources[0])],
                    extra_cflags=["-O1"],
                    build_directory=str(folder),
                    with_cuda=False,
                    is_python_module=False,
                )
            (folder / "complete").touch()
    spec = importlib.util.spec_from_file_location("late_device", folder / "late_device.so")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class _Module(ModuleType):
    """``torch.late``, with what PyTorch calls of a device's module."""

    Event = torch.Event
    current_device = staticmethod(torch.accelerator.current_device_index)
    current_stream = staticmethod(torch.accelerator.current_stream)
    set_device = staticmethod(torch.accelerator.set_device_index)
    synchronize = staticmethod(torch.accelerator.synchronize)

    @staticmethod
    def device_count() -> int:
        """Return ``kDevices`` of streams.hpp."""
        return 2

    @staticmethod
    def is_available() -> bool:
        """Say yes."""
        return True

    @staticmethod
    def is_initialized() -> bool:
        """Say yes."""
        return True

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def manual_seed_all(_seed: int) -> None:
        """Ignore it: random numbers are drawn on the CPU."""

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        """Return the types for autocast."""
        return [torch.float16, torch.bfloat16]

    @staticmethod
    def Stream(priority: int = 0, device: object = None) -> torch.Stream:  # noqa: N802
        """Return a new stream."""
        index = torch.accelerator.current_device_index()
        return torch.Stream(device=device or f"late:{index}", priority=priority)

    @staticmethod
    @contextlib.contextmanager
    def stream(chosen: torch.Stream | None) -> Iterator[None]:
        """Make a stream current."""
        if chosen is None:
            yield
            return
        before = torch.accelerator.current_stream(chosen.device)
        torch.accelerator.set_stream(chosen)
        try:
            yield
        finally:
            torch.accelerator.set_stream(before)


control = _compiled()
live_events = control.live_events
strange_destructions = control.strange_destructions
control.set_delay(LONGEST_US, SEED)
torch.utils.rename_privateuse1_backend("late")
torch._register_device_module("late", _Module("torch.late"))
torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
TYPE = "late"


def keep_busy(stream: torch.Stream, milliseconds: int) -> None:
    """Let a stream do nothing for a while, as a long kernel does."""
    control.keep_busy(stream, milliseconds)


@contextlib.contextmanager
def capture() -> Iterator[None]:
    """Let every stream say that it is captured."""
    control.set_capturing(True)
    try:
        yield
    finally:
        control.set_capturing(False)
