"""Train the network of train_mnist.py with a parameter server.

Run it by ``torchrun --nproc-per-node 4 examples/ps_mnist.py --servers 2``: the last two ranks
serve, the others train. Against a loop with an optimizer, the lines that differ are those that name
``ps``. The job (tolerance, faults, transport) is the file that GRADWIRE_JOB names.

Each worker leaves ``worker<k>.json`` in the folder that --out names: losses, accuracy, steps per
second and the hash of the final parameters.
"""

import argparse
import json
import statistics
import time
from functools import partial
from pathlib import Path

import torch
from torch import nn

from gradwire import ps
from train_mnist import TRAINING_DIGITS, accuracy, hash_of, load_digits, network

WARM_UP_STEPS = 20
PROGRESS_STEPS = 25


def batches(arguments: argparse.Namespace, setup: ps.Setup) -> list[torch.Tensor]:
    """Choose this worker's digits of every step: all workers shuffle alike and take turns."""
    shuffle = torch.Generator().manual_seed(arguments.seed)
    steps: list[torch.Tensor] = []
    for _ in range(arguments.epochs):
        mine = torch.randperm(TRAINING_DIGITS, generator=shuffle)[setup.rank :: setup.workers]
        steps.extend(mine.split(arguments.batch))
    return steps


def serve(arguments: argparse.Namespace, setup: ps.Setup) -> None:
    """Hold a shard of the parameters and optimize it."""
    updates = len(batches(arguments, setup))
    if setup.mode != ps.SYNC:
        updates *= setup.workers  # each worker's gradient is an update of its own
    server = ps.Server(
        setup,
        partial(torch.optim.SGD, lr=0.05, momentum=0.9 if setup.mode == ps.SYNC else 0.5),
        partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=updates),
    )
    server.serve()


def train(arguments: argparse.Namespace, setup: ps.Setup) -> None:
    """Train as a worker, and leave a report."""
    torch.manual_seed(arguments.seed)
    training, validation = load_digits(arguments.seed)
    model = network()
    steps = batches(arguments, setup)
    losses, seconds = [], []
    with ps.Worker(setup, model) as worker:
        while worker.clock < len(steps):  # a restarted worker goes on where training is
            started = time.perf_counter()
            chosen = steps[worker.clock]
            model.zero_grad()
            loss = nn.functional.cross_entropy(
                model(training.images[chosen]), training.labels[chosen]
            )
            loss.backward()
            worker.step()
            seconds.append(time.perf_counter() - started)
            losses.append(loss.item())
            if setup.rank == 0 and worker.clock % PROGRESS_STEPS == 0:
                print(f"step {worker.clock} of {len(steps)} loss {losses[-1]:.3f}", flush=True)
    report = {
        "losses": losses,
        "accuracy": accuracy(model, validation),
        "steps_per_s": 1 / statistics.median(seconds[WARM_UP_STEPS:] or seconds),
        "parameter_hash": hash_of(model),
    }
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / f"worker{setup.rank}.json").write_text(json.dumps(report))
    if setup.rank == 0:
        print(f"accuracy {report['accuracy']:.3f}", flush=True)


def main() -> None:
    """Serve or train, depending on this rank's role."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--mode", default="sync", help="sync, ssp or async")
    parser.add_argument("--staleness", type=int, default=2, help="steps, with --mode ssp")
    parser.add_argument("--tolerance", type=float, help="share of a gradient that may be missing")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32, help="digits per step and worker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder for the reports")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    setup = ps.Setup(
        servers=arguments.servers,
        mode=ps.Mode.named(arguments.mode, arguments.staleness),
        tolerance=arguments.tolerance,
    )
    if setup.is_server:
        serve(arguments, setup)
    else:
        train(arguments, setup)


if __name__ == "__main__":
    main()
