"""Facts about servers that keep each other's state: codes, and servers that are killed."""

import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import rebuilding
import serving
from gradwire import ps
from gradwire.ps import redundancy
from gradwire.ps.codes import Code
from gradwire.ps.setup import Setup
from rebuilding import Servers
from serving import Place

JOB = '[servers]\nredundancy = "{redundancy}"\nsnapshot_every = {every}\n'


@functools.cache
def _alone() -> torch.Tensor:
    return serving.alone(rebuilding.STEPS, rebuilding.WORKERS, rebuilding.adam)


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Servers]:
    """Return four servers that keep each other's state."""
    place = Place(monkeypatch, tmp_path, JOB.format(redundancy="mbr:4,2,3", every=4))
    place.prepare()
    servers = Servers(place)
    yield servers
    for _, rank, _ in servers.started:
        rank.kill()
        rank.communicate(30)


def a_killed_server_is_rebuilt_and_training_ends_with_the_same_bits(servers: Servers) -> None:
    def replace() -> None:
        servers.kill(3)
        servers.start(3)

    for parameters in servers.train(replace):
        assert torch.equal(parameters, _alone()), parameters
    said = servers.running[3].communicate(30)[1]
    own, rest = re.findall(r"bytes, ([0-9.]+) of all servers' state", said)
    assert (own, rest) == ("0.2500", "0.3500"), "together 3/5, the MBR corner"
    symbols = [int(count) for count in re.findall(r": ([0-9]+) bytes, ", said)]
    packets = int(re.findall(r"; ([0-9]+) bytes of packets for all", said)[0])
    assert len(symbols) == 2
    assert sum(symbols) < packets < 1.5 * sum(symbols), (symbols, packets)


def two_servers_killed_at_once_are_rebuilt_from_the_others(servers: Servers) -> None:
    servers.processes = (2, 3)

    def replace() -> None:
        servers.kill(2, 3)
        servers.start(2)
        servers.start(3)

    for parameters in servers.train(replace):
        assert torch.equal(parameters, _alone()), parameters


def a_server_that_dies_while_it_is_rebuilt_is_replaced(servers: Servers) -> None:
    def replace() -> None:
        servers.kill(3)
        dying = servers.start(3, "dies")
        dying.communicate(30)
        assert dying.returncode == 9
        servers.start(3)

    for parameters in servers.train(replace):
        assert torch.equal(parameters, _alone()), parameters


def fewer_servers_than_needed_are_one_error_everywhere(servers: Servers) -> None:
    servers.processes = (1, 2, 3)

    def replace() -> None:
        servers.kill(1, 2, 3)
        for server in servers.processes:
            servers.start(server)

    for end in servers.train(replace):
        assert "servers 1, 2, 3 have no snapshot: 1 of 4 servers have one, and 2 are" in str(end)
    for server in servers.processes:
        said = servers.running[server].communicate(60)[1]
        assert servers.running[server].returncode == 1
        assert "servers 1, 2, 3 have no snapshot" in said


def a_server_without_replacement_ends_training_in_time(servers: Servers) -> None:
    servers.timeout = 8.0
    for end in servers.train(lambda: servers.kill(3)):
        assert isinstance(end, ps.FailedError), end
        assert "server 3" in str(end)
        assert "no server came in its place within 8 s" in str(end)


@pytest.mark.parametrize(
    ("job", "setup", "said"),
    [
        ('redundancy = "mbr:10,5,9"', {}, "a code over 10 servers, and 4 are started"),
        ('redundancy = "rs:4,2"', {"mode": ps.ASYNC}, "needs mode sync, and the mode is async"),
        ('redundancy = "mbr:4,4,3"', {}, 'redundancy = "mbr:4,4,3": allowed are "none", "mbr:n,k'),
        ('redundancy = "msr:32,16,30"', {}, "msr:32,16,30 does not exist over bytes"),
        ("snapshot_every = 0", {}, "snapshot_every = 0: allowed are whole numbers from 1"),
    ],
)
def a_code_that_does_not_fit_is_refused(
    servers: Servers, job: str, setup: dict[str, Any], said: str
) -> None:
    servers.place.job = f"[servers]\n{job}\n"
    servers.place.prepare()
    with pytest.raises(ValueError, match=re.escape(said)):
        ps.Server(Setup(servers=4, rank=5, world_size=6, **setup))


@pytest.mark.parametrize("redundancy", ["mbr:10,5,9", "msr:10,5,9", "rs:10,5"])
def any_five_of_ten_servers_restore_all_state(servers: Servers, redundancy: str) -> None:
    servers.place.job = JOB.format(redundancy=redundancy, every=8)
    servers.place.prepare()
    code = Code.of_job()
    assert code is not None
    data = code.all_data()
    state = torch.randint(256, (len(data), 40), dtype=torch.uint8, generator=_seeded())
    every = [symbol for server in range(10) for symbol in code.stored(server)]
    stored = torch.empty(len(every), 40, dtype=torch.uint8)
    code.express(every, data).combine(list(state), list(stored))
    subsets = list(itertools.combinations(range(10), 5))
    assert len(subsets) == 252
    for subset in subsets:
        known = [symbol for server in subset for symbol in code.stored(server)]
        restored = torch.empty_like(state)
        code.express(data, known).combine([stored[symbol] for symbol in known], list(restored))
        assert torch.equal(restored, state), subset


def holders_without_a_common_snapshot_are_one_clear_error() -> None:
    one, other = redundancy.Hello(True, ((4, 64), (8, 64))), redundancy.Hello(True, ((12, 64),))
    assert redundancy.common_snapshot({0: one, 2: one}) == (8, 64)
    said = "server 0 has that after 4 and 8 updates; server 3 has that after 12 updates; start"
    with pytest.raises(ps.FailedError, match=said):
        redundancy.common_snapshot({0: one, 3: other})


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)
