"""Train on, after a rank was killed: checkpoints, and torchrun starts all ranks again.

Run it by ``torchrun --nproc-per-node 2 --max-restarts 3 examples/elastic.py --out run``, and kill
one of the ranks, or let ``--kill-at 25`` do it. The remaining ranks learn of it within ten seconds
by an error that names the lost one, and end; torchrun starts all of them again, and they continue
from the last checkpoint. The losses equal those of an undisturbed run.

Rank 0 leaves ``checkpoint.pt`` in the folder that --out names, and at the end ``losses.json``.
"""

import argparse
import json
import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 16
FEATURES = 32


class Training:
    """A model, its optimizer, and its step."""

    def __init__(self) -> None:
        """Make the model of step 0, the same on every rank."""
        torch.manual_seed(1)
        layers = (nn.Linear(FEATURES, 64), nn.Tanh(), nn.Linear(64, 1))
        self.model = DistributedDataParallel(nn.Sequential(*layers))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.losses: list[float] = []

    def step(self) -> None:
        """Do one step; its data follow from its number and the rank, not from earlier steps."""
        number = len(self.losses) * dist.get_world_size() + dist.get_rank()
        inputs = torch.randn(BATCH, FEATURES, generator=torch.Generator().manual_seed(number))
        loss = nn.functional.mse_loss(self.model(inputs), inputs[:, :4].sum(1, keepdim=True))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        mean = loss.detach()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        self.losses.append(mean.item())

    def save(self, path: Path) -> None:
        """Leave a checkpoint, whole or not at all: a rank may be killed at any time."""
        if dist.get_rank() == 0:
            state = {
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "losses": self.losses,
            }
            torch.save(state, path.with_suffix(".part"))
            os.replace(path.with_suffix(".part"), path)
        dist.barrier()

    def load(self, path: Path) -> None:
        """Continue from the last checkpoint, if there is one. Every rank must see the folder."""
        if path.exists():
            state = torch.load(path)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.losses = state["losses"]


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, required=True, help="folder of checkpoint and losses")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--every", type=int, default=10, help="steps from checkpoint to checkpoint")
    parser.add_argument("--kill-at", type=int, help="the last rank kills itself before this step")
    parser.add_argument("--backend", default="gradwire")
    return parser.parse_args()


def main() -> None:
    """Train to the last step, starting from the last checkpoint."""
    arguments = options()
    torch.set_num_threads(1)
    dist.init_process_group(arguments.backend)
    arguments.out.mkdir(parents=True, exist_ok=True)
    training = Training()
    training.load(arguments.out / "checkpoint.pt")
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    print(f"rank {dist.get_rank()}: step {len(training.losses)}, restart {restarts}", flush=True)
    while len(training.losses) < arguments.steps:
        last = dist.get_rank() == dist.get_world_size() - 1
        if last and restarts == 0 and len(training.losses) == arguments.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        training.step()
        if len(training.losses) % arguments.every == 0:
            training.save(arguments.out / "checkpoint.pt")
    if dist.get_rank() == 0:
        (arguments.out / "losses.json").write_text(json.dumps(training.losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
