"""Train a character transformer by Ray Train, over gradwire by one word.

Run it by ``python examples/train_ray.py --backend gradwire``: Ray starts both ranks, on the hosts
of its cluster, or here. Everything else is as with Gloo.
"""

import ray.train
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model

from transformer import arguments, batch, loss_of, told, transformer


def train(settings: dict[str, int]) -> None:
    """Train one rank; the first one prints losses."""
    torch.set_num_threads(1)
    rank = ray.train.get_context().get_world_rank()
    world = ray.train.get_context().get_world_size()
    model = prepare_model(transformer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(settings["steps"]):
        inputs, targets = (part[rank::world] for part in batch(step, size=8 * world))
        loss = loss_of(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        torch.distributed.all_reduce(mean)
        losses.append(mean.item() / world)
    if rank == 0:
        print(told(losses))


def main() -> None:
    """Train as the arguments say."""
    chosen = arguments(__doc__).parse_args()
    trainer = TorchTrainer(
        train,
        train_loop_config={"steps": chosen.steps},
        torch_config=TorchConfig(backend=chosen.backend),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="gradwire"),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
