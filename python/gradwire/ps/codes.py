"""The code by which servers keep each other's state: its symbols, and sums of them.

The core computes (``collectives/src/redundancy`` of the sources); here are its numbers of symbols
and its memory.
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch

from gradwire import build, native
from gradwire.environment import Environment


@dataclass(frozen=True)
class Factors:
    """The factors by which some symbols are sums of others: a row per target."""

    rows: tuple[bytes, ...]

    @property
    def used(self) -> list[int]:
        """Positions of the sources that any target needs."""
        if not self.rows:
            return []
        return [at for at, column in enumerate(zip(*self.rows, strict=True)) if any(column)]

    def keep(self, columns: Sequence[int]) -> Factors:
        """Return the factors of some sources alone."""
        return Factors(tuple(bytes(row[at] for at in columns) for row in self.rows))

    def combine(self, sources: Sequence[torch.Tensor], targets: Sequence[torch.Tensor]) -> None:
        """Fill the targets; all symbols are rows of bytes of one length."""
        if not targets:
            return
        places = [(ctypes.c_void_p * len(some))() for some in (sources, targets)]
        length = targets[0].numel()
        for place, symbols in zip(places, (sources, targets), strict=True):
            for at, symbol in enumerate(symbols):
                if symbol.numel() != length or not symbol.is_contiguous():
                    raise ValueError(
                        f"gradwire.ps: a symbol of {symbol.numel()} bytes beside {length}"
                    )
                place[at] = symbol.data_ptr()
        combination = native.Combination(
            b"".join(self.rows), places[0], len(sources), places[1], len(targets), length
        )
        error = ctypes.create_string_buffer(native.ERROR_BYTES)
        if _core().gw_code_combine(ctypes.byref(combination), error, len(error)) < 0:
            raise RuntimeError(f"gradwire.ps: {error.value.decode()}")


class Code:
    """The code of a job, over ``servers`` servers.

    Any ``needed`` of them hold everything, and ``rebuilders`` rebuild a lost one. Each stores
    ``stored_symbols`` symbols, of which the first ``data_symbols`` are its own state.
    """

    def __init__(self, handle: ctypes.c_void_p, shape: native.CodeShape) -> None:
        """Take over a code of the core."""
        self._handle = handle
        self.servers: int = shape.servers
        self.needed: int = shape.needed
        self.rebuilders: int = shape.rebuilders
        self.data_symbols: int = shape.data_symbols
        self.stored_symbols: int = shape.stored_symbols
        self.sent_symbols: int = shape.sent_symbols
        self.snapshot_every: int = shape.snapshot_every
        weakref.finalize(self, _core().gw_code_free, handle)

    @classmethod
    def of_job(cls) -> Code | None:
        """Return the code of this process's job; ``None`` if the job asks for no redundancy."""
        path = Environment.read().job
        handle, shape = ctypes.c_void_p(), native.CodeShape()
        error = ctypes.create_string_buffer(native.ERROR_BYTES)
        places = (ctypes.byref(handle), ctypes.byref(shape))
        found = _core().gw_code_open(path.encode() if path else None, *places, error, len(error))
        if found < 0:
            raise ValueError(f"gradwire.ps: {error.value.decode()}")
        return cls(handle, shape) if found else None

    def stored(self, server: int) -> range:
        """Return the symbols that a server stores, its own state first."""
        return range(server * self.stored_symbols, (server + 1) * self.stored_symbols)

    def data(self, server: int) -> range:
        """Return the symbols of a server's own state."""
        return self.stored(server)[: self.data_symbols]

    def sent(self, rebuilder: int, rebuilt: int) -> range:
        """Return the symbols that ``rebuilder`` sends to a server that is rebuilt."""
        pair = rebuilder * self.servers + rebuilt
        first = self.servers * self.stored_symbols + pair * self.sent_symbols
        return range(first, first + self.sent_symbols)

    def all_data(self) -> list[int]:
        """Return the symbols of all servers' own state."""
        return list(chain.from_iterable(self.data(server) for server in range(self.servers)))

    def express(self, targets: Sequence[int], sources: Sequence[int]) -> Factors:
        """Return the factors by which ``targets`` follow from ``sources``.

        Raises:
            ValueError: the sources do not determine a target.
        """
        lists = [(ctypes.c_uint32 * len(some))(*some) for some in (targets, sources)]
        symbols = native.Symbols(lists[0], len(targets), lists[1], len(sources))
        factors = ctypes.create_string_buffer(max(1, len(targets) * len(sources)))
        error = ctypes.create_string_buffer(native.ERROR_BYTES)
        asked = (self._handle, ctypes.byref(symbols), factors)
        if _core().gw_code_express(*asked, error, len(error)) < 0:
            raise ValueError(f"gradwire.ps: {error.value.decode()}")
        width, raw = len(sources), factors.raw
        rows = (raw[at * width : (at + 1) * width] for at in range(len(targets)))
        return Factors(tuple(rows))


@functools.cache
def _core() -> ctypes.CDLL:
    return native.library(build.core_library())
