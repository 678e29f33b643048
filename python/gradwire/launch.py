"""Lets a process join a job when PyTorch creates a process group.

All groups of a process share one rank of the core: its sockets, its driver thread, its counters.
The first group opens the rank and exchanges addresses and the job token through PyTorch's store. A
later group whose members are in that job only needs a number of its own.
"""

from __future__ import annotations

import atexit
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradwire import build, interfaces
from gradwire.environment import Environment, without_stacks

if TYPE_CHECKING:
    from torch._C._distributed_c10d import _DistributedBackendOptions
    from torch.distributed import PrefixStore, Store

    from gradwire import _binding

_FAILED = "failed: "


@dataclass(frozen=True)
class _Opened:
    """A rank of the core that this process has opened."""

    members: tuple[int, ...]
    """Global ranks of the job's members; a rank of the core is a position in it."""

    launch: int
    """How many times these members had opened a job on this store before."""

    core: _binding.Rank


_opened: list[_Opened] = []


@atexit.register
def close_all() -> None:
    """Close every rank that is still open; runs before the interpreter shuts down."""
    while _opened:
        _opened.pop().core.close()


def traces() -> list[str]:
    """Return the flight recorders of this process as JSON, one per open rank."""
    return [opened.core.trace() for opened in _opened if opened.core.is_open]


def create_backend(options: _DistributedBackendOptions, name: str = "gradwire") -> _binding.Backend:
    """Create the backend of one process group, which PyTorch knows by ``name``."""
    binding = build.load()
    store = options.store
    position = options.group_rank
    members = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
    opened = _opened_for(members)
    if opened is None:
        opened = _open(store, members, position, options.timeout.total_seconds())
        _opened.append(opened)
    number = binding.number_of_group(store, position, f"gradwire/{opened.launch}/group")
    ranks = [opened.members.index(member) for member in members]
    return binding.Backend(
        rank=opened.core,
        group=(number, ranks, position),
        store=store,
        name=name,
        timeout=options.timeout,
    )


def _opened_for(members: tuple[int, ...]) -> _Opened | None:
    """Find the first open rank whose job has all ``members``: the same choice on each of them."""
    _opened[:] = [opened for opened in _opened if opened.core.is_open]
    return next((opened for opened in _opened if set(members) <= set(opened.members)), None)


def _open(store: Store, members: tuple[int, ...], position: int, timeout: float) -> _Opened:
    binding = build.load()
    environment = Environment.read()
    without_stacks()
    launch = (store.add("gradwire/opened", 1) - 1) // len(members)
    keys = f"gradwire/{launch}"
    token = environment.token or _agree_on_token(store, position, keys)
    try:
        host = interfaces.bind_address(
            environment.interface, environment.master_address or _host_of(store)
        )
        core = binding.Rank(
            settings=(environment.job, environment.trace, environment.log),
            place=(position, len(members), _local_rank(environment)),
            host=host,
            credentials=(token, *environment.certificates),
        )
    except Exception as error:
        store.set(f"{keys}/rank/{position}", f"{_FAILED}{error}")
        raise
    store.set(f"{keys}/rank/{position}", "open")
    if position == 0:
        _publish_rendezvous(store, keys, len(members), core)
    rendezvous = store.get(f"{keys}/rendezvous").decode()
    if rendezvous.startswith(_FAILED):
        core.close()
        raise RuntimeError(rendezvous.removeprefix(_FAILED))
    core.join(rendezvous, timeout)
    return _Opened(members, launch, core)


def _local_rank(environment: Environment) -> int:
    """Read the number of this rank on its host; -1 if no launcher has set one."""
    text = environment.local_rank or "-1"
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(f"gradwire: LOCAL_RANK={text!r} is no whole number") from error


def _publish_rendezvous(store: Store, keys: str, world: int, core: _binding.Rank) -> None:
    """Tell all ranks where to meet, or which rank could not open and why."""
    states = [store.get(f"{keys}/rank/{rank}").decode() for rank in range(world)]
    failures = [
        f"rank {rank}: {state.removeprefix(_FAILED)}"
        for rank, state in enumerate(states)
        if state.startswith(_FAILED)
    ]
    text = _FAILED + "; ".join(failures) if failures else core.rendezvous()
    store.set(f"{keys}/rendezvous", text)


def _agree_on_token(store: Store, position: int, keys: str) -> str:
    if position == 0:
        store.set(f"{keys}/token", secrets.token_hex(32))
    return store.get(f"{keys}/token").decode()


def _base(store: Store) -> Store:
    while hasattr(store, "underlying_store"):
        prefixed: PrefixStore = store
        store = prefixed.underlying_store
    return store


def _host_of(store: Store) -> str:
    return getattr(_base(store), "host", "")
