"""Compare simulated times with a tolerance to those without: 200 cells of fabric x workload x loss.

    cargo build --release -p gradwire-cli
    python3 benches/never_slower.py target/release/gradwire

A cell is a fabric, a workload, the share of packets that its longest paths lose, a tolerance and a
gap. Its time is the mean over seeds of the time at which the last byte arrives; its ratio is that
time over the one at tolerance 0, with the same loss, gap and seeds. A job that tolerates loss
should never be slower: the exit code is 1 when a ratio exceeds --most. Simulated runs are exact, so
a table is the same on every machine.
"""

import argparse
import itertools
import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os import cpu_count
from typing import Any

# Fabric and workload.
PLACES = (
    ("single:2@100G", "permutation:4MB"),
    ("single:17@100G", "incast:16x1MB"),
    ("single:8@100G", "all-reduce:4MiB"),
    ("single:8@100G", "all-to-all:500KB"),
    ("leaf-spine:4x4x2@25G", "permutation:2MB"),
    ("leaf-spine:4x8x2@25G", "all-reduce:8MiB"),
    ("leaf-spine:4x4x2@25G", "incast:8x500KB"),
    ("fat-tree:k=4@100G", "permutation:2MB"),
    ("fat-tree:k=4@100G", "all-reduce:2MiB"),
    ("fat-tree:k=4@100G", "all-to-all:200KB"),
)
# Links of the longest paths of a fabric.
LINKS = {"single": 2, "leaf-spine": 4, "fat-tree": 6}
# Percent of the packets of a longest path.
LOSSES = (0, 0.1, 1, 5, 10)
TOLERANCES = ("3%", "10%", "20%")
# At other gaps than the fitted one.
OTHER_GAPS = ("10us", "1ms")
OTHER_LOSSES = (0, 1, 10)


@dataclass(frozen=True)
class Cell:
    """A simulated run, without its seed."""

    fabric: str
    workload: str
    loss: float
    tolerance: str
    gap: str | None = None

    def lossless(self) -> "Cell":
        """The same without a tolerance."""
        return replace(self, tolerance="0")

    def words(self, seed: int, settings: str) -> list[str]:
        """The command, with these settings of the fabric, too."""
        kept = (1 - self.loss / 100) ** (1 / LINKS[self.fabric.split(":")[0]])
        lossy = f",loss={100 * (1 - kept):.4f}%" if self.loss else ""
        gap = ["--set", f"transport.gap={self.gap}"] if self.gap else []
        tolerance = ["--tolerance", self.tolerance, "--seed", str(seed)]
        fabric = self.fabric + lossy + settings
        return ["sim", "run", fabric, self.workload, *tolerance, *gap, "--json"]

    def __str__(self) -> str:
        """Write the cell as its row of the table names it."""
        gap = self.gap or "fitted"
        return f"{self.fabric} {self.workload} loss {self.loss}% T {self.tolerance} gap {gap}"


def cells() -> list[Cell]:
    """All cells with a tolerance."""
    fitted = itertools.product(PLACES, LOSSES, TOLERANCES)
    others = itertools.product(PLACES, OTHER_GAPS, OTHER_LOSSES)
    return [Cell(*place, loss, tolerance) for place, loss, tolerance in fitted] + [
        Cell(*place, loss, "10%", gap) for place, gap, loss in others
    ]


def simulated(command: list[str]) -> dict[str, Any]:
    """What `gradwire sim run ... --json` prints."""
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        sys.exit(f"{' '.join(command)}: exit code {answer.returncode}\n{answer.stderr}")
    return json.loads(answer.stdout)


def simulated_us(command: list[str]) -> float:
    """The simulated time until the last byte of `gradwire sim run ... --json` has arrived."""
    return simulated(command)["makespan_us"]


def main() -> int:
    """Run the cells, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gradwire", help="the command, built with optimisation")
    parser.add_argument("--seeds", type=int, default=3, help="runs of a cell (default: 3)")
    parser.add_argument("--most", type=float, default=1.01, help="allowed ratio (default: 1.01)")
    parser.add_argument("--only", default="", help="cells whose text has this regular expression")
    parser.add_argument("--settings", default="", help="of all fabrics, too, such as ,trim=on")
    parser.add_argument("--worst", type=int, default=30, help="rows to print (default: 30)")
    given = parser.parse_args()

    chosen = [cell for cell in cells() if re.search(given.only, str(cell))]
    needed = sorted({*chosen, *(cell.lossless() for cell in chosen)}, key=str)
    runs = list(itertools.product(needed, range(1, given.seeds + 1)))
    with ThreadPoolExecutor(cpu_count()) as pool:
        commands = ([given.gradwire, *cell.words(seed, given.settings)] for cell, seed in runs)
        found = pool.map(simulated_us, commands)
    times: dict[Cell, float] = dict.fromkeys(needed, 0.0)
    for (cell, _), took in zip(runs, found, strict=True):
        times[cell] += took / given.seeds

    rows = [(times[cell] / times[cell.lossless()], cell) for cell in chosen]
    rows.sort(key=lambda row: (-row[0], str(row[1])))
    print("ratio  lossless us  tolerant us  cell")
    for ratio, cell in rows[: given.worst]:
        print(f"{ratio:5.3f}  {times[cell.lossless()]:11.1f}  {times[cell]:11.1f}  {cell}")
    slower = sum(ratio > given.most for ratio, _ in rows)
    gained = sum(ratio < 1 / given.most for ratio, _ in rows)
    most = given.most
    print(f"{len(rows)} cells: {slower} slower than {most}, {gained} faster than 1/{most}")
    return slower > 0


if __name__ == "__main__":
    sys.exit(main())
