"""Confirm what-ifs by really running them: DDP between two hosts that a link of a known rate joins.

    sudo .venv/bin/python benches/whatif.py target/release/gradwire

Makes two network namespaces with a token bucket at each end of the link between them, and trains
both examples with a rank in each. First three recorded runs of each example, replayed. Then the
CNN as it is and with one change in turns: other buckets, a credit, a quarter of the bandwidth. The
gain that ``--whatif`` predicts from the runs without the change stands beside the one that was
found. A quiet machine with two cores or more is needed: ranks must not wait for each other's core.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

EXAMPLES = ("train_mnist", "train_shakespeare")
ADDRESSES = ("10.199.7.1", "10.199.7.2")
LIMIT = 0.10
"""Share by which a replayed iteration may be off."""


@dataclass(frozen=True)
class Run:
    """One training."""

    example: str = "train_mnist"
    bucket_mb: float = 25.0
    mbps: int = 1000
    job: str = ""


CHANGES = {
    "bucket=1MiB": Run(bucket_mb=1.0),
    "credit=256KiB": Run(job='collectives.credit = "256KiB"\n'),
    "bandwidth=x0.25": Run(mbps=250),
}


def train(example: str, bucket_mb: float, steps: int, folder: str) -> None:
    """Be one rank: train some steps, all but the first two recorded."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    from gradwire import ddp, events

    sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
    import train_mnist
    import transformer

    torch.set_num_threads(1)
    torch.manual_seed(1)
    if example == "train_mnist":
        model, inputs = train_mnist.network(), torch.rand(32, 1, 28, 28)
        targets = torch.randint(10, (32,))
    else:
        model = transformer.transformer()
        inputs, targets = transformer.batch(0, 16)
    dist.init_process_group("gradwire")
    with events.recording(folder, steps=steps):
        model = DistributedDataParallel(model, bucket_cap_mb=bucket_mb)
        ddp.register(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(steps + 2):
            optimizer.zero_grad()
            outputs = model(inputs).flatten(0, -2)
            nn.functional.cross_entropy(outputs, targets.flatten()).backward()
            optimizer.step()
    dist.destroy_process_group()


def tool(*words: str) -> None:
    """Run a command of iproute2."""
    subprocess.run(words, check=True, capture_output=True)


@contextlib.contextmanager
def two_hosts() -> Iterator[list[str]]:
    """Make two namespaces that a pair of interfaces joins; yield their names."""
    names = [f"gradwire-whatif-{os.getpid()}-{rank}" for rank in (0, 1)]
    try:
        for name in names:
            tool("ip", "netns", "add", name)
        peer = ("peer", "name", "gww1", "netns", names[1])
        tool("ip", "-n", names[0], "link", "add", "gww0", "type", "veth", *peer)
        for rank, (name, address) in enumerate(zip(names, ADDRESSES, strict=True)):
            tool("ip", "-n", name, "address", "add", f"{address}/24", "dev", f"gww{rank}")
            for device in ("lo", f"gww{rank}"):
                tool("ip", "-n", name, "link", "set", "dev", device, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def set_rate(names: list[str], mbps: int) -> None:
    """Give both ends of the link a token bucket."""
    bucket = ("tbf", "rate", f"{mbps}mbit", "burst", "64kb", "latency", "20ms")
    for rank, name in enumerate(names):
        tool("tc", "-n", name, "qdisc", "replace", "dev", f"gww{rank}", "root", *bucket)


def start(
    names: list[str],
    rank: int,
    job: Path,
    *words: str,
    **pipes: Any,  # noqa: ANN401
) -> subprocess.Popen:
    """Start this Python with ``words`` as a rank on its host."""
    environment = os.environ | {
        "RANK": str(rank),
        "WORLD_SIZE": "2",
        "MASTER_ADDR": ADDRESSES[0],
        "MASTER_PORT": "29511",
        "GRADWIRE_JOB": str(job),
        "GRADWIRE_IFNAME": f"gww{rank}",
        "GLOO_SOCKET_IFNAME": f"gww{rank}",
    }
    command = ["ip", "netns", "exec", names[rank], sys.executable, *words]
    return subprocess.Popen(command, env=environment, **pipes)


def record(names: list[str], run: Run, steps: int, folder: Path) -> None:
    """Train with a rank on each host, and keep the events."""
    set_rate(names, run.mbps)
    folder.mkdir(parents=True)
    job = folder / "job.toml"
    # Both namespaces can map the same memory, which a token bucket does not slow down.
    job.write_text(f'transport.wire = "udp"\n{run.job}')
    events = folder / "events"
    words = ("--rank-of", run.example, str(run.bucket_mb), str(steps), str(events))
    ranks = [start(names, rank, job, __file__, "", *words) for rank in range(len(names))]
    codes = [rank.wait(timeout=300) for rank in ranks]
    if any(codes):
        sys.exit(f"{run}: the ranks ended with {codes}")


def replayed(gradwire: str, folder: Path, *words: str) -> Any:  # noqa: ANN401
    """Replay a recorded run; return the report."""
    command = [gradwire, "trace", "replay", str(folder / "events"), *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def main() -> int:
    """Print the tables; the exit code is 1 if a replay is off by more than a tenth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gradwire", help="the command, built with optimisation")
    parser.add_argument("--runs", type=int, default=3, help="runs of each kind (default: 3)")
    parser.add_argument("--steps", type=int, default=30, help="steps of a run (default: 30)")
    parser.add_argument("--keep", type=Path, help="a new folder that keeps the events")
    parser.add_argument("--rank-of", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank_of:
        example, bucket, steps, folder = options.rank_of
        train(example, float(bucket), int(steps), folder)
        return 0
    place = options.keep or Path(tempfile.mkdtemp())
    is_off = False
    with two_hosts() as names:
        print(f"{'example':<20}{'recorded ms':>12}{'replayed ms':>12}{'off':>8}{'coarse':>8}")
        for example in EXAMPLES:
            for turn in range(options.runs):
                folder = place / example / str(turn)
                record(names, Run(example), options.steps, folder)
                told = replayed(options.gradwire, folder)
                measured, now = told["measured_us"], told["replayed_us"]
                off, coarse = now / measured - 1, told["coarse_us"] / measured - 1
                is_off |= abs(off) > LIMIT
                times = f"{measured / 1e3:>12.2f}{now / 1e3:>12.2f}"
                print(f"{example:<20}{times}{off:>+8.1%}{coarse:>+8.1%}", flush=True)
        print(f"\n{'what if':<20}{'before ms':>12}{'after ms':>12}{'predicted':>12}{'off':>8}")
        for question, change in CHANGES.items():
            seen: dict[str, list[float]] = {"before": [], "after": [], "predicted": []}
            for turn in range(options.runs):
                folder = place / question / str(turn)
                for way, run in (("before", Run()), ("after", replace(change))):
                    record(names, run, options.steps, folder / way)
                told = replayed(options.gradwire, folder / "before", "--whatif", question)
                seen["before"].append(told["measured_us"])
                seen["predicted"].append(told["whatif"]["replayed_us"])
                seen["after"].append(replayed(options.gradwire, folder / "after")["measured_us"])
            before, after, predicted = (statistics.median(seen[key]) / 1e3 for key in seen)
            off = predicted / after - 1
            is_off |= abs(off) > LIMIT
            times = f"{before:>12.2f}{after:>12.2f}{predicted:>12.2f}"
            print(f"{question:<20}{times}{off:>+8.1%}", flush=True)
    if options.keep is None:
        shutil.rmtree(place)
    return is_off


if __name__ == "__main__":
    sys.exit(main())
