"""Compare training steps over gradwire and Gloo between two hosts that a narrow link joins.

    sudo .venv/bin/python benches/narrow.py --mbps 250 500 1000 2500

Makes two network namespaces with a token bucket at each end of the link between them, and trains
the CNN of the examples with a rank in each, over both libraries in turn. One row for each rate: the
medians of the steps of all runs, and Gloo's over gradwire's.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from whatif import set_rate, start, two_hosts

BACKENDS = ("gradwire", "gloo")
WARM_UP = 3
"""Steps that do not count."""


def train(backend: str, steps: int) -> None:
    """Be one rank; rank 0 prints the times of its steps in milliseconds."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    import gradwire  # noqa: F401, the backend

    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import train_mnist

    torch.set_num_threads(1)
    torch.manual_seed(1)
    inputs, targets = torch.rand(32, 1, 28, 28), torch.randint(10, (32,))
    dist.init_process_group(backend)
    model = DistributedDataParallel(train_mnist.network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    times = []
    for _ in range(steps + WARM_UP):
        began = time.perf_counter()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        times.append((time.perf_counter() - began) * 1e3)
    if dist.get_rank() == 0:
        print(*times[WARM_UP:])
    # Gloo aborts if its peer is gone first.
    dist.barrier()
    dist.destroy_process_group()


def measure(names: list[str], backend: str, steps: int, job: Path) -> list[float]:
    """Train with a rank on each host; return the times of the steps."""
    words = (__file__, "--rank-of", backend, "--steps", str(steps))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    ranks = [start(names, rank, job, *words, **pipes) for rank in range(len(names))]
    said = [rank.communicate(timeout=600)[0] for rank in ranks]
    codes = [rank.returncode for rank in ranks]
    if any(codes):
        sys.exit(f"over {backend} the ranks ended with {codes}")
    return [float(word) for word in said[0].split()]


def main() -> None:
    """Print a row for each rate."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mbps", type=int, nargs="+", default=[250, 500, 1000, 2500])
    parser.add_argument("--runs", type=int, default=3, help="runs of each library (default: 3)")
    parser.add_argument("--steps", type=int, default=40, help="steps of a run (default: 40)")
    parser.add_argument("--rank-of", choices=BACKENDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        train(options.rank_of, options.steps)
        return
    print(f"{'Mb/s':>6}{'gradwire ms':>13}{'gloo ms':>9}{'ratio':>7}")
    with two_hosts() as names, tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.toml"
        # Both namespaces can map the same memory, which a token bucket does not slow down.
        job.write_text('transport.wire = "udp"\n')
        for mbps in options.mbps:
            set_rate(names, mbps)
            seen: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
            for _ in range(options.runs):
                for backend, times in seen.items():
                    times += measure(names, backend, options.steps, job)
            own, gloo = (statistics.median(times) for times in seen.values())
            print(f"{mbps:>6}{own:>13.1f}{gloo:>9.1f}{gloo / own:>7.2f}", flush=True)


if __name__ == "__main__":
    main()
