"""Rank 1 raises an error while the others wait for it."""

import torch
import torch.distributed as dist


def main() -> None:
    """Reduce until rank 1 raises."""
    torch.set_num_threads(1)
    dist.init_process_group("gradwire")
    for step in range(1000):
        if step == 10 and dist.get_rank() == 1:
            raise ValueError("a batch that cannot be read")
        dist.all_reduce(torch.ones(1000))


if __name__ == "__main__":
    main()
