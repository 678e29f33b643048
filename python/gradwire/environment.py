"""The environment of this process, read in this one place.

Launch variables are those of ``torchrun``; the rest are gradwire's own. All other modules receive
values, never names of variables.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_INTERFACES = ("GRADWIRE_IFNAME", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


@dataclass(frozen=True)
class Environment:
    """The launch, as the environment describes it."""

    job: str
    """``GRADWIRE_JOB``: path of the job file; empty for the default job."""

    interface: tuple[str, str]
    """Which network interface is used: the variable that says it, and its value; empty to choose.

    ``GRADWIRE_IFNAME``, else ``GLOO_SOCKET_IFNAME``, else ``NCCL_SOCKET_IFNAME``.
    """

    trace: str
    """``GRADWIRE_TRACE``: folder of the flight recorder; empty: it is not written."""

    log: str
    """``GRADWIRE_LOG``: how much is told on standard error; empty for the default."""

    token: str
    """``GRADWIRE_TOKEN``: secret that every rank must know; empty to make one per launch."""

    certificates: tuple[str, str, str]
    """``GRADWIRE_CERT``, ``GRADWIRE_KEY``, ``GRADWIRE_CA``: files in PEM; all are given or none."""

    master_address: str
    """``MASTER_ADDR``: host of rank 0; empty when the launcher did not set it."""

    binding: str
    """``GRADWIRE_BINDING``: ``auto``, ``compiled``, or ``python`` for the one without compiler."""

    local_rank: str
    """``LOCAL_RANK``: number of this rank on its host; empty when the launcher did not set it."""

    master_port: str
    """``MASTER_PORT``: port at which the processes of the launch meet; empty when not set."""

    rank: str
    """``RANK``: number of this process in the launch; empty when not set."""

    world_size: str
    """``WORLD_SIZE``: processes of the launch; empty when not set."""

    is_under_agent: bool
    """``TORCHELASTIC_USE_AGENT_STORE``: whether ``torchrun`` keeps the store itself."""

    compiler: str
    """``CXX``: the C++ compiler that builds the PyTorch binding."""

    cache: Path
    """``XDG_CACHE_HOME`` or ``~/.cache``, then ``gradwire``: where the binding is kept."""

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> Environment:
        """Read the variables, by default those of this process."""
        cache = variables.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return cls(
            job=variables.get("GRADWIRE_JOB", ""),
            interface=_first_set(variables, _INTERFACES),
            trace=variables.get("GRADWIRE_TRACE", ""),
            log=variables.get("GRADWIRE_LOG", ""),
            token=variables.get("GRADWIRE_TOKEN", ""),
            certificates=(
                variables.get("GRADWIRE_CERT", ""),
                variables.get("GRADWIRE_KEY", ""),
                variables.get("GRADWIRE_CA", ""),
            ),
            master_address=variables.get("MASTER_ADDR", ""),
            binding=variables.get("GRADWIRE_BINDING") or "auto",
            local_rank=variables.get("LOCAL_RANK", ""),
            master_port=variables.get("MASTER_PORT", ""),
            rank=variables.get("RANK", ""),
            world_size=variables.get("WORLD_SIZE", ""),
            is_under_agent=variables.get("TORCHELASTIC_USE_AGENT_STORE", "") == "True",
            compiler=variables.get("CXX", "c++"),
            cache=Path(cache) / "gradwire",
        )


def without_stacks() -> None:
    """Make PyTorch's own flight recorder leave out stacks, unless the user has set this.

    When an operation fails, the recorder looks up the source lines of all stacks before the error
    is raised. That takes ten seconds and more, in which a rank that could report seems to hang.
    """
    os.environ.setdefault("TORCH_INCLUDE_STACK_TRACE", "0")


def as_if_alone(port: int) -> None:
    """Set the variables of a launch of one process, unless a launcher has set them."""
    if not os.environ.get("RANK") and not os.environ.get("WORLD_SIZE"):
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1")
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))


def _first_set(variables: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    """Return the first variable that is not empty, with its value; otherwise the first, empty."""
    found = ((name, variables[name]) for name in names if variables.get(name))
    return next(found, (names[0], ""))
