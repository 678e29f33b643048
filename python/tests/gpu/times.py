"""Time all-reduces of GPU tensors over gradwire and Gloo, and of CPU tensors over gradwire."""

import statistics
import time
from collections.abc import Iterator
from datetime import timedelta

import torch
import torch.distributed as dist

SIZES = [4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
WARM_UP = 3
SECONDS_OF_A_ROW = 1.5


def seconds(tensor: torch.Tensor, group: dist.ProcessGroup) -> Iterator[float]:
    """Time operations one by one, until their results are on the device."""
    while True:
        dist.barrier(group)
        started = time.perf_counter()
        dist.all_reduce(tensor, group=group)
        if tensor.is_cuda:
            torch.cuda.synchronize()
        yield time.perf_counter() - started


def median(tensor: torch.Tensor, group: dist.ProcessGroup) -> float:
    """Return the median in microseconds; all ranks measure as often as rank 0 decides."""
    times = seconds(tensor, group)
    first = statistics.median([next(times) for _ in range(WARM_UP)])
    count = torch.tensor([max(3, min(200, int(SECONDS_OF_A_ROW / first)))])
    dist.broadcast(count, 0)
    return statistics.median(next(times) for _ in range(int(count.item()))) * 1e6


def main() -> None:
    """Print a row per size."""
    torch.cuda.set_device(0)
    dist.init_process_group("cpu:gloo", timeout=timedelta(seconds=120))
    gradwire, gloo = dist.new_group(backend="gradwire"), dist.new_group(backend="gloo")
    if dist.get_rank() == 0:
        print("| bytes | gradwire, GPU | gradwire, CPU | Gloo, GPU |")
        print("|---|---|---|---|")
    for size in SIZES:
        on_gpu, on_cpu = torch.ones(size // 4, device="cuda"), torch.ones(size // 4)
        row = [median(on_gpu, gradwire), median(on_cpu, gradwire), median(on_gpu, gloo)]
        if dist.get_rank() == 0:
            print(f"| {size} | {' | '.join(f'{value:.0f}' for value in row)} |", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
