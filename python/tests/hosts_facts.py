"""Facts about the addresses and secrets by which ranks of several hosts meet."""

from collections.abc import Iterator

import pytest

import namespaces
from gradwire import interfaces
from launching import Launch

ADDRESSES = [("10.213.8.1", "fd13:8::1"), ("10.213.8.2", "fd13:8::2")]


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[tuple[str, ...], ...]]:
    """Two hosts that a link joins; yields the commands that start ranks on them."""
    with namespaces.linked_hosts("hosts", ADDRESSES) as linked:
        yield linked.inside


def _launch(hosts: tuple[tuple[str, ...], ...], *masters: str, interface: str = "") -> Launch:
    """Start one rank on each host, each with its own MASTER_ADDR."""
    own = [("env", f"MASTER_ADDR={master}", f"GRADWIRE_IFNAME={interface}") for master in masters]
    inside = tuple((*host, *more) for host, more in zip(hosts, own, strict=True))
    return Launch("meeting.py", inside=inside, timeout=60)


@pytest.mark.parametrize(
    "masters",
    [
        ("localhost", "10.213.8.1"),
        ("127.0.0.1", "10.213.8.1"),
        ("fd13:8::1", "fd13:8::1"),
        ("::1", "fd13:8::1"),
    ],
)
def ranks_of_two_hosts_meet_however_rank_0_calls_itself(
    hosts: tuple[tuple[str, ...], ...], masters: tuple[str, ...]
) -> None:
    assert [ended.succeeded()["sum"] for ended in _launch(hosts, *masters).run()] == [3.0, 3.0]


def a_loopback_interface_among_several_hosts_is_named_at_once(
    hosts: tuple[tuple[str, ...], ...],
) -> None:
    for ended in _launch(hosts, "10.213.8.1", "10.213.8.1", interface="lo").run():
        assert ended.code == 1
        assert "ranks [0, 1] listen on a loopback address" in ended.errors
        assert "GRADWIRE_IFNAME" in ended.errors


def a_token_on_some_ranks_only_is_named_at_once() -> None:
    launch = Launch("meeting.py", inside=(("env", "GRADWIRE_TOKEN=a"), ("env",)), timeout=60)
    for ended in launch.run():
        assert ended.code == 1
        assert "ranks [0] have a token, ranks [1] have none" in ended.errors


def an_address_of_this_machine_is_taken_literally() -> None:
    assert interfaces.bind_address(("GRADWIRE_IFNAME", "127.0.0.3"), "10.0.0.1") == "127.0.0.3"
    assert interfaces.bind_address(("GRADWIRE_IFNAME", "::1"), "") == "::1"
    refused = r"'192\.0\.2\.7' is not an address of this machine .* lo \("
    with pytest.raises(ValueError, match=refused):
        interfaces.bind_address(("GRADWIRE_IFNAME", "192.0.2.7"), "")
