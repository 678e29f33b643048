"""The progress of the study, on standard error."""

from __future__ import annotations

import sys
import time

from gradwire.study.records import Record


class Progress:
    """Reports each cell as it ends, and the remaining time."""

    def __init__(self, cells: int, missing: int) -> None:
        """Begin, with ``missing`` of ``cells`` to be run."""
        self._cells = cells
        self._missing = missing
        self._done = 0
        self._started = time.monotonic()
        self._tell(f"{missing} of {cells} cells are to be run")

    def ended(self, record: Record) -> None:
        """Report a cell that succeeded."""
        self._step(
            f"{record['id']}: {record['curve'][-1][1]:.3f}, {record['accepted']:.1%} stayed "
            f"missing, {record['wall_s']:.1f} s"
        )

    def failed(self, error: Exception) -> None:
        """Report a cell that failed."""
        self._step(f"FAILED: {error}")

    def stopped(self) -> None:
        """Report that the time is up."""
        left = self._missing - self._done
        self._tell(f"the time is up: {left} cells are left; the same command runs them")

    def _step(self, text: str) -> None:
        self._done += 1
        left = self._missing - self._done
        seconds = (time.monotonic() - self._started) / self._done * left
        at = self._cells - left
        self._tell(f"[{at}/{self._cells}] {text}; {_duration(seconds)} left")

    def _tell(self, text: str) -> None:
        print(f"study: {text}", file=sys.stderr, flush=True)


def _duration(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min" if seconds >= 120 else f"about {seconds:.0f} s"
