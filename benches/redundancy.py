"""Kill a server of ps_mnist.py during training, and compare with a run in which none dies.

``python3 benches/redundancy.py --servers 10 --redundancy mbr:10,5,9`` starts servers and two
workers as processes of this machine, over UDP on loopback. It prints accuracy and parameters of
both runs, the seconds from the kill until training went on and until the new server had all its
symbols, and the steps per second without redundancy, with it, and with the rebuild.

``--parameters 8000000`` trains a matrix of this many parameters instead, whose rebuild takes longer
than a step, and tells its parts apart: how long training stands still, from the kill and from the
coming of the new server, and how long steps take while the rest of the symbols arrives.
"""

import argparse
import itertools
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "ps_mnist.py"
WORKERS = 2
JOB = """
[transport]
wire = "udp"
mtu = 1500
[servers]
redundancy = "{redundancy}"
snapshot_every = {every}
"""


class Launch:
    """One training: its processes, and the lines they print with their times."""

    def __init__(self, options: argparse.Namespace, folder: Path, redundancy: str) -> None:
        """Start every rank."""
        folder.mkdir()
        (folder / "job.toml").write_text(JOB.format(redundancy=redundancy, every=options.every))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.options, self.folder, self.world = options, folder, WORKERS + options.servers
        self.environment = dict(
            os.environ,
            GRADWIRE_JOB=str(folder / "job.toml"),
            WORLD_SIZE=str(self.world),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            OMP_NUM_THREADS="1",
        )
        self.lines: list[tuple[float, int, str]] = []
        self.ranks = {rank: self.start(rank) for rank in range(self.world)}

    def start(self, rank: int) -> subprocess.Popen[str]:
        """Start a rank, or start it again."""
        options = self.options
        servers = ["--servers", str(options.servers)]
        if not options.parameters:
            command = [str(EXAMPLE), *servers, "--epochs", str(options.epochs)]
            command += ["--out", str(self.folder / "out")]
        elif rank < WORKERS:
            command = [__file__, *servers, "--parameters", str(options.parameters)]
            command += ["--steps", str(options.steps), "--train", str(self.folder / "ends.json")]
        else:
            command = ["-m", "gradwire.ps", *servers]
            command += ["--optimizer", "SGD", "lr=0.001", "momentum=0.9"]
        command = [sys.executable, *command]
        process = subprocess.Popen(
            command,
            env=dict(self.environment, RANK=str(rank)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        threading.Thread(target=self._read, args=(rank, process), daemon=True).start()
        return process

    def _read(self, rank: int, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            self.lines.append((time.monotonic(), rank, line.rstrip()))

    def when(self, pattern: str, after: float = 0.0) -> tuple[float, str]:
        """Wait for a line; return when it came, and the line."""
        end = time.monotonic() + 300
        while time.monotonic() < end:
            for at, _, line in list(self.lines):
                if at > after and re.search(pattern, line):
                    return at, line
            time.sleep(0.01)
        raise TimeoutError(f"no {pattern!r} in\n" + "\n".join(line for *_, line in self.lines))

    def report(self) -> dict[str, object]:
        """Wait for the end; return the report of worker 0."""
        for process in self.ranks.values():
            process.wait(300)
        report = json.loads((self.folder / "out" / "worker0.json").read_text())
        return {key: report[key] for key in ("accuracy", "steps_per_s", "parameter_hash")}


def killed(options: argparse.Namespace, folder: Path) -> None:
    """Train, kill a server, and print what came of it."""
    launch = Launch(options, folder, options.redundancy)
    launch.when(rf"^step {options.at} of")
    victim = launch.ranks[launch.world - 1]
    victim.kill()
    at = time.monotonic()
    launch.ranks[launch.world - 1] = launch.start(launch.world - 1)
    for pattern in ("got its own state", "got the rest", r"^step \d+ of"):
        when, line = launch.when(pattern, at)
        print(f"  {when - at:6.2f} s after the kill: {line}", flush=True)
    print(f"  {launch.report()}", flush=True)


def train(options: argparse.Namespace) -> None:
    """Train a matrix as a worker; worker 0 leaves the time at which each step ended."""
    import torch

    from gradwire import ps

    torch.set_num_threads(1)
    setup = ps.Setup(servers=options.servers)
    model = torch.nn.Linear(1024, options.parameters // 1024, bias=False)
    inputs = torch.randn(1, 1024, generator=torch.Generator().manual_seed(setup.rank))
    ends = []
    with ps.Worker(setup, model) as worker:
        while worker.clock < options.steps:
            model.zero_grad()
            model(inputs).square().mean().backward()
            worker.step()
            ends.append(time.monotonic())
            if setup.rank == 0 and worker.clock % 5 == 0:
                print(f"step {worker.clock} of {options.steps}", flush=True)
    if setup.rank == 0:
        options.train.write_text(json.dumps(ends))


def parts(options: argparse.Namespace, folder: Path) -> None:
    """Kill a server while a matrix trains, and print the parts of its rebuild."""
    launch = Launch(options, folder, options.redundancy)
    launch.when(rf"^step {options.at} of")
    launch.ranks[launch.world - 1].kill()
    killed_at = time.monotonic()
    launch.ranks[launch.world - 1] = launch.start(launch.world - 1)
    got = [launch.when(f"got {which}", killed_at) for which in ("its own state", "the rest")]
    for when, line in got:
        print(f"  {when - killed_at:6.2f} s after the kill: {line}", flush=True)
    (own_at, own), (rest_at, _) = got
    came_at = own_at - float(re.search(r"([0-9.]+) s after it came", own)[1])
    for process in launch.ranks.values():
        process.wait(300)
    ends = json.loads((launch.folder / "ends.json").read_text())
    steps = list(itertools.pairwise(ends))

    def took(first: float, last: float) -> str:
        """Describe the steps that were wholly within a time."""
        own = [end - begin for begin, end in steps if first <= begin and end <= last]
        return f"{1e3 * statistics.median(own):.0f} ms ({len(own)} steps)" if own else "no step"

    went_on = next(end for end in ends if end > own_at)
    stopped = max(end for end in ends if end <= killed_at)
    print(f"  stood still for {went_on - stopped:.2f} s, {went_on - came_at:.2f} s of them")
    print("  after the new server had come")
    print(f"  median step before the kill {took(0, killed_at)}, while the rest arrived")
    print(f"  {took(own_at, rest_at)}, afterwards {took(rest_at, ends[-1])}", flush=True)


def main() -> None:
    """Train three times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, default=10)
    parser.add_argument("--redundancy", default="mbr:10,5,9")
    parser.add_argument("--every", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--at", type=int, default=50, help="a multiple of 25: the step of the kill")
    parser.add_argument("--parameters", type=int, default=0, help="train a matrix of this many")
    parser.add_argument("--steps", type=int, default=100, help="with --parameters")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(options)
        return
    if options.at % 25 != 0 or options.at == 0:  # both programs tell these steps
        parser.error(f"--at {options.at}: allowed are 25, 50, 75 and so on")
    with tempfile.TemporaryDirectory() as made:
        if options.parameters:
            print(f"{options.redundancy}, a server is killed at step {options.at}", flush=True)
            parts(options, Path(made) / "parts")
            return
        for name, redundancy in (("none", "none"), ("whole", options.redundancy)):
            print(f"{redundancy}, no server dies", flush=True)
            print(f"  {Launch(options, Path(made) / name, redundancy).report()}", flush=True)
        print(f"{options.redundancy}, a server is killed at step {options.at}", flush=True)
        killed(options, Path(made) / "killed")


if __name__ == "__main__":
    main()
