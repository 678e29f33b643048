"""Plays NCCL towards the profiler: one rank of two has an all-reduce of two messages each way.

Arguments: the rank and the version of the interface. GRADWIRE_EVENTS names the folder.
"""

import ctypes
import os
import sys
import time
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint8, c_uint64, c_void_p

from gradwire import nccl

RANK, VERSION = int(sys.argv[1]), int(sys.argv[2])
COLLECTIVE, OPERATION, STEP, GROUP_API = 2, 8, 16, 256
GPU_WAIT, SEND_WAIT, RECEIVE_WAIT, RECEIVED = 8, 9, 10, 11
COUNT, STEPS, MESSAGE_BYTES = 1 << 20, 2, 512 << 10
COMMUNICATOR = 0x1234_5678_9ABC_DEF0


class Table(ctypes.Structure):
    """``ncclProfiler_vN_t``."""

    _fields_ = tuple(
        (name, c_void_p) for name in ("name", "init", "start", "stop", "record", "finalize")
    )


class Collective(ctypes.Structure):
    """The part of a descriptor that collectives have."""

    _fields_ = (
        ("seqNumber", c_uint64),
        ("func", c_char_p),
        ("sendBuff", c_void_p),
        ("recvBuff", c_void_p),
        ("count", c_size_t),
        ("root", c_int),
        ("datatype", c_char_p),
        ("nChannels", c_uint8),
        ("nWarps", c_uint8),
        ("algo", c_char_p),
        ("proto", c_char_p),
        ("parentGroup", c_void_p),
    )


class Operation(ctypes.Structure):
    """The part that proxy operations have."""

    _fields_ = (
        ("pid", c_int),
        ("channelId", c_uint8),
        ("peer", c_int),
        ("nSteps", c_int),
        ("chunkSize", c_int),
        ("isSend", c_int),
    )


class Body(ctypes.Union):
    """The union of a descriptor, as far as it is used here."""

    _fields_ = (("coll", Collective), ("proxyOp", Operation), ("step", c_int))


class Descriptor(ctypes.Structure):
    """``ncclProfilerEventDescr_vN_t``: version 4 has a kind of one byte."""

    _fields_ = (
        ("type", c_uint8 if min(nccl.PROFILER_VERSIONS) == VERSION else c_uint64),
        ("parentObj", c_void_p),
        ("rank", c_int),
        ("body", Body),
    )


class Profiler:
    """The plugin's profiler, called as NCCL does."""

    def __init__(self) -> None:
        """Load the symbol, and begin a communicator of two ranks."""
        loaded = ctypes.CDLL(str(nccl.library()))
        self.table = Table.in_dll(loaded, f"ncclProfiler_v{VERSION}")
        self.context, self.mask = c_void_p(), c_int(-1)
        name, number, mask = c_char_p(b"world"), c_uint64(COMMUNICATOR), byref(self.mask)
        is_first = min(nccl.PROFILER_VERSIONS) == VERSION
        before = (mask, name, number) if is_first else (number, mask, name)
        self.call("init", byref(self.context), *before, c_int(2), c_int(2), c_int(RANK), None)

    def call(self, function: str, *arguments: object) -> None:
        """Call a function of the table; it must succeed."""
        code = ctypes.CFUNCTYPE(c_int)(getattr(self.table, function))
        kinds = [c_void_p if one is None else type(one) for one in arguments]
        kinds = [c_void_p if kind is type(byref(c_int())) else kind for kind in kinds]
        code = ctypes.cast(code, ctypes.CFUNCTYPE(c_int, *kinds))
        if result := code(*arguments):
            sys.exit(f"{function} returned {result}")

    def start(self, kind: int, parent: c_void_p | None, **body: object) -> c_void_p:
        """Start an event with a part of a descriptor; return its handle."""
        descriptor = Descriptor(type=kind, parentObj=parent, rank=RANK, body=Body(**body))
        handle = c_void_p()
        self.call("start", self.context, byref(handle), byref(descriptor))
        return handle

    def record(self, handle: c_void_p, state: int, length: int | None = None) -> None:
        """Tell a state, perhaps with a length."""
        size = None if length is None else byref(c_size_t(length))
        self.call("record", handle, c_int(state), size)


def messages(profiler: Profiler, operation: c_void_p, states: list[tuple[int, int | None]]) -> None:
    """Let the messages of an operation pass."""
    for step in range(STEPS):
        handle = profiler.start(STEP, operation, step=step)
        for state, length in states:
            profiler.record(handle, state, length)
            time.sleep(0.001)
        profiler.call("stop", handle)
    profiler.call("stop", operation)


def main() -> None:
    """Record one all-reduce."""
    profiler = Profiler()
    if not profiler.context.value:
        sys.exit(f"nothing is recorded: the mask is {profiler.mask.value}")
    if profiler.start(GROUP_API, None).value:
        sys.exit("an event that was not asked for has a handle")
    collective = profiler.start(
        COLLECTIVE,
        None,
        coll=Collective(
            seqNumber=4, func=b"AllReduce", count=COUNT, datatype=b"ncclFloat32", nChannels=1
        ),
    )
    profiler.call("stop", collective)
    peer = {"pid": os.getpid(), "channelId": 1, "peer": 1 - RANK, "nSteps": STEPS}
    out = profiler.start(OPERATION, collective, proxyOp=Operation(**peer, isSend=1))
    messages(profiler, out, [(GPU_WAIT, None), (SEND_WAIT, MESSAGE_BYTES)])
    into = profiler.start(OPERATION, collective, proxyOp=Operation(**peer, isSend=0))
    messages(profiler, into, [(RECEIVE_WAIT, None), (RECEIVED, MESSAGE_BYTES)])
    foreign = Operation(**(peer | {"pid": 1}), isSend=1)
    if profiler.start(OPERATION, collective, proxyOp=foreign).value:
        sys.exit("an operation of another process has a handle")
    profiler.call("finalize", profiler.context)


if __name__ == "__main__":
    main()
