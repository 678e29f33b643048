"""The C interface of the core (``gradwire.h``) by ctypes, for machines without a compiler.

Structures have the header's names and order of fields; a size that differs is refused at loading.
Not here: the methods that PyTorch calls (``fallback.py``).
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    c_char_p,
    c_double,
    c_int,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path

ERROR_BYTES = 2048

Done = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_char_p)
"""``gw_done``: called once for an accepted operation, on a thread of the core or of a waiter."""


Line = ctypes.CFUNCTYPE(None, c_int, c_char_p)
"""``gw_line``: takes a line of the log, on a thread of the core."""


class Layer(ctypes.Structure):
    """``gw_layer``."""

    _fields_ = (("offset_bytes", c_uint64), ("layer", c_uint32), ("reserved", c_uint32))


class Operation(ctypes.Structure):
    """``gw_operation``."""

    _fields_ = (
        ("kind", c_uint32),
        ("dtype", c_uint32),
        ("reduce", c_uint32),
        ("root", c_uint32),
        ("buffer", c_void_p),
        ("bytes", c_size_t),
        ("input", c_void_p),
        ("input_bytes", c_size_t),
        ("group", c_uint32),
        ("ranks", POINTER(c_uint32)),
        ("ranks_len", c_size_t),
        ("sequence", c_uint32),
        ("tolerance", c_double),
        ("step", c_uint32),
        ("layer_count", c_uint32),
        ("layers", POINTER(Layer)),
        ("layers_len", c_size_t),
        ("tensor_key", c_uint64),
        ("timeout_seconds", c_double),
        ("tag", c_uint32),
        ("holes", c_uint32),
        ("input_splits", POINTER(c_uint64)),
        ("output_splits", POINTER(c_uint64)),
        ("codec", c_uint32),
        ("codec_share", c_double),
    )


class Counters(ctypes.Structure):
    """``gw_counters``."""

    _fields_ = tuple(
        (name, c_uint64)
        for name in (
            "sent_segments",
            "lost_segments",
            "repaired_segments",
            "received_segments",
            "ledger_lost_segments",
            "malformed_packets",
            "faults_dropped",
            "kernel_drops",
            "sent_bytes",
            "received_bytes",
        )
    )


class Credentials(ctypes.Structure):
    """``gw_credentials``."""

    _fields_ = tuple((name, c_char_p) for name in ("token", "certificate", "key", "authority"))


class Opening(ctypes.Structure):
    """``gw_opening``."""

    _fields_ = (
        ("job_path", c_char_p),
        ("rank", c_uint32),
        ("world", c_uint32),
        ("local_rank", c_int32),
        ("bind_host", c_char_p),
        ("trace_folder", c_char_p),
        ("log_level", c_char_p),
        ("credentials", Credentials),
        ("port", c_uint32),
    )


class Schedule(ctypes.Structure):
    """``gw_schedule``."""

    _fields_ = tuple((name, c_uint64) for name in ("chunk", "credit"))


class CodeShape(ctypes.Structure):
    """``gw_code_shape``."""

    _fields_ = tuple(
        (name, c_uint32)
        for name in (
            "servers",
            "needed",
            "rebuilders",
            "data_symbols",
            "stored_symbols",
            "sent_symbols",
            "snapshot_every",
        )
    )


class Symbols(ctypes.Structure):
    """``gw_symbols``."""

    _fields_ = (
        ("targets", POINTER(c_uint32)),
        ("targets_len", c_size_t),
        ("sources", POINTER(c_uint32)),
        ("sources_len", c_size_t),
    )


class Combination(ctypes.Structure):
    """``gw_combination``."""

    _fields_ = (
        ("factors", c_char_p),
        ("inputs", POINTER(c_void_p)),
        ("inputs_len", c_size_t),
        ("outputs", POINTER(c_void_p)),
        ("outputs_len", c_size_t),
        ("bytes", c_size_t),
    )


_ERROR = (c_char_p, c_size_t)
_FUNCTIONS = {
    "gw_log_to": (None, (Line,)),
    "gw_open": (c_void_p, (POINTER(Opening), *_ERROR)),
    "gw_rendezvous": (c_size_t, (c_void_p, c_char_p, c_size_t)),
    "gw_join": (c_int, (c_void_p, c_char_p, c_double, *_ERROR)),
    "gw_submit": (c_void_p, (c_void_p, POINTER(Operation), Done, c_void_p, *_ERROR)),
    "gw_wait": (c_int, (c_void_p, c_void_p, c_double, *_ERROR)),
    "gw_ticket_free": (None, (c_void_p,)),
    "gw_counters_read": (None, (c_void_p, POINTER(Counters))),
    "gw_job_tolerance": (c_double, (c_void_p,)),
    "gw_job_json": (c_size_t, (c_void_p, c_char_p, c_size_t)),
    "gw_trace_json": (c_void_p, (c_void_p,)),
    "gw_text_free": (None, (c_void_p,)),
    "gw_residual_take": (c_int, (c_void_p, c_uint64, c_uint32, c_void_p, c_size_t, *_ERROR)),
    "gw_residual_scale": (c_int, (c_void_p, c_uint64, c_double, *_ERROR)),
    "gw_tune": (c_int, (c_void_p, c_double, POINTER(Schedule), *_ERROR)),
    "gw_reschedule": (c_int, (c_void_p, POINTER(Schedule), *_ERROR)),
    "gw_takes_operations": (c_int, (c_void_p,)),
    "gw_abort": (None, (c_void_p, c_char_p)),
    "gw_end_group": (c_int, (c_void_p, c_uint32, *_ERROR)),
    "gw_code_open": (c_int, (c_char_p, POINTER(c_void_p), POINTER(CodeShape), *_ERROR)),
    "gw_code_express": (c_int, (c_void_p, POINTER(Symbols), c_char_p, *_ERROR)),
    "gw_code_combine": (c_int, (POINTER(Combination), *_ERROR)),
    "gw_code_free": (None, (c_void_p,)),
    "gw_close": (None, (c_void_p, c_double)),
    "gw_operation_bytes": (c_size_t, ()),
}


def library(path: Path) -> ctypes.CDLL:
    """Load the core from ``path``; every call into it gives up the interpreter lock.

    Raises:
        OSError: the file is no library, lacks a function, or was built from another header.
    """
    core = ctypes.CDLL(str(path))
    for name, (result, arguments) in _FUNCTIONS.items():
        try:
            function = getattr(core, name)
        except AttributeError as error:
            raise OSError(f"gradwire: {path} has no {name}: reinstall gradwire") from error
        function.restype = result
        function.argtypes = arguments
    if core.gw_operation_bytes() != ctypes.sizeof(Operation):
        raise OSError(
            f"gradwire: {path} has operations of {core.gw_operation_bytes()} bytes, this Python "
            f"package of {ctypes.sizeof(Operation)}: they are of different versions; reinstall "
            "gradwire"
        )
    return core
