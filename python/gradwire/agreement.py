"""Lets the ranks of a new process group agree through PyTorch's store, before a socket is opened.

One exchange: every rank says something, the first rank of the group judges, all get the verdict.
The first exchange decides whether the group belongs to a job that is open already. It does if each
rank has that job open at its place in the group; only the ranks together know it, since a process
may be new, may have another rank than before, or may have seen the job end.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from gradwire import interfaces

if TYPE_CHECKING:
    from torch.distributed import PrefixStore, Store

_FAILED = "failed: "
_GROUPS = 1 << 16
"""Group numbers have 16 bits on the wire."""


@dataclass(frozen=True)
class Offer:
    """The knowledge of a rank when a group is made."""

    jobs: tuple[str, ...]
    """Open jobs in which this process has the same rank as in the group."""

    network: str
    """Equal on ranks that reach each other over loopback: the same kernel and the same network."""

    master: str
    """Host of the launch's first rank as this rank knows it; empty if it knows none."""

    secret: str
    """The kind of secret that this rank was given, the same on all ranks; empty for none."""

    @property
    def has_secret(self) -> bool:
        """Whether the ranks need no secret from the store."""
        return bool(self.secret)


@dataclass(frozen=True)
class Choice:
    """What the ranks agreed on."""

    job: str
    """The group's job: one that all have open, or a new one."""

    number: int
    """Number of the group in that job."""

    master: str
    """Host towards which a rank finds the address that others reach; empty for one network."""

    token: str
    """Token of a new job whose ranks were given no secret; the store carries it in the clear."""

    def master_for(self, own: str) -> str:
        """Return the host towards which a rank chooses its address.

        ``own`` is the name by which that rank knows the host.
        """
        return self.master if self.master and interfaces.is_loopback(own) else own

    def check(self, members: tuple[int, ...], hosts: list[str]) -> None:
        """Raise if ranks of several networks listen where only their own network reaches them."""
        alone = [
            rank
            for rank, host in zip(members, hosts, strict=True)
            if self.master and interfaces.is_loopback(host)
        ]
        if alone:
            raise ValueError(
                f"gradwire: ranks {alone} listen on a loopback address, and the ranks of this job "
                "are on several hosts: give GRADWIRE_IFNAME there a network interface that the "
                "other hosts reach, or an address of it"
            )


class Jobs:
    """The jobs that met at one store. A job is the key of a count there: that of its groups."""

    def __init__(self, store: Store) -> None:
        """Find the part of ``store`` that all its groups have in common."""
        while hasattr(store, "underlying_store"):
            prefixed: PrefixStore = store
            store = prefixed.underlying_store
        self._store = store

    @property
    def host(self) -> str:
        """Host of the store, empty if no network reaches it."""
        return getattr(self._store, "host", "")

    def new(self) -> str:
        """Return a job that does not exist yet."""
        return f"gradwire/job/{secrets.token_hex(8)}"

    def next_group(self, job: str) -> int:
        """Draw the number of a group of ``job``."""
        return self._store.add(job, 1) - 1

    def number_in(self, job: str) -> int | None:
        """Draw a number if ``job`` met here and has one left.

        A job that met at another store has counted its groups there.
        """
        if not self._store.check([job]):
            return None
        number = self.next_group(job)
        return number if number < _GROUPS else None


class Exchange:
    """The ranks of one group at their store."""

    def __init__(self, store: Store, members: tuple[int, ...], position: int) -> None:
        """Count this rank in: a group of ranks that have met here before has other keys."""
        self._store = store
        self.members = members
        """Ranks of the group as PyTorch numbers them."""
        self._position = position
        met = store.add(f"gradwire/met/{position}", 1)
        self._keys = f"gradwire/{met}"

    def settle(self, topic: str, said: str, judge: Callable[[list[str]], str]) -> str:
        """Say something about ``topic``; return the verdict of the first rank, on every rank.

        ``judge`` receives the statements in the group's order.

        Raises:
            RuntimeError: a rank has failed, or the judge: the same words on every rank.
        """
        place = f"{self._keys}/{topic}"
        self._store.set(f"{place}/{self._position}", said)
        if self._position == 0:
            self._store.set(place, self._verdict(place, judge))
        verdict = self._store.get(place).decode()
        if verdict.startswith(_FAILED):
            raise RuntimeError(verdict.removeprefix(_FAILED))
        return verdict

    def fail(self, topic: str, error: Exception) -> None:
        """Tell the others that this rank cannot continue; the first rank also gives a verdict."""
        place = f"{self._keys}/{topic}"
        said = f"{_FAILED}{error}"
        self._store.set(f"{place}/{self._position}", said)
        if self._position == 0:
            self._store.set(place, self._verdict(place, lambda _: said))

    def _verdict(self, place: str, judge: Callable[[list[str]], str]) -> str:
        said = self._store.multi_get([f"{place}/{at}" for at in range(len(self.members))])
        texts = [text.decode() for text in said]
        failures = [
            f"rank {rank}: {text.removeprefix(_FAILED)}"
            for rank, text in zip(self.members, texts, strict=True)
            if text.startswith(_FAILED)
        ]
        if failures:
            return _FAILED + "; ".join(failures)
        try:
            return judge(texts)
        except Exception as error:  # the others wait for a verdict, whatever it is
            return f"{_FAILED}{error}"


def choose(exchange: Exchange, offer: Offer, jobs: Jobs) -> Choice:
    """Agree on the job of a new group, and on the group's number in it."""

    def judge(texts: list[str]) -> str:
        offers = [Offer(**json.loads(text)) for text in texts]
        for job in offer.jobs:
            number = jobs.number_in(job) if all(job in one.jobs for one in offers) else None
            if number is not None:
                return json.dumps(asdict(Choice(job, number, "", "")))
        _check_secrets(exchange.members, offers)
        job, token = jobs.new(), "" if offer.has_secret else secrets.token_hex(32)
        choice = Choice(job, jobs.next_group(job), _master_of(offers), token)
        return json.dumps(asdict(choice))

    return Choice(**json.loads(exchange.settle("job", json.dumps(asdict(offer)), judge)))


def _check_secrets(members: tuple[int, ...], offers: list[Offer]) -> None:
    """Raise unless the secrets of all ranks are of one kind."""
    by_kind: dict[str, list[int]] = {}
    for rank, offer in zip(members, offers, strict=True):
        by_kind.setdefault(offer.secret, []).append(rank)
    if len(by_kind) > 1:
        kinds = ", ".join(f"ranks {who} have {kind or 'none'}" for kind, who in by_kind.items())
        raise ValueError(
            "gradwire: some ranks were given a token or certificates and others not: "
            f"{kinds}; set GRADWIRE_TOKEN_FILE, GRADWIRE_TOKEN or the three variables of "
            "certificates on every rank or on none"
        )


def _master_of(offers: list[Offer]) -> str:
    """Return a host towards which each rank finds the address by which the others reach it.

    A rank may know the first one as "localhost", and ranks of other hosts know it by its name.
    """
    if len({offer.network for offer in offers}) == 1:
        return ""
    known = [offer.master for offer in offers]
    return next((host for host in known if not interfaces.is_loopback(host)), interfaces.ELSEWHERE)
