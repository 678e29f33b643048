"""Train a character transformer by Hugging Face Accelerate, over gradwire by one line.

Run it by ``torchrun --nproc-per-node 2 examples/train_accelerate.py --backend gradwire``. For CPUs
Accelerate itself chooses between Gloo and MPI, but accepts an existing process group: the line is
``init_process_group("gradwire")`` before the Accelerator is made. Everything else is as with Gloo.
"""

import torch
import torch.distributed as dist
from accelerate import Accelerator
from torch.utils.data import DataLoader

from transformer import arguments, batch, loss_of, told, transformer


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
    chosen = arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(chosen.backend)
    losses = train(chosen.steps)
    if dist.get_rank() == 0:
        print(told(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
