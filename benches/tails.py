"""Compare simulated all-reduces whose links lose packets: gradwire and other transports.

    cargo build --release -p gradwire-cli
    python3 benches/tails.py target/release/gradwire --sizes 1MiB,8MiB

A row is a size and the share of packets that each link loses. Of each transport it has the median
and the 99th percentile of the all-reduces of all seeds, in microseconds, by the rank that takes
longest. Those of a seed follow each other, as in training. Nothing depends on seeds where nothing
is lost.
"""

import argparse
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from math import ceil
from os import cpu_count
from statistics import median

from never_slower import simulated

FABRIC = "fat-tree:k=8@100G,mtu=4150,framing=0"
TRANSPORTS = {
    "lossless": ["--tolerance", "0%"],
    "10 % tolerated": ["--tolerance", "10%"],
    "without parity": ["--tolerance", "0%", "--set", "transport.parity=none"],
    "DCTCP": ["--transport", "dctcp"],
    "RoCE": ["--transport", "roce"],
    "NDP": ["--transport", "ndp"],
    "pFabric": ["--transport", "pfabric"],
}


def times_us(run: list[str]) -> list[float]:
    """How long each all-reduce of a run takes."""
    return [task["max_us"] for task in simulated(run)["tasks"]["by_name"]]


def cell_of(times: list[float]) -> str:
    """The median, and the 99th percentile by nearest rank."""
    last = sorted(times)[ceil(len(times) * 0.99) - 1]
    return f"{median(times):,.0f} ({last:,.0f})"


def main() -> None:
    """Run the cells, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gradwire", help="the command, built with optimisation")
    parser.add_argument("--fabric", default=FABRIC, help=f"(default: {FABRIC})")
    parser.add_argument("--hosts", default="0-63", help="hosts of the job (default: 0-63)")
    parser.add_argument("--sizes", default="1MiB,8MiB,64MiB", help="(default: 1MiB,8MiB,64MiB)")
    losses = "0%,0.01%,0.1%,1%"
    parser.add_argument("--losses", default=losses, help=f"(default: {losses.replace('%', '%%')})")
    parser.add_argument("--row", type=int, default=10, help="all-reduces of a run (default: 10)")
    parser.add_argument("--seeds", type=int, default=10, help="runs of a cell (default: 10)")
    names = ", ".join(TRANSPORTS)
    parser.add_argument("--only", default=names, help=f"(default: {names.replace('%', '%%')})")
    given = parser.parse_args()

    chosen = {name: TRANSPORTS[name] for name in given.only.split(", ")}
    print(f"| size, loss | {' | '.join(chosen)} |")
    print(f"|---|{'---:|' * len(chosen)}")
    with ThreadPoolExecutor(cpu_count()) as pool:
        for size in given.sizes.split(","):
            workload = f"all-reduce:{size}x{given.row}@hosts={given.hosts}"
            for loss in given.losses.split(","):
                run = [given.gradwire, "sim", "run", f"{given.fabric},loss={loss}", workload]
                seeds = range(1, given.seeds + 1 if loss != "0%" else 2)
                cells = []
                for words in chosen.values():
                    runs = [[*run, *words, "--json", "--seed", str(seed)] for seed in seeds]
                    times = chain.from_iterable(pool.map(times_us, runs))
                    cells.append(cell_of(list(times)))
                print(f"| {size}, {loss} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
