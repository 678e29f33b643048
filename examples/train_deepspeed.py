"""Train a character transformer by DeepSpeed's ZeRO on CPUs, over gradwire by one line.

Run it by ``DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 examples/train_deepspeed.py --backend
gradwire``. DeepSpeed takes a process group that exists already, so the line is
``init_process_group("gradwire")`` before the engine is made. ZeRO shards optimiser and gradients.
"""

import deepspeed
import torch
import torch.distributed as dist

from transformer import arguments, batch, loss_of, told, transformer

SETTINGS = {
    "train_micro_batch_size_per_gpu": 8,
    "zero_optimization": {"stage": 2},
    "zero_allow_untested_optimizer": True,
}


def train(steps: int) -> list[float]:
    """Train and return the mean over all ranks of the loss of each step."""
    model = transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=SETTINGS)
    rank, world = dist.get_rank(), dist.get_world_size()
    losses = []
    for step in range(steps):
        inputs, targets = (part[rank::world] for part in batch(step, size=8 * world))
        loss = loss_of(engine(inputs), targets)
        engine.backward(loss)
        engine.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / world)
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
