"""Lets the ranks of a new process group agree through PyTorch's store, before a socket is opened.

One exchange is: every rank says something, the first rank of the group judges, all get the verdict.
The first exchange answers whether the group belongs to a job that is open already. It does if each
rank has that job open at the place that it has in the group; the ranks know it only together,
since a process may be new, may have another rank than before, or may have seen the job end.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import PrefixStore, Store

_FAILED = "failed: "
_GROUPS = 1 << 16
"""Group numbers have 16 bits on the wire."""


@dataclass(frozen=True)
class Offer:
    """What a rank knows when a group is made."""

    jobs: tuple[str, ...]
    """Open jobs in which this process has the place that it has in the group."""


@dataclass(frozen=True)
class Choice:
    """What the ranks agreed on."""

    job: str
    """The group's job: one that all have open, or a new one."""

    number: int
    """Number of the group in that job."""


class Jobs:
    """The jobs that met at one store. A job is the key of a count there: that of its groups."""

    def __init__(self, store: Store) -> None:
        """Look at the place of ``store``, which all its groups have in common."""
        while hasattr(store, "underlying_store"):
            prefixed: PrefixStore = store
            store = prefixed.underlying_store
        self._store = store

    @property
    def host(self) -> str:
        """Host of the store, empty if it is none that a network reaches."""
        return getattr(self._store, "host", "")

    def new(self) -> str:
        """Return a job that is not there yet."""
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
        self._members = members
        self._position = position
        met = store.add(f"gradwire/met/{position}", 1)
        self._keys = f"gradwire/{met}"

    def settle(self, topic: str, said: str, judge: Callable[[list[str]], str]) -> str:
        """Say something about ``topic``; return the verdict of the first rank, on every rank.

        ``judge`` takes what was said, in the group's order.

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
        """Tell the others that this rank cannot go on; the first rank tells its verdict, too."""
        place = f"{self._keys}/{topic}"
        said = f"{_FAILED}{error}"
        self._store.set(f"{place}/{self._position}", said)
        if self._position == 0:
            self._store.set(place, self._verdict(place, lambda _: said))

    def tell(self, topic: str, text: str) -> str:
        """Return the ``text`` of the first rank, on every rank."""
        place = f"{self._keys}/{topic}"
        if self._position == 0:
            self._store.set(place, text)
        return self._store.get(place).decode()

    def _verdict(self, place: str, judge: Callable[[list[str]], str]) -> str:
        said = self._store.multi_get([f"{place}/{at}" for at in range(len(self._members))])
        texts = [text.decode() for text in said]
        failures = [
            f"rank {rank}: {text.removeprefix(_FAILED)}"
            for rank, text in zip(self._members, texts, strict=True)
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
        offers = [set(json.loads(text)["jobs"]) for text in texts]
        for job in offer.jobs:
            number = jobs.number_in(job) if all(job in offered for offered in offers) else None
            if number is not None:
                return json.dumps(asdict(Choice(job, number)))
        job = jobs.new()
        return json.dumps(asdict(Choice(job, jobs.next_group(job))))

    return Choice(**json.loads(exchange.settle("job", json.dumps(asdict(offer)), judge)))
