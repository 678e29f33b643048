"""Time to accuracy over a network that loses packets: Gloo, gradwire lossless and with tolerance.

    sudo .venv/bin/python benches/accuracy.py --drop 1% --seeds 3
    sudo .venv/bin/python benches/accuracy.py --drop 1% --delay 20ms --example shakespeare

Trains an example on two ranks over each transport in turn, with the same seeds, and validates every
few steps while the clock stands still. Without ``--delay`` the ranks share a loopback that loses
packets (examples/lossy.py), with it they are two hosts with a long path between them (far.py). A
row for each transport: the seconds until the goal is reached, by seed, the steps that this took,
where the training ended, and the segments that rank 0 did without. ``--straggler`` lets another
program run on the core of the last rank.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import far

BENCHES = Path(__file__).resolve().parent
EXAMPLES = BENCHES.parent / "examples"
PORT = "29411"
LIMIT_SECONDS = 1200
JOB = '[transport]\nwire = "udp"\nmtu = 1500\n'
TRANSPORTS = {
    "gloo": None,
    "lossless": JOB,
    "10 %": f'tolerance = "10%"\n{JOB}',
    "10 %, always": f'tolerance = "10%"\n[loss]\nmin_message = "16KiB"\n{JOB}',
    "10 %, patience": f'tolerance = "10%"\n[collectives]\npatience = 1.5\n{JOB}',
}


@dataclass(frozen=True)
class Goal:
    """The target of a training, and how often it is validated."""

    value: float
    is_more_better: bool
    every_steps: int

    def is_reached(self, value: float) -> bool:
        """Whether a validation is good enough."""
        return value >= self.value if self.is_more_better else value <= self.value


GOALS = {"mnist": Goal(0.94, True, 10), "shakespeare": Goal(2.3, False, 10)}


def mnist(seed: int) -> tuple[Any, Iterator[Any], Callable[[Any], float]]:
    """The CNN, the loss of each step as a function of it, and its accuracy on unseen digits."""
    from torch import nn

    import train_mnist

    given = argparse.Namespace(seed=seed, epochs=4, batch=32)
    training, unseen = train_mnist.load_digits(seed)

    def losses() -> Iterator[Any]:
        for chosen in train_mnist.batches(given):
            images, labels = training.images[chosen], training.labels[chosen]
            yield lambda model, x=images, y=labels: nn.functional.cross_entropy(model(x), y)

    return train_mnist.network(), losses(), lambda model: train_mnist.accuracy(model, unseen)


def shakespeare(seed: int) -> tuple[Any, Iterator[Any], Callable[[Any], float]]:
    """The transformer, the loss of each step as a function of it, and its loss on a new play."""
    import torch
    import torch.distributed as dist

    import train_shakespeare as example
    import transformer

    text = torch.cat([example.read(play) for play in example.PLAYS])
    draws = torch.Generator().manual_seed(1_000 * seed + dist.get_rank())

    def losses() -> Iterator[Any]:
        for _ in range(300):
            starts = torch.randint(len(text) - transformer.LENGTH, (16,), generator=draws)
            inputs, targets = example.windows(text, starts)
            yield lambda model, x=inputs, y=targets: transformer.loss_of(model(x), y)

    return transformer.transformer(seed), losses(), example.validated


def train(backend: str, example: str, seed: int) -> None:
    """Be one rank; rank 0 prints the steps, seconds and value of each validation."""
    sys.path.insert(0, str(EXAMPLES))
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import gradwire  # noqa: F401, the backend

    torch.set_num_threads(1)
    dist.init_process_group(backend)
    torch.manual_seed(seed)
    network, losses, validated = {"mnist": mnist, "shakespeare": shakespeare}[example](seed)
    model = DistributedDataParallel(network, bucket_cap_mb=1)
    if backend == "gradwire":
        from gradwire import ddp

        ddp.register(model)
    if example == "mnist":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    clock, seen = 0.0, []
    for number, loss in enumerate(losses, 1):
        started = time.perf_counter()
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
        clock += time.perf_counter() - started
        if number % GOALS[example].every_steps == 0:
            seen.append((number, clock, validated(model.module)))
            dist.barrier()
    if dist.get_rank() == 0:
        counters = ddp.backend_of().counters() if backend == "gradwire" else {}
        print(json.dumps({"seen": seen, "lost": counters.get("lost_segments", 0)}))
    # Gloo aborts if its peer is gone first.
    dist.barrier()
    dist.destroy_process_group()


def launch(transport: str, seed: int, given: argparse.Namespace, job: Path) -> dict[str, Any]:
    """Train once; return the validations of rank 0."""
    text = TRANSPORTS[transport]
    job.write_text(text or "")
    address = far.ADDRESSES[0] if given.delay else "127.0.0.1"
    common = f"env GRADWIRE_JOB={job} OMP_NUM_THREADS=1 PYTHONWARNINGS=ignore MASTER_PORT={PORT}"
    common += f" MASTER_ADDR={address} WORLD_SIZE={given.ranks}"
    backend = "gradwire" if text else "gloo"
    own = f"{sys.executable} {__file__} --backend {backend} --example {given.example} --seed {seed}"

    def rank(number: int, network: str) -> str:
        return f"{common} {network} RANK={number} LOCAL_RANK={number} {own}"

    if given.delay:
        network = "GLOO_SOCKET_IFNAME=far"
        program = [sys.executable, str(BENCHES / "far.py"), given.delay, given.drop]
        program += [rank(0, network), "--there", rank(1, network)]
    else:
        network = "GLOO_SOCKET_IFNAME=lo"
        ranks = [rank(number, network) for number in range(given.ranks)]
        beside = "true"
        if given.straggler:
            cores = os.cpu_count() or 1
            ranks = [f"taskset -c {number % cores} {line}" for number, line in enumerate(ranks)]
            beside = f"taskset -c {(given.ranks - 1) % cores} sh -c 'while :; do :; done'"
        others = "".join(f"{line} & " for line in ranks[1:])
        shell = f"{beside} & beside=$!; {others}{ranks[0]}; code=$?; kill $beside; wait; exit $code"
        program = [sys.executable, str(EXAMPLES / "lossy.py"), given.drop, "bash", "-c", shell]
    done = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    found = [line for line in done.stdout.splitlines() if line.startswith('{"seen"')]
    if done.returncode != 0 or not found:
        sys.exit(f"accuracy: {transport} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(found[0])


def row(transport: str, runs: list[dict[str, Any]], goal: Goal) -> dict[str, Any]:
    """Sum up the runs of one transport, one for each seed."""
    reached = [
        next((seen for seen in run["seen"] if goal.is_reached(seen[2])), (None, None, None))
        for run in runs
    ]
    last = [run["seen"][-1] for run in runs]
    return {
        "transport": transport,
        "steps_per_s": statistics.median(steps / seconds for steps, seconds, _ in last),
        "seconds_to_goal": [seconds for _, seconds, _ in reached],
        "steps_to_goal": [steps for steps, _, _ in reached],
        "at_the_end": [value for _, _, value in last],
        "lost_segments": sum(run["lost"] for run in runs),
    }


def main() -> None:
    """Train by each transport with each seed, in turn, and print a row for each transport."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--example", choices=sorted(GOALS), default="mnist")
    parser.add_argument("--drop", default="1%", help="share of packets that are lost (1%%)")
    parser.add_argument("--delay", help="half of the round trip, such as 20ms; two ranks")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--straggler", action="store_true", help="a busy program beside a rank")
    parser.add_argument("--transports", nargs="+", choices=TRANSPORTS, default=list(TRANSPORTS))
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--backend", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not given.drop.endswith("%"):
        parser.error(f"--drop {given.drop}: give a share of packets in percent, such as 1%")
    if given.delay and (given.ranks != 2 or given.straggler):
        parser.error("--delay has one rank on each of two hosts, and no --straggler")
    if given.backend:
        train(given.backend, given.example, given.seed)
        return
    runs: dict[str, list[dict[str, Any]]] = {transport: [] for transport in given.transports}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, given.seeds + 1):
            for transport, done in runs.items():
                done.append(launch(transport, seed, given, Path(folder) / "job.toml"))
                print(f"# seed {seed}, {transport}", file=sys.stderr, flush=True)
    for transport, done in runs.items():
        made = row(transport, done, GOALS[given.example])
        if given.json:
            print(json.dumps(made))
            continue
        seconds = " ".join("never" if t is None else f"{t:.2f}" for t in made["seconds_to_goal"])
        ends = " ".join(f"{value:.3f}" for value in made["at_the_end"])
        print(
            f"{transport:15} {made['steps_per_s']:6.1f} steps/s, seconds to "
            f"{GOALS[given.example].value}: {seconds}, steps {made['steps_to_goal']}, at the end "
            f"{ends}, {made['lost_segments']} segments missing"
        )


if __name__ == "__main__":
    main()
