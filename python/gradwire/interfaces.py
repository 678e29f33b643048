"""Chooses the address of this machine to which a rank binds its sockets."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from pathlib import Path

ELSEWHERE = "192.0.2.1"
"""An address that belongs to no host (RFC 5737): a route to it is the default route."""

_SIOCGIFADDR = 0x8915
"""Linux ioctl: the IPv4 address of an interface (netdevice(7))."""

_IPV6_ADDRESSES = Path("/proc/net/if_inet6")
"""Address, index, prefix length, scope, flags and name of every IPv6 address, in hexadecimal."""

_IPV6_LINK_SCOPE = "20"
_LOOPBACK = "127.0.0.1"

_EXACT_ONLY = "GLOO_SOCKET_IFNAME"
"""Gloo expects whole names, NCCL the beginnings of names."""


def network() -> str:
    """Name the network that this process sees: equal if one loopback serves both processes.

    Containers of one host have networks of their own.
    """
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{kernel}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:  # without /proc
        return socket.gethostname()


def bind_address(interface: tuple[str, str], master: str) -> str:
    """Choose the local address: a named one or a named interface's, or one that reaches ``master``.

    ``interface`` is a variable and its value: an address of this machine, or interfaces in NCCL's
    notation, which is comma-separated beginnings of their names. A leading ``=`` means whole names;
    a leading ``^`` means any interface but these. Of several interfaces, the one that reaches
    ``master`` is taken, otherwise the first. A loopback master means that every rank is on this
    machine. No packet is sent.
    """
    variable, value = interface
    if _is_address(value):
        return _own(variable, value)
    if value:
        return _address_of(_wanted(variable, value), master)
    if is_loopback(master):
        return _loopback_of(master)
    try:
        return _source_towards(master)
    except OSError as error:
        raise ValueError(
            f"gradwire: no address of this machine reaches MASTER_ADDR={master!r} ({error}); "
            "correct MASTER_ADDR, or give GRADWIRE_IFNAME a network interface or an address of "
            f"this machine: {_listed(_addresses())}"
        ) from error


def is_loopback(host: str) -> bool:
    """Whether ``host`` means this machine; an empty one does."""
    if host in ("", "localhost"):
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback


def _loopback_of(master: str) -> str:
    return master if _is_address(master) else _LOOPBACK


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _own(variable: str, address: str) -> str:
    """Return ``address`` if it is one of this machine."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError as error:
            raise ValueError(
                f"gradwire: {variable}={address!r} is not an address of this machine ({error}); it "
                f"has {_listed(_addresses())}"
            ) from error
    return address


def _source_towards(host: str) -> str:
    """Return the address from which packets to ``host`` leave."""
    found = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)
    family, _, _, _, place = min(found, key=lambda one: one[0] != socket.AF_INET)
    if ipaddress.ip_address(place[0]).is_loopback:
        # A host's own name often resolves to 127.0.1.1, which no other machine can reach.
        family, place = socket.AF_INET, (ELSEWHERE, 9)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(place)
        except OSError:
            if place[0] != ELSEWHERE:
                raise
            return _without_default_route()
        return probe.getsockname()[0]


def _without_default_route() -> str:
    """Return the first address that is not loopback, or else that of loopback."""
    known = [address for found in _addresses().values() for address in found]
    return next((address for address in known if not is_loopback(address)), _LOOPBACK)


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
        raise ValueError(
            f"gradwire: {variable}={value!r} fits no interface with an address; this machine has "
            f"{_listed(addresses)}; write the beginning of a name, =NAME for a whole one, ^NAME "
            "for any other, several with commas, or an address"
        )
    return [address for interface in found for address in addresses[interface]]


def _address_of(addresses: list[str], master: str) -> str:
    """Return the address among ``addresses`` that reaches ``master``, or the first."""
    if len(addresses) > 1 and master:
        try:
            source = _loopback_of(master) if is_loopback(master) else _source_towards(master)
        except OSError:
            return addresses[0]
        if source in addresses:
            return source
    return addresses[0]


def _listed(addresses: dict[str, list[str]]) -> str:
    return ", ".join(f"{name} ({', '.join(found)})" for name, found in addresses.items())


def _addresses() -> dict[str, list[str]]:
    """Return the addresses of each interface that has one, IPv4 first, in the kernel's order."""
    found: dict[str, list[str]] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                reply = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:  # it has none
                continue
            found[name] = [socket.inet_ntoa(reply[20:24])]
    for name, address in _ipv6_addresses():
        found.setdefault(name, []).append(address)
    return found


def _ipv6_addresses() -> list[tuple[str, str]]:
    """Return interfaces and their IPv6 addresses, without those that need a scope."""
    try:
        lines = [line.split() for line in _IPV6_ADDRESSES.read_text().splitlines()]
    except OSError:  # IPv6 is switched off
        return []
    return [
        (name, str(ipaddress.IPv6Address(bytes.fromhex(address))))
        for address, _, _, scope, _, name in lines
        if scope != _IPV6_LINK_SCOPE
    ]
