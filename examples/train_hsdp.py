"""Shard a transformer within each node and reduce its gradients across nodes (HSDP).

Run it by ``torchrun --nproc-per-node 4 examples/train_hsdp.py --nodes 2``: each half of the ranks
stands for a node. On GPUs NCCL works inside a node, on CPUs Gloo; gradwire works across nodes, with
a share of the gradients per rank. With GPUs, its waits block a stream and not the program.
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

from transformer import Block, arguments, batch, loss_of, told, transformer

INSIDE = {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl"}


def mesh_of(device: torch.device, nodes: int, across: str) -> DeviceMesh:
    """Arrange ranks by node; ``across`` is the backend between nodes."""
    backends: dict[int | str, object] = {"replicate": across}
    if across == "gradwire":
        from gradwire.options import Options

        backends["replicate"] = ("gradwire", Options(stream_wait=True))
    return init_device_mesh(
        device.type,
        (nodes, dist.get_world_size() // nodes),
        mesh_dim_names=("replicate", "shard"),
        backend_override=backends,
    )


def train(steps: int, mesh: DeviceMesh, device: torch.device) -> list[float]:
    """Train and return this rank's loss of each step."""
    model = transformer().to(device)
    for part in model:
        if isinstance(part, Block):
            fully_shard(part, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(steps):
        inputs, targets = (part.to(device) for part in batch(step, size=8, part=dist.get_rank()))
        loss = loss_of(model(inputs), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def main() -> None:
    """Train as the arguments say and print losses."""
    parser = arguments(__doc__)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or xpu")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device(chosen.device)
    if device.type != "cpu":
        device = torch.device(device.type, int(os.environ["LOCAL_RANK"]))
        torch.accelerator.set_device_index(device.index)
    dist.init_process_group(INSIDE[device.type])
    losses = train(chosen.steps, mesh_of(device, chosen.nodes, chosen.backend), device)
    if dist.get_rank() == 0:
        print(told(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
