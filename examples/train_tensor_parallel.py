"""Train a character transformer whose layers are split over ranks (tensor parallel).

Run it by ``torchrun --nproc-per-node 2 examples/train_tensor_parallel.py --backend gradwire``. With
``--replicas 2`` on 4 ranks the mesh has two dimensions: layers are split over 2 ranks, and each
rank's part is sharded over 2 replicas (FSDP2). Nothing here is gradwire's own.
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from transformer import Block, arguments, batch, loss_of, told, transformer

PLAN = {
    "attention.query": ColwiseParallel(),
    "attention.key": ColwiseParallel(),
    "attention.value": ColwiseParallel(),
    "attention.out": RowwiseParallel(),
    "expand": ColwiseParallel(),
    "contract": RowwiseParallel(),
}


def train(steps: int, replicas: int = 1) -> list[float]:
    """Train and return this replica's loss of each step."""
    shape = (replicas, dist.get_world_size() // replicas)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replica", "tensor"))
    model = transformer()
    for part in model:
        if isinstance(part, Block):
            parallelize_module(part, mesh["tensor"], PLAN)
            if replicas > 1:
                fully_shard(part, mesh=mesh["replica"])
    if replicas > 1:
        fully_shard(model, mesh=mesh["replica"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, foreach=False)
    losses = []
    for step in range(steps):
        inputs, targets = batch(step, size=8, part=mesh["replica"].get_local_rank())
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main() -> None:
    """Train as the arguments say and print losses."""
    parser = arguments(__doc__)
    parser.add_argument("--replicas", type=int, default=1, help="must divide the number of ranks")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(chosen.backend)
    losses = train(chosen.steps, chosen.replicas)
    if dist.get_rank() == 0:
        print(told(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
