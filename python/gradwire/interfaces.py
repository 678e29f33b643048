"""Which address of this machine a rank binds its sockets to."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct

_SIOCGIFADDR = 0x8915
"""Linux ioctl: the IPv4 address of an interface (netdevice(7))."""

_ELSEWHERE = "192.0.2.1"
"""An address that is nobody's (RFC 5737): a route to it is the default route."""


def bind_address(interface: str, master: str) -> str:
    """Choose the local address: the named interface's, or the one that reaches ``master``.

    A loopback master means that every rank is on this machine. Nothing is sent.
    """
    if interface:
        return _address_of(interface)
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
            if target == _ELSEWHERE:  # no default route: this machine is on its own
                return "127.0.0.1"
            raise
        return probe.getsockname()[0]


def _address_of(interface: str) -> str:
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            reply = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
        except OSError as error:
            known = ", ".join(name for _, name in socket.if_nameindex())
            raise ValueError(
                f"gradwire: GRADWIRE_IFNAME={interface!r} has no IPv4 address ({error.strerror}); "
                f"this machine has {known}"
            ) from error
    return socket.inet_ntoa(reply[20:24])
