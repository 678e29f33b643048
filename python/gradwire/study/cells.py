"""The trainings of the study: one cell each, whose name states all parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

WORLD = 4
TASKS = ("mnist", "shakespeare")
SEEDS = (1, 2, 3)
DROPS = (0.01, 0.033, 0.1, 0.2, 0.3)
HOLES = ("zero", "rescale", "previous", "error-feedback")
TRANSFORMS = ("none", "hadamard")
PARTS = ("front", "back", "small", "large")
PART_DROPS = (0.1, 0.3)

EVERYTHING_MAY_BE_MISSING = 0.9
"""Tolerance that keeps losses lost: its bound never acts, so losses are independent."""

DROPPABLE = 7 / 8
"""Share of a message that may be dropped early if it is unprotected: all but its last segments."""


@dataclass(frozen=True)
class Cell:
    """One training of four ranks.

    Of the gradients that ``part`` names, "all" or those of "front" or "back" layers, ``drop`` is
    lost on its way to the sum and stays missing: the network drops only packets that may be
    missing. With "small" and "large" it drops nothing at all: each rank zeroes, in that half of its
    gradients, blocks of a packet's length, twice as often, so that ``drop`` of all are lost.
    With "bounded" the job keeps its default protection in a bad network: that share of all packets
    is dropped, the tolerance is equally large, and a share of each message is protected.
    """

    task: str
    seed: int
    drop: float = 0.0
    holes: str = "rescale"
    transform: str = "none"
    part: str = "all"

    @property
    def id(self) -> str:
        """Name of this cell, and of its file."""
        start = f"{self.task}-seed{self.seed}"
        if self.drop == 0.0:
            return f"{start}-lossless"
        words = [f"{start}-drop{self.drop * 100:g}", self.holes]
        words += [self.transform] if self.transform != "none" else []
        words += [self.part] if self.part != "all" else []
        return "-".join(words)

    @property
    def is_lossy_on_the_wire(self) -> bool:
        """Whether packets are dropped, and not values in the application."""
        return self.drop > 0.0 and self.part not in ("small", "large")

    @property
    def tolerance(self) -> float:
        """Share of a message that may be missing."""
        if not self.is_lossy_on_the_wire:
            return 0.0
        return self.drop if self.part == "bounded" else EVERYTHING_MAY_BE_MISSING

    def job(self) -> str:
        """Write the job file of this cell."""
        lines = [
            f'name = "{self.task}"',
            f"tolerance = {self.tolerance}",
            f'holes = "{self.holes}"',
        ]
        lines += ["[transport]", 'wire = "udp"', "mtu = 1500"]
        # "auto" has rings, which lose nothing, among four ranks of an unknown network.
        lines += ["[collectives]", 'algorithm = "direct"', "[loss]"]
        if self.part == "bounded":
            lines += ['min_message = "16KiB"']  # "auto" would lose nothing on one host
        else:
            lines += ['min_message = "0B"', "protected_share = 0.0", "protected_back_layers = 0.0"]
        if self.transform != "none":
            lines += [f'transform = "{self.transform}"']
        if self.is_lossy_on_the_wire:
            lines += ["[faults]", f"seed = {self.seed}"]
            if self.part == "bounded":
                lines += [f"drop = {self.drop}"]
            else:
                lines += [f"drop = {self.drop / DROPPABLE:.4f}", 'drop_from = "droppable"']
        return "\n".join(lines) + "\n"


def grid() -> list[Cell]:
    """List every cell: those first that others are compared with, then seed by seed."""
    return sorted(_all(), key=lambda cell: (cell.drop > 0.0, cell.seed, cell.part != "all"))


def quick() -> list[Cell]:
    """List a handful of cells as a short form of the study."""
    cells = [Cell("mnist", 1), Cell("shakespeare", 1)]
    cells += [Cell("mnist", 1, 0.1, holes) for holes in ("zero", "rescale", "error-feedback")]
    return [*cells, Cell("shakespeare", 1, 0.1, "rescale")]


def core() -> list[Cell]:
    """List the cells that the expectations compare, at 10 % and partly at 30 %: a third of all."""
    return [cell for cell in grid() if cell.drop in (0.0, 0.1) or _is_without_protection(cell)]


def _is_without_protection(cell: Cell) -> bool:
    return cell.drop == DROPS[-1] and cell.part == "all" and cell.transform == "none"


def _all() -> Iterator[Cell]:
    for task, seed in product(TASKS, SEEDS):
        yield Cell(task, seed)
        for transform, drop, holes in product(TRANSFORMS, DROPS, HOLES):
            yield Cell(task, seed, drop, holes, transform)
        for drop in DROPS[2:]:
            yield Cell(task, seed, drop, part="bounded")
        for part, drop in product(PARTS, PART_DROPS):
            yield Cell(task, seed, drop, "zero", part=part)
