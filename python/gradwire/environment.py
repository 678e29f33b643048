"""The environment of this process, read in this one place.

Launch variables are those of ``torchrun``; the rest are gradwire's own. All other modules receive
values, never names of variables.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
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
    """The network interface: the variable that names it, and its value; empty to choose one.

    ``GRADWIRE_IFNAME``, else ``GLOO_SOCKET_IFNAME``, else ``NCCL_SOCKET_IFNAME``.
    """

    trace: str
    """``GRADWIRE_TRACE``: folder of the flight recorder; empty: it is not written."""

    log: str
    """``GRADWIRE_LOG``: level of the log on standard error; empty for the default."""

    token: str
    """``GRADWIRE_TOKEN``: secret that every rank must know; empty to make one per launch."""

    token_file: str
    """``GRADWIRE_TOKEN_FILE``: path of a file that holds the token instead; empty for none."""

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

    stages_host: bool
    """``GRADWIRE_STAGE=host``: tensors in CPU memory take the way of those on a GPU; for tests."""

    compiler: str
    """``CXX``: the C++ compiler that builds the PyTorch binding."""

    caches: tuple[Path, ...]
    """Folders for the compiled binding; the first writable one is used.

    ``gradwire`` below ``XDG_CACHE_HOME``, or below ``~/.cache`` if the user has a home; then one in
    the folder for temporary files that belongs to this user alone.
    """

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> Environment:
        """Read the variables, by default those of this process."""
        return cls(
            job=variables.get("GRADWIRE_JOB", ""),
            interface=_first_set(variables, _INTERFACES),
            trace=variables.get("GRADWIRE_TRACE", ""),
            log=variables.get("GRADWIRE_LOG", ""),
            token=variables.get("GRADWIRE_TOKEN", ""),
            token_file=variables.get("GRADWIRE_TOKEN_FILE", ""),
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
            stages_host=variables.get("GRADWIRE_STAGE", "") == "host",
            compiler=variables.get("CXX", "c++"),
            caches=_caches(variables),
        )

    def checked_job(self) -> str:
        """Return the path of the job file, which must be there; empty for the default job."""
        if self.job and not os.access(self.job, os.R_OK):
            why = "cannot be read" if Path(self.job).exists() else "does not exist"
            raise ValueError(
                f"gradwire: GRADWIRE_JOB={self.job!r} {why} (this process runs in "
                f"{Path.cwd()}); give the path of a job file, or unset it for the default job"
            )
        return self.job

    def secret(self) -> str:
        """Return the token that this process was given; empty if there is none."""
        if not self.token_file:
            return self.token
        if self.token:
            raise ValueError(
                "gradwire: GRADWIRE_TOKEN and GRADWIRE_TOKEN_FILE are both set: set one of them"
            )
        try:
            token = Path(self.token_file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(
                f"gradwire: GRADWIRE_TOKEN_FILE={self.token_file!r} cannot be read ({error}); give "
                "the path of a text file"
            ) from error
        if not token:
            raise ValueError(
                f"gradwire: GRADWIRE_TOKEN_FILE={self.token_file!r} is empty; write a secret into "
                "it, for example by: openssl rand -hex 32"
            )
        return token

    @property
    def secret_kind(self) -> str:
        """The kind of secret that this process was given; empty for none."""
        kinds = {
            "a token": bool(self.token or self.token_file),
            "certificates": any(self.certificates),
        }
        return " and ".join(kind for kind, given in kinds.items() if given)


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


def _caches(variables: Mapping[str, str]) -> tuple[Path, ...]:
    """Return where the binding may be kept; a user may have no home, and no name."""
    found = []
    cache = variables.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # neither HOME nor an entry in /etc/passwd
        found.append(Path(cache or Path.home() / ".cache") / "gradwire")
    with contextlib.suppress(FileNotFoundError):  # no folder for temporary files can be written
        found.append(Path(tempfile.gettempdir()) / f"gradwire-{os.geteuid()}")
    return tuple(found)
