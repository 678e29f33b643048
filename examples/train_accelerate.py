"""Train a character transformer by Hugging Face Accelerate, over gradwire by one line.

Run it by ``torchrun --nproc-per-node 2 examples/train_accelerate.py --backend gradwire``. For CPUs
Accelerate itself chooses between Gloo and MPI, but takes a process group that is there already: the
line is ``init_process_group("gradwire")`` before the Accelerator is made. All else is as with Gloo.
"""

import argparse

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader

from transformer import batch, loss_of, transformer


def train(steps: int) -> list[float]:
    """Train and return the mean over all ranks of the loss of each step."""
    accelerator = Accelerator(cpu=True)
    texts = [pair for step in range(steps) for pair in zip(*batch(step, size=16), strict=True)]
    loader = DataLoader(texts, batch_size=16 // accelerator.num_processes)
    model = transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for inputs, targets in loader:
        loss = loss_of(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())
    return losses


def main() -> None:
    """Train as the arguments say and print losses."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backend", default="gradwire", help="gradwire or gloo")
    parser.add_argument("--steps", type=int, default=200)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    losses = train(arguments.steps)
    if dist.get_rank() == 0:
        print(f"loss {losses[0]:.4f} in the first step, {losses[-1]:.4f} in the last")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
