"""Where lines go: to Python's ``logging`` if the program uses it, else to standard error.

A program uses it if the logger ``gradwire``, or one above it, has a handler, as
``logging.basicConfig()`` gives the root one. ``GRADWIRE_LOG`` says which lines there are at all.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import sys
from pathlib import Path

from gradwire import native
from gradwire.environment import Environment

LOGGER = logging.getLogger("gradwire")
_LEVELS = {"warn": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}
_routed: list[ctypes.CDLL] = []
"""The core whose lines go to ``logging``, if any do."""


def say(level: int, text: str) -> None:
    """Write a line of this package's own; ``level`` is one of ``logging``."""
    if LOGGER.hasHandlers():
        LOGGER.log(level, text)
    elif level >= _LEVELS.get(Environment.read().log.lower() or "info", 0):
        print(f"gradwire: {text}", file=sys.stderr, flush=True)


def route(library: Path) -> None:
    """Give the lines of the core to ``logging``, from now on, if the program uses it."""
    if LOGGER.hasHandlers() and not _routed:
        core = native.library(library)
        core.gw_log_to(_take)
        _routed.append(core)


@native.Line
def _take(level: int, text: bytes) -> None:
    LOGGER.log(level, text.decode(errors="replace"))


_process = os.getpid()


@atexit.register
def _end() -> None:
    """Take the lines back before the interpreter ends; a fork has not taken them."""
    for core in _routed:
        if os.getpid() == _process:
            core.gw_log_to(native.Line())
