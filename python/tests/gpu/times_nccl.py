"""Check and time NCCL's all-reduces between two ranks; ``hosts.py`` runs it."""

import torch
import torch.distributed as dist
from times import SIZES, median


def main() -> None:
    """Print a row per size."""
    torch.cuda.set_device(0)
    dist.init_process_group("cpu:gloo,cuda:nccl")
    for size in SIZES:
        tensor = torch.full((size // 4,), dist.get_rank() + 1.0, device="cuda")
        dist.all_reduce(tensor)
        assert torch.all(tensor == 3.0), tensor
        microseconds = median(torch.ones_like(tensor), dist.group.WORLD)
        if dist.get_rank() == 0:
            print(f"| {size} | {microseconds:.0f} |", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
