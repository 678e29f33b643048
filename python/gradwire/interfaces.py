"""Chooses the address of this machine to which a rank binds its sockets."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct

_SIOCGIFADDR = 0x8915
"""Linux ioctl: the IPv4 address of an interface (netdevice(7))."""

_ELSEWHERE = "192.0.2.1"
"""An address that is nobody's (RFC 5737): a route to it is the default route."""

_EXACT_ONLY = "GLOO_SOCKET_IFNAME"
"""Gloo takes whole names, where NCCL takes the beginnings of names."""


def bind_address(interface: tuple[str, str], master: str) -> str:
    """Choose the local address: a named interface's, or the one that reaches ``master``.

    ``interface`` is a variable and its value, in NCCL's notation: comma-separated beginnings of
    interface names. A leading ``=`` means whole names; a leading ``^`` means any interface but
    these. Of several interfaces, the one that reaches ``master`` is taken, otherwise the first. A
    loopback master means that every rank is on this machine. No packet is sent.
    """
    variable, value = interface
    if value:
        return _address_of(_wanted(variable, value), master)
    if not master or _is_loopback(master):
        return "127.0.0.1"
    try:
        return _source_towards(master)
    except OSError as error:
        raise ValueError(
            f"gradwire: no address of this machine reaches MASTER_ADDR={master!r} ({error}); "
            "correct MASTER_ADDR, or name a network interface in GRADWIRE_IFNAME"
        ) from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _source_towards(host: str) -> str:
    # A host's own name often resolves to 127.0.1.1, which no other machine can reach.
    resolved = socket.gethostbyname(host)
    target = _ELSEWHERE if _is_loopback(resolved) else resolved
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, 9))
        except OSError:
            if target == _ELSEWHERE:  # no default route: this machine has no network
                return "127.0.0.1"
            raise
        return probe.getsockname()[0]


def _wanted(variable: str, value: str) -> list[str]:
    """Return the addresses of the interfaces that ``value`` names, in the order of its names."""
    addresses = _addresses()
    rest = value.removeprefix("^")
    names = [name for name in rest.removeprefix("=").split(",") if name]
    whole = rest.startswith("=") or variable == _EXACT_ONLY

    def fits(interface: str, name: str) -> bool:
        return interface == name if whole else interface.startswith(name)

    if value.startswith("^"):
        found = [known for known in addresses if not any(fits(known, name) for name in names)]
    else:
        found = [known for name in names for known in addresses if fits(known, name)]
    if not found:
        here = ", ".join(f"{name} ({address})" for name, address in addresses.items())
        raise ValueError(
            f"gradwire: {variable}={value!r} fits no interface with an IPv4 address; "
            f"this machine has {here}; write the beginning of a name, =NAME for a whole one, or "
            "^NAME for any other, several with commas"
        )
    return [addresses[interface] for interface in found]


def _address_of(addresses: list[str], master: str) -> str:
    """Return the address among ``addresses`` that reaches ``master``, or the first."""
    if len(addresses) > 1 and master:
        try:
            source = "127.0.0.1" if _is_loopback(master) else _source_towards(master)
        except OSError:
            return addresses[0]
        if source in addresses:
            return source
    return addresses[0]


def _addresses() -> dict[str, str]:
    """Return the interfaces of this machine that have an IPv4 address, in the kernel's order."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                reply = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:  # it has none
                continue
            found[name] = socket.inet_ntoa(reply[20:24])
    return found
