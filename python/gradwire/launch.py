"""Lets a process join a job when PyTorch creates a process group.

All groups of a process that have the same members, or some of them, share one rank of the core: its
sockets, its driver thread, its counters. The first group opens the rank and exchanges addresses and
the job token through PyTorch's store. A later group whose members are in that job only needs a
number of its own. Not here: how its ranks agree whether that is so (``agreement.py``).
"""

from __future__ import annotations

import atexit
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch._C._distributed_c10d import Backend as _Backend

from gradwire import agreement, build, interfaces, log
from gradwire.agreement import Choice, Exchange, Jobs, Offer
from gradwire.environment import Environment, without_stacks

if TYPE_CHECKING:
    from torch._C._distributed_c10d import _DistributedBackendOptions

    from gradwire import _binding


@dataclass(frozen=True)
class _Opened:
    """A rank of the core that this process has opened."""

    members: tuple[int, ...]
    """Ranks of the job's members as PyTorch numbers them; a rank of the core is a position in it.
    """

    place: int
    """This process's position in ``members``."""

    core: _binding.Rank

    def fits(self, members: tuple[int, ...], position: int) -> bool:
        """Whether a group of ``members`` may use this job, in which this process has a place."""
        return set(members) <= set(self.members) and self.members[self.place] == members[position]


_LEAVE_SECONDS = 10.0
"""How long a rank waits until others have received the data that it owes them."""

_opened: list[_Opened] = []
_changing = threading.Lock()


@atexit.register
def close_all() -> None:
    """Close every rank that is still open; runs before the interpreter shuts down.

    A program that ends by an error does not wait for the other ranks: they must learn of it, and
    torchrun takes the rank that ends first for the cause.
    """
    with _changing:
        cores = [opened.core for opened in _opened]
        _opened.clear()
    if cores:
        patience = _LEAVE_SECONDS if getattr(sys, "last_value", None) is None else 0.0
        build.load().close_all(cores, patience)


def traces() -> list[str]:
    """Return the flight recorders of this process as JSON, one per open rank."""
    return [opened.core.trace() for opened in list(_opened) if opened.core.is_open]


def create_backend(
    options: _DistributedBackendOptions, name: str = "gradwire", *, stream_wait: bool = False
) -> _binding.Backend:
    """Create the backend of one process group, which PyTorch knows by ``name``.

    With ``stream_wait``, ``wait()`` of an operation on a GPU blocks the current stream only.
    """
    binding = build.load()
    store, position = options.store, options.group_rank
    members = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
    exchange = Exchange(store, members, position)
    jobs = Jobs(store)
    environment = Environment.read()
    fitting = _fitting(members, position)
    offer = Offer(
        jobs=tuple(opened.core.job for opened in fitting),
        network=interfaces.network(),
        master=environment.master_address or jobs.host,
        secret=environment.secret_kind,
    )
    choice = agreement.choose(exchange, offer, jobs)
    opened = next((one for one in fitting if one.core.job == choice.job), None)
    if opened is None:
        place = (position, len(members))
        core = _joined(exchange, (offer, choice), place, options.timeout.total_seconds())
        opened = _Opened(members, position, core)
        with _changing:
            _opened.append(opened)
    ranks = [opened.members.index(member) for member in members]
    return binding.Backend(
        rank=opened.core,
        group=(choice.number, ranks, position),
        store=store,
        options=_Backend.Options(name, options.timeout),
        staging=binding.Staging(stream_wait=stream_wait, of_host=environment.stages_host),
    )


def _fitting(members: tuple[int, ...], position: int) -> list[_Opened]:
    """Return the jobs of this process that a group may use; forget those that were closed."""
    with _changing:
        _opened[:] = [opened for opened in _opened if opened.core.is_open]
        fitting = [opened for opened in _opened if opened.fits(members, position)]
    return [opened for opened in fitting if opened.core.takes_operations()]


def _joined(
    exchange: Exchange, agreed: tuple[Offer, Choice], place: tuple[int, int], seconds: float
) -> _binding.Rank:
    """Open a rank of a new job, and meet the others within ``seconds``.

    Args:
        exchange: the ranks of the group.
        agreed: what this rank knows, and what all have chosen.
        place: rank and world size.
        seconds: how long the others may take.
    """
    offer, choice = agreed
    environment = Environment.read()
    without_stacks()
    try:
        host = interfaces.bind_address(environment.interface, choice.master_for(offer.master))
        log.route(build.core_library())
        core = build.load().Rank(
            settings=(environment.checked_job(), environment.trace, environment.log),
            place=(*place, _local_rank(environment)),
            host=host,
            credentials=(environment.secret() or choice.token, *environment.certificates),
            job=choice.job,
        )
    except Exception as error:
        exchange.fail("open", error)
        raise
    try:

        def judge(hosts: list[str]) -> str:
            choice.check(exchange.members, hosts)
            return core.rendezvous()

        core.join(exchange.settle("open", host, judge), seconds)
    except Exception:
        core.close()
        raise
    return core


def _local_rank(environment: Environment) -> int:
    """Read the number of this rank on its host; -1 if no launcher has set one."""
    text = environment.local_rank or "-1"
    try:
        return int(text)
    except ValueError as error:
        raise ValueError(
            f"gradwire: LOCAL_RANK={text!r} is not a whole number; give the rank's number on its "
            "host, from 0, or unset it"
        ) from error
