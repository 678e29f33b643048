"""gradwire as a net plugin of NCCL: the environment to set, and NCCL's side of its interface.

``python -m gradwire nccl`` prints the environment. :class:`Net` calls the plugin as NCCL does, by
the symbol of any version; :func:`check` sends messages through two connections of this process.
Neither needs NCCL or a GPU.
"""

from __future__ import annotations

import ctypes
import shlex
import time
from collections.abc import Callable
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_long, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradwire import build

VERSIONS = (8, 9, 10, 11, 12)
"""Versions of NCCL's net interface that the plugin has: NCCL 2.20 and later."""

TUNER_VERSIONS = (3, 4, 5, 6)
"""Versions of NCCL's tuner interface that the plugin has."""

PROFILER_VERSIONS = (4, 5, 6)
"""Versions of NCCL's profiler interface that the plugin has: NCCL 2.27 and later."""

HANDLE_BYTES = 128
REQUESTS = 32
"""Requests of one connection that may be open."""

_COMMUNICATOR_SINCE = 11
_PROFILER_SINCE = 10
_WIDE_SIZES_SINCE = 9
_CHECK_SECONDS = 10.0
_CHECK_BYTES = 1 << 20

Handle = ctypes.Array[c_char]
Memory = ctypes.Array[c_char]
Logger = ctypes.CFUNCTYPE(None, c_int, c_long, c_char_p, c_int, c_char_p, c_char_p)
"""NCCL's logger. The plugin formats by itself and gives one string."""

_PLACE = POINTER(c_void_p)


def library() -> Path:
    """Return the plugin's file, which the package has beside its core."""
    return build.core_library()


def variables() -> dict[str, str]:
    """Return the environment that makes NCCL use the plugin.

    NCCL falls back to its own sockets when a plugin fails, unless ``NCCL_NET`` names the plugin.
    """
    return {
        "NCCL_NET_PLUGIN": str(library()),
        "NCCL_NET": "gradwire",
        "NCCL_PROTO": "Simple",
        "NCCL_NET_PLUGIN_REF_COUNT": "1",
    }


def exports() -> str:
    """Return the environment as commands of a shell."""
    lines = (f"export {name}={shlex.quote(value)}" for name, value in variables().items())
    return "\n".join(lines)


class NetError(RuntimeError):
    """A call of the plugin has failed; ``result`` is NCCL's number of the error."""

    def __init__(self, call: str, result: int, said: str) -> None:
        """Keep the number beside the words."""
        super().__init__(f"gradwire: {call} returned {result}: {said}")
        self.result = result


class _VirtualDevice(ctypes.Structure):
    _fields_ = (("ndevs", c_int), ("devs", c_int * 4))


class _WideVirtualDevice(ctypes.Structure):
    _fields_ = (("ndevs", c_int), ("devs", c_int * 8))


def _properties_of(version: int) -> type[ctypes.Structure]:
    """Return ``ncclNetProperties_vN_t``."""
    fields: list[tuple[str, Any]] = [("name", c_char_p), ("pciPath", c_char_p), ("guid", c_uint64)]
    numbers = ["ptrSupport", "regIsGlobal", "forceFlush", "speed", "port", "latency", "maxComms"]
    numbers += ["maxRecvs", "netDeviceType", "netDeviceVersion"]
    if version < _WIDE_SIZES_SINCE:
        numbers.remove("forceFlush")
    kinds = {"latency": ctypes.c_float}
    fields += [(name, kinds.get(name, c_int)) for name in numbers]
    if version >= _WIDE_SIZES_SINCE:
        device = _VirtualDevice if version < VERSIONS[-1] else _WideVirtualDevice
        fields += [("vProps", device), ("maxP2pBytes", c_size_t), ("maxCollBytes", c_size_t)]
    if version >= _COMMUNICATOR_SINCE:
        fields.append(("maxMultiRequestSize", c_int))
    if version >= VERSIONS[-1]:
        fields += [("railId", ctypes.c_int16), ("planeId", ctypes.c_int16)]
    return type(f"Properties{version}", (ctypes.Structure,), {"_fields_": tuple(fields)})


def _signatures(version: int) -> dict[str, tuple[Any, ...]]:
    """Return the functions of ``ncclNet_vN_t`` in order, with the types of their arguments."""
    has_communicator, has_profiler = version >= _COMMUNICATOR_SINCE, version >= _PROFILER_SINCE
    communicator = (c_void_p,) if has_communicator else ()
    config = (c_void_p,) if version == _PROFILER_SINCE else ()
    size = c_size_t if version >= _WIDE_SIZES_SINCE else c_int
    phandle = (c_void_p,) if has_profiler else ()
    init = (_PLACE, c_uint64, c_void_p) if has_communicator else ()
    registered = (c_void_p, c_void_p, c_size_t, c_int)
    many = (POINTER(c_void_p), POINTER(size), POINTER(c_int), POINTER(c_void_p))
    common = {
        "init": (*init, Logger, *((c_void_p,) if has_profiler else ())),
        "devices": (POINTER(c_int),),
        "getProperties": (c_int, c_void_p),
        "listen": (*communicator, c_int, c_void_p, _PLACE),
        "connect": (*communicator, c_int, *config, c_void_p, _PLACE, _PLACE),
        "accept": (c_void_p, _PLACE, _PLACE),
        "regMr": (*registered, _PLACE),
        "regMrDmaBuf": (*registered, c_uint64, c_int, _PLACE),
        "deregMr": (c_void_p, c_void_p),
        "isend": (c_void_p, c_void_p, size, c_int, c_void_p, *phandle, _PLACE),
        "irecv": (c_void_p, c_int, *many, *phandle, _PLACE),
        "iflush": (c_void_p, c_int, _PLACE, POINTER(c_int), _PLACE, _PLACE),
        "test": (c_void_p, POINTER(c_int), POINTER(c_int)),
        "closeSend": (c_void_p,),
        "closeRecv": (c_void_p,),
        "closeListen": (c_void_p,),
        "getDeviceMr": (c_void_p, c_void_p, _PLACE),
        "irecvConsumed": (c_void_p, c_int, c_void_p),
    }
    if version >= _WIDE_SIZES_SINCE:
        common["makeVDevice"] = (POINTER(c_int), c_void_p)
    if has_communicator:
        common["finalize"] = (c_void_p,)
        common["setNetAttr"] = (c_void_p, c_void_p)
    return common


class Net:
    """The plugin as NCCL sees it, by the symbol of one version.

    ``log`` takes each line that the plugin writes into NCCL's log, with its level.
    """

    def __init__(
        self, path: Path, version: int, log: Callable[[int, str], None] | None = None
    ) -> None:
        """Load the plugin.

        Raises:
            OSError: the file is no library.
            ValueError: it has no such symbol.
        """
        self.version = version
        self._said = ""
        self._log = log
        signatures = _signatures(version)
        functions = [(name, c_void_p) for name in signatures]
        fields = (("name", c_char_p), *functions)
        table = type(f"Net{version}", (ctypes.Structure,), {"_fields_": fields})
        found = table.in_dll(ctypes.CDLL(str(path)), f"ncclNetPlugin_v{version}")
        self.name = found.name.decode()
        self._functions = {
            name: ctypes.CFUNCTYPE(c_int, *arguments)(address)
            for name, arguments in signatures.items()
            if (address := getattr(found, name))
        }
        self._logger = Logger(self._take)
        self._communicator = c_void_p()

    def _take(self, level: int, _flags: int, _file: bytes, _line: int, *text: bytes) -> None:
        self._said = text[-1].decode(errors="replace")
        if self._log:
            self._log(level, self._said)

    def _call(self, name: str, *arguments: object) -> None:
        result = self._functions[name](*arguments)
        if result:
            raise NetError(name, result, self._said)

    def has(self, name: str) -> bool:
        """Return whether the table has this function: some may be null."""
        return name in self._functions

    def _communicator_if_any(self) -> tuple[c_void_p, ...]:
        return (self._communicator,) if self.version >= _COMMUNICATOR_SINCE else ()

    def init(self) -> None:
        """Begin a communicator."""
        before = (byref(self._communicator), 1, None) if self.version >= _COMMUNICATOR_SINCE else ()
        after = (None,) if self.version >= _PROFILER_SINCE else ()
        self._call("init", *before, self._logger, *after)

    def finalize(self) -> None:
        """End a communicator, where the version can."""
        if self.has("finalize"):
            self._call("finalize", self._communicator)

    def devices(self) -> int:
        """Return how many devices there are."""
        count = c_int()
        self._call("devices", byref(count))
        return count.value

    def properties(self, device: int = 0) -> ctypes.Structure:
        """Return the properties of a device, by NCCL's names."""
        found = _properties_of(self.version)()
        self._call("getProperties", device, byref(found))
        return found

    def listen(self) -> tuple[Handle, c_void_p]:
        """Return a handle for the other side, and the object that accepts it."""
        handle, comm = ctypes.create_string_buffer(HANDLE_BYTES), c_void_p()
        self._call("listen", *self._communicator_if_any(), 0, handle, byref(comm))
        return handle, comm

    def connect(self, handle: Handle) -> c_void_p | None:
        """Return the sending end of a connection; ``None``: ask again, with the same handle."""
        comm, device = c_void_p(), c_void_p()
        config = (None,) if self.version == _PROFILER_SINCE else ()
        places = (byref(comm), byref(device))
        self._call("connect", *self._communicator_if_any(), 0, *config, handle, *places)
        return comm if comm.value else None

    def accept(self, listening: c_void_p) -> c_void_p | None:
        """Return the receiving end of a connection, or ``None`` until the peer has connected."""
        comm, device = c_void_p(), c_void_p()
        self._call("accept", listening, byref(comm), byref(device))
        return comm if comm.value else None

    def register(self, comm: c_void_p, memory: Memory, kind: int = 1) -> c_void_p:
        """Register memory of a kind: 1 is that of the host."""
        handle = c_void_p()
        self._call("regMr", comm, memory, ctypes.sizeof(memory), kind, byref(handle))
        return handle

    def isend(self, comm: c_void_p, memory: Memory, size: int) -> c_void_p | None:
        """Send the first bytes of memory, or return ``None`` while too many requests are open."""
        request = c_void_p()
        phandle = (None,) if self.version >= _PROFILER_SINCE else ()
        self._call("isend", comm, memory, size, 0, None, *phandle, byref(request))
        return request if request.value else None

    def irecv(self, comm: c_void_p, memory: Memory, room: int, count: int = 1) -> c_void_p | None:
        """Receive into memory, which has room for this many bytes."""
        request = c_void_p()
        size = c_size_t if self.version >= _WIDE_SIZES_SINCE else c_int
        places = (c_void_p * count)(*[ctypes.addressof(memory)] * count)
        many = (places, (size * count)(*[room] * count), (c_int * count)(), None)
        phandles = (None,) if self.version >= _PROFILER_SINCE else ()
        self._call("irecv", comm, count, *many, *phandles, byref(request))
        return request if request.value else None

    def test(self, request: c_void_p) -> int | None:
        """Return the length of a message that is done; ``None``: it is not."""
        done, size = c_int(), c_int()
        self._call("test", request, byref(done), byref(size))
        return size.value if done.value else None

    def close(self, comm: c_void_p, end: str) -> None:
        """Close an end: ``Send``, ``Recv`` or ``Listen``."""
        self._call(f"close{end}", comm)


@dataclass(frozen=True)
class Finding:
    """The outcome of :func:`check`: a line for people, and whether all is well."""

    ok: bool
    found: str


def check(path: Path | None = None) -> Finding:
    """Load the plugin, look for all symbols, and send messages through two connections."""
    path = path or library()
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        return Finding(False, f"{path} cannot be loaded: {error}")
    symbols = [f"ncclNetPlugin_v{version}" for version in VERSIONS]
    symbols += [f"ncclTunerPlugin_v{version}" for version in TUNER_VERSIONS]
    symbols += [f"ncclProfiler_v{version}" for version in PROFILER_VERSIONS]
    missing = [symbol for symbol in symbols if not hasattr(loaded, symbol)]
    if missing:
        return Finding(False, f"{path} has no {', '.join(missing)}: reinstall gradwire")
    lines: list[str] = []
    net = Net(path, VERSIONS[-1], lambda _level, line: lines.append(line))
    try:
        net.init()
        for _ in range(2):
            _pass_messages(net)
        net.finalize()
    except (NetError, TimeoutError) as error:
        return Finding(False, str(error))
    loaded_line = next((line for line in lines if "is loaded" in line), "gradwire is loaded")
    return Finding(True, f"{loaded_line.partition(': ')[2] or loaded_line}; {path}")


def _pass_messages(net: Net) -> None:
    """Open a connection of this process with itself, and compare what arrives."""
    handle, listening = net.listen()
    sending, receiving = connected(net, handle, listening)
    memory = (c_char * _CHECK_BYTES)(*bytes(range(256)))
    room = (c_char * (2 * _CHECK_BYTES))()
    requests = [net.irecv(receiving, room, len(room)), net.isend(sending, memory, len(memory))]
    lengths = [finished(net, request) for request in requests if request]
    if lengths != [_CHECK_BYTES, _CHECK_BYTES] or room.raw[:_CHECK_BYTES] != memory.raw:
        raise NetError("test", 0, f"a message of {_CHECK_BYTES} bytes arrived as {lengths}")
    for comm, end in ((sending, "Send"), (receiving, "Recv"), (listening, "Listen")):
        net.close(comm, end)


def connected(net: Net, handle: Handle, listening: c_void_p) -> tuple[c_void_p, c_void_p]:
    """Connect this process with itself; return the sending and the receiving end."""
    sending, receiving = None, None
    until = time.monotonic() + _CHECK_SECONDS
    while sending is None or receiving is None:
        sending = sending or net.connect(handle)
        receiving = receiving or net.accept(listening)
        if time.monotonic() > until:
            raise TimeoutError(f"no connection was made within {_CHECK_SECONDS:.0f} s")
    return sending, receiving


def finished(net: Net, request: c_void_p, seconds: float = _CHECK_SECONDS) -> int:
    """Test a request until it is done, and return the length of its message."""
    until = time.monotonic() + seconds
    while (length := net.test(request)) is None:
        if time.monotonic() > until:
            raise TimeoutError(f"a message has not arrived within {seconds:.0f} s")
    return length
