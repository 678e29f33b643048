"""gradwire: a packet-level transport for distributed training, as a PyTorch backend.

``torch.distributed.init_process_group("gradwire")`` works once the package is installed; nothing
else needs to be imported. Gradients may be lost within a job's tolerance only where a model is
registered with :func:`gradwire.ddp.register`; every other operation is lossless.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from gradwire.sweep import SweepError, sweep

if TYPE_CHECKING:
    from torch._C._distributed_c10d import _DistributedBackendOptions

    from gradwire import _binding

__all__ = ["SweepError", "autoload", "register", "sweep", "trace"]
__version__ = version("gradwire")


def register() -> None:
    """Make ``"gradwire"`` known to ``torch.distributed``; PyTorch calls it by itself."""
    from torch.distributed import Backend

    if "GRADWIRE" not in Backend._plugins:
        Backend.register_backend("gradwire", _create, extended_api=True, devices=["cpu"])


def autoload() -> None:
    """Register at the import of PyTorch, where this PyTorch can be distributed at all."""
    import torch

    if torch.distributed.is_available():
        register()


def trace() -> list[dict[str, Any]]:
    """Return what the flight recorder of each job that this process is in holds: usually one.

    Works while operations are on their way, from any thread. Written to a file by ``json.dump``,
    an entry can be compared with those of other ranks: ``gradwire trace show FILE...``.
    """
    import json

    from gradwire import launch

    return [json.loads(text) for text in launch.traces() if text]


def _create(
    options: _DistributedBackendOptions, backend_options: object = None
) -> _binding.Backend:
    from gradwire import launch

    return launch.create_backend(options, backend_options)
