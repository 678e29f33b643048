"""gradwire: a packet-level transport for distributed training, as a PyTorch backend.

``torch.distributed.init_process_group("gradwire")`` works once the package is installed; nothing
else needs to be imported. Gradients may be lost within a job's tolerance only where a model is
registered with :func:`gradwire.ddp.register`; every other operation is lossless.
"""

from __future__ import annotations

import functools
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from gradwire.sweep import SweepError, sweep

if TYPE_CHECKING:
    from torch._C._distributed_c10d import _DistributedBackendOptions

    from gradwire import _binding
    from gradwire.adasum import ADASUM, all_reduce

__all__ = ["ADASUM", "SweepError", "all_reduce", "autoload", "register", "sweep", "trace"]
__version__ = version("gradwire")
_registered: set[str] = set()
_DEVICES = ["cpu", "cuda", "xpu"]


def __getattr__(name: str) -> object:
    """Import PyTorch only for names that need it."""
    if name not in ("ADASUM", "all_reduce"):
        raise AttributeError(f"module 'gradwire' has no attribute {name!r}")
    from gradwire import adasum

    return getattr(adasum, name)


def register(name: str = "gradwire") -> None:
    """Register ``name`` with ``torch.distributed``; PyTorch does so by itself for ``gradwire``.

    A name that PyTorch knows already, such as ``"gloo"``, means gradwire from then on. Tensors on a
    GPU travel through host memory. A device of another kind is named with its backend:
    ``"cpu:gradwire,npu:gradwire"``.
    """
    from torch.distributed import Backend

    if name not in _registered:
        _registered.add(name)
        create = functools.partial(_create, name=name)
        Backend.register_backend(name, create, extended_api=True, devices=_DEVICES)


def autoload() -> None:
    """Register when PyTorch is imported, if this PyTorch has ``torch.distributed``."""
    import torch

    if torch.distributed.is_available():
        register()


def trace() -> list[dict[str, Any]]:
    """Return the contents of the flight recorder of each job of this process: usually one.

    You may call this from any thread while operations are in flight. Write an entry to a file with
    ``json.dump`` to compare it with those of other ranks: ``gradwire trace show FILE...``.
    """
    import json

    from gradwire import launch

    return [json.loads(text) for text in launch.traces() if text]


def _create(
    options: _DistributedBackendOptions, chosen: object = None, *, name: str
) -> _binding.Backend:
    from gradwire import launch

    stream_wait = getattr(chosen, "stream_wait", False)
    return launch.create_backend(options, name, stream_wait=stream_wait)
