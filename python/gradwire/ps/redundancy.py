"""The servers keep each other's state: snapshots in a code, and a lost server rebuilt from it.

The servers have a job of their own. Whenever a server was replaced, all of them meet in a new job,
the next *generation*. There every server runs the same program:

1. *Hello*: each tells which snapshots it holds. The newest one that all holders have is the one
   from which lost servers are rebuilt.
2. *Rebuild*: rebuilders send each lost server the symbols that its code needs. Those that determine
   the server's own state go first, in a high class; with them it can serve. The others, by which it
   can help in turn, follow in the lowest class while training goes on.
3. *Snapshots*: every ``snapshot_every`` updates the servers exchange their states, in the lowest
   class. Each keeps the symbols that it stores, and forgets the snapshot before as soon as all have
   these.

Workers keep the gradients that no complete snapshot contains, and push them again.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from gradwire.environment import Environment
from gradwire.ps.codes import Code
from gradwire.ps.link import ENDLESS, Link, Loss, Peers, ServerTag, open_core
from gradwire.ps.meeting import FailedError, Meeting

if TYPE_CHECKING:
    from torch.distributed import Work

    from gradwire.ps.setup import Setup

JOIN_SECONDS = 20.0
"""How long processes of a job with redundancy wait for each other in a new job."""

_POLL_SECONDS = 0.05
_REPORT_SECONDS = 2.0
"""At the end of training servers leave one after the other: that is not worth a report."""

_TOLD_SECONDS = 1.0
"""By how much longer a server waits that knows of a loss only by the end of the job."""

_PIECE_BYTES = 1 << 20
"""State that a server sends at a time; each receives as much from every other."""

_LENGTH_BYTES = 8
"""The length of a state stands before it."""

_ALIGNED_BYTES = 64
_LAYERS = 64
_URGENT = Loss(layers=((0, 0),), layer_count=_LAYERS)
_LOWEST = Loss(layers=((0, _LAYERS - 1),), layer_count=_LAYERS)
"""The last layer has the lowest class of a job; a message without layers has the highest one."""

_HELLO = 6


def check_redundancy(code: Code, setup: Setup) -> None:
    """Refuse a job whose code does not fit the launch."""
    key = "gradwire.ps: the job's servers.redundancy"
    if code.servers != setup.servers:
        raise ValueError(
            f"{key} is a code over {code.servers} servers, and {setup.servers} are started: "
            f"write one over {setup.servers}, or start {code.servers}"
        )
    if setup.mode.name != "sync":
        raise ValueError(
            f"{key} needs mode sync, and the mode is {setup.mode}: only synchronous steps can be "
            "made again with the same result"
        )


@dataclass(frozen=True)
class Hello:
    """What a server has when it meets the others."""

    is_live: bool
    """Whether it has its own state."""

    shares: tuple[tuple[int, int], ...]
    """Snapshots of which it has its symbols, with their length; at most two."""

    def numbers(self) -> torch.Tensor:
        """Return the form in which it is sent."""
        pairs = [number for share in self.shares for number in share]
        return torch.tensor([int(self.is_live), *pairs, *[-1] * (_HELLO - 1 - len(pairs))])

    @classmethod
    def of(cls, numbers: torch.Tensor) -> Hello:
        """Read what another server has sent."""
        is_live, *pairs = numbers.tolist()
        shares = zip(pairs[0:4:2], pairs[1:4:2], strict=True)
        return cls(bool(is_live), tuple(share for share in shares if share[0] >= 0))


def common_snapshot(holders: Mapping[int, Hello]) -> tuple[int, int]:
    """Return the newest snapshot that all holders have, and its length; raises if there is none."""
    held = {server: dict(hello.shares) for server, hello in holders.items()}
    common = set.intersection(*(set(snapshots) for snapshots in held.values()))
    if not common:
        told = "; ".join(
            f"server {server} has that after {' and '.join(map(str, sorted(snapshots)))} updates"
            for server, snapshots in held.items()
        )
        raise FailedError(f"no snapshot is on all servers: {told}; start again from a checkpoint")
    version = max(common)
    return version, next(iter(held.values()))[version]


@dataclass
class Store:
    """The snapshots of one server, below the lock of the server."""

    committed: int = -1
    """The newest snapshot of which every server has its symbols."""

    pending: list[tuple[int, torch.Tensor]] = field(default_factory=list)
    """Own states of newer ones, with the number of updates that they contain."""

    shares: dict[int, torch.Tensor] = field(default_factory=dict)
    """Symbols by snapshot, one per row."""

    def commit(self, version: int) -> None:
        """Forget older snapshots."""
        self.committed = max(self.committed, version)
        self.pending = [state for state in self.pending if state[0] > version]
        self.shares = {v: share for v, share in self.shares.items() if v >= version}


@dataclass(frozen=True)
class Rebuilt:
    """The state of a server that has come in place of a lost one."""

    updates: int
    state: torch.Tensor


class Redundancy(threading.Thread):
    """This server's part in keeping all servers' state."""

    def __init__(
        self, code: Code, meeting: Meeting, changed: threading.Condition, is_replacement: bool
    ) -> None:
        """Prepare; :meth:`start` meets the other servers."""
        super().__init__(name="gradwire-ps-redundancy", daemon=True)
        self._code, self._meeting, self._changed = code, meeting, changed
        self._me = meeting.setup.number
        self._store = Store()
        self._is_live = not is_replacement
        self._since = time.monotonic()
        self._rebuilt: Rebuilt | None = None
        self._is_over = False
        self._is_cut = False
        self._link: Link | None = None
        self._lost = ""
        self.failure = ""
        """Why training cannot continue."""
        self.report: Callable[[str], None] = lambda text: None
        data = code.all_data()
        self._encode = code.express(code.stored(self._me), data)

    def offer(self, updates: int, state: torch.Tensor) -> None:
        """Keep a state as part of a snapshot. The caller holds the lock."""
        if updates > self._store.committed:
            self._store.pending.append((updates, state))
            self._changed.notify_all()

    def is_due(self, updates: int) -> bool:
        """Whether there is a snapshot after this many updates."""
        return updates % self._code.snapshot_every == 0

    def may_continue(self, clock: int) -> bool:
        """Whether workers can keep the gradients of one more step. The caller holds the lock."""
        return clock < max(self._store.committed, 0) + 2 * self._code.snapshot_every

    @property
    def is_waiting(self) -> bool:
        """Whether a server is lost."""
        return bool(self._lost)

    @property
    def committed(self) -> int:
        """Updates in the newest complete snapshot."""
        return self._store.committed

    def rebuilt(self) -> Rebuilt:
        """Wait until the other servers have sent this one's state; raises when they cannot."""
        with self._changed:
            self._changed.wait_for(lambda: self._rebuilt or self.failure)
            if self._rebuilt is None:
                raise FailedError(self.failure)
            return self._rebuilt

    def serves(self) -> None:
        """Tell workers that this server is there again."""
        self._meeting.note_live(self._generation)

    def stop(self) -> None:
        """End; the thread leaves soon."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        link = self._link
        if link is not None:
            link.abort()
        self.join(JOIN_SECONDS)

    def run(self) -> None:
        """Take part in one generation after the other."""
        generation = -1
        try:
            while not self._is_over:
                generation = self._met_all(generation)
                if self._is_over:
                    return None
                try:
                    self._take_part(generation)
                except FailedError as error:  # tell the others before the link waits for them
                    return self._fail(str(error))
                except RuntimeError as error:
                    self._lost = (self._link.failure if self._link else "") or str(error)
                finally:
                    self._leave()
        except Exception as error:  # whatever it was, the other processes must learn of it
            if not self._is_over:
                self._fail(str(error))

    def _fail(self, told: str) -> None:
        reason = told.removeprefix("gradwire.ps: ")
        try:
            self._meeting.fail(f"gradwire.ps: {reason}")
            reason = str(self._meeting.failure())
        except RuntimeError:  # the first server keeps the store, and may be the lost one
            reason = f"gradwire.ps: {reason}"
        with self._changed:
            self.failure = reason
            self._changed.notify_all()

    def _leave(self) -> None:
        if self._link is not None:
            self._link.abort()
            self._link.close()
            self._link = None

    def _met_all(self, last: int) -> int:
        """Wait until all servers are in a newer generation; return its number."""
        meeting, since, is_reported = self._meeting, time.monotonic(), False
        entered = last
        while not self._is_over:
            generation = meeting.generation()
            if generation > entered:
                meeting.note_present(generation)
                entered = generation
            if entered > last and not meeting.absent(entered):
                return entered
            waited = time.monotonic() - since
            # One that has seen which server was lost says so before those that others have told.
            turn = _TOLD_SECONDS if "aborted" in self._lost else 0.0
            if waited > meeting.setup.timeout + turn:
                absent = ", ".join(str(server) for server in meeting.absent(max(entered, 0)))
                what = f"{self._lost}, and no server came in its place"
                raise FailedError(
                    f"{what if self._lost else f'servers {absent} did not come'} within "
                    f"{meeting.setup.timeout:.0f} s; start again from a checkpoint"
                )
            if self._lost and waited > _REPORT_SECONDS and not is_reported:
                is_reported = True
                self.report(
                    f"{self._lost}; start a server with the same RANK within "
                    f"{meeting.setup.timeout:.0f} s: it will be rebuilt"
                )
            if meeting.has_failed():
                raise meeting.failure()
            with self._changed:
                self._changed.wait_for(lambda: self._is_over, _POLL_SECONDS)
        return last

    def _take_part(self, generation: int) -> None:
        self._generation, self._is_cut = generation, False
        self._link = self._joined(generation)
        self._link.on_failure = self._cut
        hellos = self._greet()
        self._recover(hellos)
        self._lost = ""
        while True:
            self._encode_next()

    def _joined(self, generation: int) -> Link:
        """Open the job of all servers; the first one's is where they meet."""
        meeting, servers = self._meeting, self._code.servers
        own = Environment.read().secret()
        if self._me == 0:
            token = own or secrets.token_hex(32)
            core = open_core((0, servers), meeting.host, token)
            meeting.note_rendezvous(generation, core.rendezvous(), "" if own else token)
            rendezvous = core.rendezvous()
        else:
            rendezvous, token = meeting.rendezvous(generation, JOIN_SECONDS)
            core = open_core((self._me, servers), meeting.host, token or own)
        names = tuple(f"server {server}" for server in range(servers))
        core.join(rendezvous, JOIN_SECONDS)
        return Link(core, Peers(self._me, names), ENDLESS)

    def _cut(self) -> None:
        with self._changed:
            self._is_cut = True
            self._changed.notify_all()

    @property
    def _linked(self) -> Link:
        if self._link is None:
            raise RuntimeError("the servers' job has ended")
        return self._link

    def _others(self) -> list[int]:
        return [server for server in range(self._code.servers) if server != self._me]

    def _exchange(self, numbers: torch.Tensor) -> list[torch.Tensor]:
        """Send a header to all other servers; return the headers of all."""
        headers = [torch.zeros_like(numbers) for _ in range(self._code.servers)]
        headers[self._me] = numbers
        works = self._post_headers(headers)
        works += [self._linked.send(numbers, to, ServerTag.HEADER) for to in self._others()]
        _finish(works)
        return headers

    def _post_headers(self, headers: list[torch.Tensor]) -> list[Work]:
        others = self._others()
        return [self._linked.receive(headers[s], s, ServerTag.HEADER) for s in others]

    def _greet(self) -> list[Hello]:
        with self._changed:
            shares = sorted(self._store.shares.items(), reverse=True)[:2]
            mine = Hello(self._is_live, tuple((v, share.shape[1]) for v, share in shares))
        return [Hello.of(numbers) for numbers in self._exchange(mine.numbers())]

    def _recover(self, hellos: Sequence[Hello]) -> None:
        """Rebuild lost servers; at the start of training there is nothing to rebuild."""
        holders = [server for server, hello in enumerate(hellos) if hello.shares]
        lost = [server for server, hello in enumerate(hellos) if not hello.shares]
        if not holders and all(hello.is_live for hello in hellos):
            self._meeting.note_live(self._generation)
            return
        names = ", ".join(str(server) for server in lost)
        if len(holders) < self._code.needed:
            raise FailedError(
                f"servers {names} have no snapshot: {len(holders)} of {self._code.servers} servers "
                f"have one, and {self._code.needed} are needed; start again from a checkpoint"
            )
        version, length = common_snapshot({server: hellos[server] for server in holders})
        with self._changed:
            self._store.commit(version)
            self._store.shares = {v: s for v, s in self._store.shares.items() if v == version}
            self._changed.notify_all()
        if self._is_live:
            self._meeting.note_live(self._generation)
        jobs = [self._rebuild_of(server, holders, hellos[server].is_live) for server in lost]
        works: list[Work] = []
        for is_urgent in (True, False):
            for job in jobs:
                if job.server == self._me:
                    self._receive(job, is_urgent, (version, length))
                elif self._me in job.rebuilders:
                    works += self._help(job, is_urgent, version)
        _finish(works)

    def _rebuild_of(self, server: int, holders: Sequence[int], is_live: bool) -> _Rebuild:
        code = self._code
        if len(holders) >= code.rebuilders:
            rebuilders = list(holders)[: code.rebuilders]
            symbols = {rebuilder: list(code.sent(rebuilder, server)) for rebuilder in rebuilders}
        else:
            rebuilders = list(holders)[: code.needed]
            symbols = {rebuilder: list(code.stored(rebuilder)) for rebuilder in rebuilders}
        sources = [symbol for rebuilder in rebuilders for symbol in symbols[rebuilder]]
        used = code.express(code.stored(server), sources).used
        first = [] if is_live else code.express(code.data(server), sources).used
        urgent = {sources[at] for at in first}
        later = {sources[at] for at in used} - urgent
        return _Rebuild(server, symbols, urgent, later)

    def _help(self, job: _Rebuild, is_urgent: bool, version: int) -> list[Work]:
        """Send a lost server some of the symbols that this one has or computes for it."""
        symbols = job.part(self._me, is_urgent)
        own = self._store.shares[version]
        sent = torch.empty(len(symbols), own.shape[1], dtype=torch.uint8)
        factors = self._code.express(symbols, self._code.stored(self._me))
        factors.combine(list(own), list(sent))
        loss = _URGENT if is_urgent else _LOWEST
        tag = ServerTag.URGENT if is_urgent else ServerTag.SYMBOLS
        return [self._linked.send(symbol, job.server, tag, loss) for symbol in sent]

    def _receive(self, job: _Rebuild, is_urgent: bool, snapshot: tuple[int, int]) -> None:
        """Take the symbols that rebuilders send, and compute from them."""
        version, length = snapshot
        started = time.monotonic()
        symbols = [s for rebuilder in job.rebuilders for s in job.part(rebuilder, is_urgent)]
        values = torch.empty(len(symbols), length, dtype=torch.uint8)
        tag = ServerTag.URGENT if is_urgent else ServerTag.SYMBOLS
        sources = [
            rebuilder for rebuilder in job.rebuilders for _ in job.part(rebuilder, is_urgent)
        ]
        works = [
            self._linked.receive(value, rebuilder, tag, _URGENT if is_urgent else _LOWEST)
            for value, rebuilder in zip(values, sources, strict=True)
        ]
        _finish(works)
        job.received.update(zip(symbols, values, strict=True))
        whole = self._code.stored(self._me)
        targets = self._code.data(self._me) if is_urgent else whole
        known = list(job.received)
        computed = torch.empty(len(targets), length, dtype=torch.uint8)
        if not (is_urgent and self._is_live):
            factors = self._code.express(targets, known)
            factors.combine([job.received[symbol] for symbol in known], list(computed))
        self._note_received(is_urgent, values, time.monotonic() - started)
        with self._changed:
            if not is_urgent:
                self._store.shares[version] = computed
            elif not self._is_live:
                self._is_live = True
                self._rebuilt = Rebuilt(version, _without_length(computed))
            self._changed.notify_all()

    def _note_received(self, is_urgent: bool, values: torch.Tensor, seconds: float) -> None:
        symbols, length = values.shape
        on_wire = self._linked.counters()["received_bytes"]
        if symbols:
            share = symbols / (self._code.servers * self._code.data_symbols)
            self.report(
                f"got {'its own state' if is_urgent else 'the rest of its symbols'} from the other "
                f"servers: {symbols * length} bytes, {share:.4f} of all servers' state, in "
                f"{seconds:.3f} s, {time.monotonic() - self._since:.3f} s after it came"
                # Symbols of both parts may be on their way together.
                + ("" if is_urgent else f"; {on_wire} bytes of packets for all of them")
            )

    def _encode_next(self) -> None:
        """Exchange the next snapshot with the other servers, and keep this one's symbols."""
        headers = [torch.zeros(2, dtype=torch.int64) for _ in range(self._code.servers)]
        posted = self._post_headers(headers)
        version, state = self._awaited_state()
        headers[self._me] = torch.tensor([version, state.numel()])
        mine = headers[self._me]
        sent = [self._linked.send(mine, to, ServerTag.HEADER) for to in self._others()]
        _finish([*posted, *sent])
        if any(int(header[0]) != version for header in headers):
            versions = [int(header[0]) for header in headers]
            raise FailedError(f"the servers' next snapshots differ: after {versions} updates")
        longest = _LENGTH_BYTES + max(int(header[1]) for header in headers)
        unit = self._code.data_symbols * _ALIGNED_BYTES
        length = -(-longest // unit) * _ALIGNED_BYTES
        share = self._gathered(_with_length(state, self._code.data_symbols, length))
        with self._changed:
            self._store.shares[version] = share
        self._exchange(torch.tensor([version, 0]))
        with self._changed:
            self._store.commit(version)
            self._changed.notify_all()

    def _awaited_state(self) -> tuple[int, torch.Tensor]:
        """Wait for the next snapshot of this server."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._store.pending or self._is_cut or self._is_over, 4 * _POLL_SECONDS
                )
                if self._is_cut or self._is_over:
                    raise RuntimeError("the servers' job has ended")
                if self._store.pending:
                    return self._store.pending[0]
            if self._meeting.generation() > self._generation:
                raise RuntimeError("a server has come in place of another")

    def _gathered(self, own: torch.Tensor) -> torch.Tensor:
        """Return this server's symbols of all servers' states, which come piece by piece."""
        share = torch.empty(self._code.stored_symbols, own.shape[1], dtype=torch.uint8)
        step = max(_ALIGNED_BYTES, _PIECE_BYTES // self._code.data_symbols)
        for start in range(0, own.shape[1], step):
            mine = own[:, start : start + step].contiguous()
            pieces = [torch.empty_like(mine) for _ in range(self._code.servers)]
            pieces[self._me] = mine
            others = self._others()
            works = [self._linked.receive(pieces[s], s, ServerTag.STATE, _LOWEST) for s in others]
            works += [self._linked.send(mine, s, ServerTag.STATE, _LOWEST) for s in others]
            _finish(works)
            rows = [torch.empty(mine.shape[1], dtype=torch.uint8) for _ in share]
            self._encode.combine([row for piece in pieces for row in piece], rows)
            torch.stack(rows, out=share[:, start : start + step])
        return share


@dataclass
class _Rebuild:
    """One lost server, and the symbols that rebuild it."""

    server: int
    symbols: dict[int, list[int]]
    """By rebuilder."""

    urgent: set[int]
    later: set[int]
    received: dict[int, torch.Tensor] = field(default_factory=dict)

    @property
    def rebuilders(self) -> list[int]:
        """The servers that send."""
        return list(self.symbols)

    def part(self, rebuilder: int, is_urgent: bool) -> list[int]:
        """Return the symbols that a rebuilder sends first, or later."""
        wanted = self.urgent if is_urgent else self.later
        return [symbol for symbol in self.symbols[rebuilder] if symbol in wanted]


def _finish(works: Sequence[Work]) -> None:
    for work in works:
        work.wait()


def _with_length(state: torch.Tensor, symbols: int, length: int) -> torch.Tensor:
    """Return a state as symbols."""
    data = torch.zeros(symbols * length, dtype=torch.uint8)
    data[:_LENGTH_BYTES] = torch.tensor([state.numel()]).view(torch.uint8)
    data[_LENGTH_BYTES : _LENGTH_BYTES + state.numel()] = state
    return data.view(symbols, length)


def _without_length(symbols: torch.Tensor) -> torch.Tensor:
    """Return the state that is in symbols."""
    data = symbols.flatten()
    count = int(data[:_LENGTH_BYTES].clone().view(torch.int64))
    return data[_LENGTH_BYTES : _LENGTH_BYTES + count].clone()
