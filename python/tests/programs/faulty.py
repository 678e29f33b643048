"""Lets one fault after the other happen in processes that continue, each in a new process group.

Each rank reports its observations by the name of the fault. The argument after the report's path
is how many process groups are created and destroyed.
"""

import contextlib
import datetime
import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
WARMED_UP = 50
"""Groups after which memory is measured for the first time."""


def start(name: str) -> None:
    """Create the process group of one fault; ranks meet by a file."""
    meeting = f"file://{os.path.dirname(sys.argv[1])}/meeting-{name}"
    place = {"init_method": meeting, "rank": RANK, "world_size": WORLD}
    dist.init_process_group("gradwire", timeout=datetime.timedelta(seconds=20), **place)


@contextlib.contextmanager
def error_into(seen: dict[str, Any]) -> Iterator[None]:
    """Note the error that the body ends with, and how long it took."""
    started = time.monotonic()
    try:
        yield
    except RuntimeError as error:
        seen.update(error=str(error), kind=type(error).__name__)
    seen["seconds"] = time.monotonic() - started


def mismatched_shape(seen: dict[str, Any]) -> None:
    """Rank 1 sends half of the elements."""
    with error_into(seen):
        dist.all_reduce(torch.ones(60_000 // (1 + RANK)))


def mismatched_dtype(seen: dict[str, Any]) -> None:
    """Rank 1 sends integers of the same size."""
    with error_into(seen):
        dist.all_reduce(torch.ones(1000, dtype=torch.int32 if RANK == 1 else torch.float32))


def mismatched_operation(seen: dict[str, Any]) -> None:
    """Rank 1 calls another collective."""
    tensor = torch.ones(1000)
    with error_into(seen):
        if RANK == 1:
            dist.broadcast(tensor, 0)
            dist.barrier()
        else:
            dist.all_reduce(tensor)


def aborted(seen: dict[str, Any]) -> None:
    """Rank 1 aborts while rank 0 waits for it, in the barrier or after it."""
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    with error_into(seen):
        dist.barrier()
        if RANK == 1:
            backend.abort()
        dist.all_reduce(torch.ones(8))


def second_init(seen: dict[str, Any]) -> None:
    """A process group is created while there is one."""
    try:
        start("again")
    except ValueError as error:
        seen["error"] = str(error)
    seen["sum"] = summed(None)


def groups_in_any_order(seen: dict[str, Any]) -> None:
    """Groups are destroyed in another order on each rank, and used until then."""
    groups = [dist.new_group() for _ in range(8)]
    random.Random(RANK).shuffle(groups)
    works = [dist.all_reduce(torch.ones(100), group=group, async_op=True) for group in groups]
    for work, group in zip(works, groups, strict=True):
        work.wait()
        dist.destroy_process_group(group)
    seen["sum"] = summed(None)


def destroyed_with_operations_in_flight(seen: dict[str, Any]) -> None:
    """All ranks destroy the group right after starting many operations."""
    tensors = [torch.ones(1 << 16) for _ in range(64)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    started = time.monotonic()
    dist.destroy_process_group()
    seen["seconds"] = time.monotonic() - started
    for work in works:
        work.wait()
    seen["wrong"] = sum(int((tensor != WORLD).sum()) for tensor in tensors)


def destroyed_alone(seen: dict[str, Any]) -> None:
    """Rank 0 destroys the group with an operation in flight that the others never enter."""
    dist.barrier()
    work = dist.all_reduce(torch.ones(8), async_op=True) if RANK == 0 else None
    started = time.monotonic()
    dist.destroy_process_group()
    seen["seconds"] = time.monotonic() - started
    if work is not None:
        waited: dict[str, Any] = {}
        with error_into(waited):
            work.wait()
        seen["error"] = waited.get("error", "")


def waiting_callbacks(seen: dict[str, Any]) -> None:
    """A callback of an operation runs another one and waits for it."""

    def reduce_again(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
        tensor = future.value()[0].clone()
        dist.all_reduce(tensor)
        return tensor

    work = dist.all_reduce(torch.ones(8), async_op=True)
    seen["sum"] = work.get_future().then(reduce_again).wait()[0].item()


def resident_bytes() -> int:
    """Return the memory that this process occupies."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def many_groups(seen: dict[str, Any]) -> None:
    """Groups are created, used once and destroyed."""
    for number in range(int(sys.argv[2])):
        group = dist.new_group()
        seen["sum"] = summed(group)
        dist.destroy_process_group(group)
        if number == WARMED_UP:
            seen["bytes_before"] = resident_bytes()
    seen["bytes_after"] = resident_bytes()


def summed(group: dist.ProcessGroup | None) -> float:
    """Return the first element of an all-reduce of ones."""
    tensor = torch.ones(8)
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


FAULTS: tuple[Callable[[dict[str, Any]], None], ...] = (
    mismatched_shape,
    mismatched_dtype,
    mismatched_operation,
    aborted,
    second_init,
    groups_in_any_order,
    destroyed_with_operations_in_flight,
    destroyed_alone,
    waiting_callbacks,
    many_groups,
)


def main() -> None:
    """Let every fault happen, and report after each."""
    torch.set_num_threads(1)
    seen: dict[str, dict[str, Any]] = {}
    for fault in FAULTS:
        seen[fault.__name__] = {}
        start(fault.__name__)
        fault(seen[fault.__name__])
        if dist.is_initialized():
            dist.destroy_process_group()
        with open(sys.argv[1], "w") as out:
            json.dump(seen, out)


if __name__ == "__main__":
    main()
