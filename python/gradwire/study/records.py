"""The records of finished cells: one JSON file each, written atomically."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gradwire.study.cells import Cell

Record = dict[str, Any]


class Records:
    """The finished cells of one folder."""

    def __init__(self, out: Path) -> None:
        """Keep records in ``out / "cells"``, and the findings in ``out``."""
        self._folder = out / "cells"

    def has(self, cell: Cell) -> bool:
        """Whether ``cell`` is finished."""
        return self._path(cell).exists()

    def keep(self, cell: Cell, record: Record) -> None:
        """Write the record of ``cell``."""
        _write(self._path(cell), json.dumps(record) + "\n")

    def put(self, name: str, text: str) -> None:
        """Write a file of findings."""
        _write(self._folder.parent / name, text)

    def read(self, cells: Iterable[Cell]) -> list[Record]:
        """Read those of ``cells`` that are finished, in their order."""
        return [json.loads(self._path(cell).read_text()) for cell in cells if self.has(cell)]

    def _path(self, cell: Cell) -> Path:
        return self._folder / f"{cell.id}.json"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(text)
    part.replace(path)
