"""Epochs until a small network reaches its target: sum, average and Adasum of 16 workers.

``python3 benches/adasum_epochs.py [--seeds 5] [--loss 0.05]``: the workers are simulated in one
process, with the same base learning rate for each reduction. ``--loss`` is the share of each
worker's gradient that is missing before the dot products, in packets of 340 values. Needs an
environment with gradwire.
"""

import argparse
from collections.abc import Callable

import torch

from gradwire import adasum

WORKERS = 16
SAMPLES = 4096
FEATURES = 32
BATCH = 16
TARGET = 0.93
EPOCHS_MOST = 60
PACKET = 340

Reduction = Callable[[list[torch.Tensor], list[int]], torch.Tensor]

REDUCTIONS: dict[str, Reduction] = {
    "sum": lambda gradients, _: torch.stack(gradients).sum(0),
    "average": lambda gradients, _: torch.stack(gradients).mean(0),
    "adasum": lambda gradients, starts: adasum.tree(gradients, starts),
}


def data(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return points, and on which side of a curved surface each lies."""
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(SAMPLES, FEATURES, generator=generator)
    teacher = torch.randn(FEATURES, 8, generator=generator)
    labels = (torch.tanh(points @ teacher / FEATURES**0.5 * 2).sum(1) > 0).float()
    return points, labels


def lossy(gradient: torch.Tensor, share: float, generator: torch.Generator) -> torch.Tensor:
    """Return the gradient without the values of the packets that were lost."""
    packets = -(-gradient.numel() // PACKET)
    came = (torch.rand(packets, generator=generator) >= share).float()
    return gradient * came.repeat_interleave(PACKET)[: gradient.numel()]


def epochs(reduction: Reduction, seed: int, rate: float, loss: float) -> int:
    """Return the epochs until the accuracy is reached; ``EPOCHS_MOST`` if it is not."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed + 1)
    points, labels = data(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
    )
    parameters = list(model.parameters())
    starts = [0]
    for parameter in parameters[:-1]:
        starts.append(starts[-1] + parameter.numel())
    for epoch in range(1, EPOCHS_MOST + 1):
        order = torch.randperm(SAMPLES, generator=generator)
        for batch in order.split(WORKERS * BATCH):
            gradients = []
            for shard in batch.split(BATCH):
                logits = model(points[shard]).squeeze(1)
                error = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[shard])
                parts = torch.autograd.grad(error, parameters)
                flat = torch.cat([part.flatten() for part in parts])
                gradients.append(lossy(flat, loss, generator) if loss else flat)
            step = reduction(gradients, starts)
            with torch.no_grad():
                for parameter, start in zip(parameters, starts, strict=True):
                    change = step[start : start + parameter.numel()].view_as(parameter)
                    parameter.sub_(change, alpha=rate)
        with torch.no_grad():
            right = (model(points).squeeze(1) > 0) == (labels > 0.5)
        if right.float().mean() >= TARGET:
            return epoch
    return EPOCHS_MOST


def main() -> None:
    """Print a row per learning rate, loss and reduction."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--rates", type=float, nargs="+", default=[0.1, 0.5])
    options.add_argument("--loss", type=float, default=0.05)
    given = options.parse_args()
    torch.set_num_threads(1)
    print(f"# epochs to {TARGET:.0%}, {WORKERS} workers; {EPOCHS_MOST} is not reached")
    print("# rate  loss  reduction  mean  of each seed")
    for rate in given.rates:
        for loss in sorted({0.0, given.loss}):
            for name, reduction in REDUCTIONS.items():
                counts = [epochs(reduction, seed, rate, loss) for seed in range(given.seeds)]
                mean = sum(counts) / len(counts)
                print(f"{rate:6} {loss:5} {name:>10} {mean:5.1f}  {counts}", flush=True)


if __name__ == "__main__":
    main()
