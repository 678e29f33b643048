"""Train a character transformer whose layers lie on ranks one after the other (pipeline parallel).

Run it by ``torchrun --nproc-per-node 2 examples/train_pipeline.py --backend gradwire``. Each rank
runs a stage; micro-batches pass through them by send and receive. Nothing here is gradwire's own.
"""

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from transformer import arguments, batch, loss_of, told, transformer

MICRO_BATCHES = 4


def train(steps: int) -> list[float]:
    """Train and return the loss of each step on the last rank, nothing on the others."""
    rank, world = dist.get_rank(), dist.get_world_size()
    layers = transformer()
    cuts = [len(layers) * stage // world for stage in range(world + 1)]
    mine = layers[cuts[rank] : cuts[rank + 1]]
    stage = PipelineStage(mine, rank, world, torch.device("cpu"))
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(mine.parameters(), lr=3e-3)
    losses = []
    for step in range(steps):
        inputs, targets = batch(step, size=16)
        parts: list[torch.Tensor] = []
        if rank == 0:
            schedule.step(inputs, target=targets, losses=parts)
        else:
            schedule.step(target=targets, losses=parts)
        optimizer.step()
        optimizer.zero_grad()
        if rank == world - 1:
            losses.append(torch.stack(parts).mean().item())
    return losses


def main() -> None:
    """Train as the arguments say and print losses."""
    chosen = arguments(__doc__).parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(chosen.backend)
    losses = train(chosen.steps)
    if losses:
        print(told(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
