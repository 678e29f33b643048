"""Makes one process group after the other in the same processes, as fault-tolerant trainers do.

Such trainers call the backend themselves, in addition to ``init_process_group``, and keep the old
group while they make the next one. The argument after the report's path is the name of a function
below.
"""

import ctypes
import json
import os
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    BroadcastOptions,
    _DistributedBackendOptions,
)

from gradwire import launch

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
TIMEOUT = timedelta(seconds=20)
REPEATS = 50
M_ARENA_MAX = -8
"""As ``malloc.h`` names it."""


def meeting() -> dist.Store:
    """Return the store at which all processes of the test meet."""
    port = int(os.environ["MASTER_PORT"])
    return dist.TCPStore("127.0.0.1", port, WORLD, is_master=RANK == 0, wait_for_workers=False)


def group_of(store: dist.Store, rank: int, size: int) -> Any:
    """Make a backend of ``size`` ranks that meet at ``store``, of which this is ``rank``."""
    options = _DistributedBackendOptions()
    options.store = store
    options.group_rank = rank
    options.group_size = size
    options.timeout = TIMEOUT
    return launch.create_backend(options)


def gathered(group: Any) -> list[int]:
    """Return the contributions of the ranks of a group, in its order: each has its rank."""
    outputs = [torch.empty(1, dtype=torch.int64) for _ in range(group.size())]
    group.allgather([outputs], [torch.tensor([group.rank()])], AllgatherOptions()).wait()
    return [int(output) for output in outputs]


def broadcast(group: Any) -> int:
    """Return the value that rank 0 of a group sends: its rank plus 10."""
    tensor = torch.tensor([group.rank() + 10])
    options = BroadcastOptions()
    options.rootRank = 0
    group.broadcast([tensor], options).wait()
    return int(tensor)


def seen_in(group: Any) -> dict[str, Any]:
    """Use a group; return the value that this rank received."""
    return {"gathered": gathered(group), "broadcast": broadcast(group)}


def swapped(store: dist.Store) -> Any:
    """The ranks of the second group are those of the first in reverse; the first lives on."""
    first = group_of(dist.PrefixStore("first", store), RANK, WORLD)
    before = seen_in(first)
    second = group_of(dist.PrefixStore("second", store), WORLD - 1 - RANK, WORLD)
    return [before, seen_in(second), seen_in(first)]


def aborted(store: dist.Store) -> Any:
    """The first group was aborted by every rank, and is kept."""
    first = group_of(dist.PrefixStore("first", store), RANK, WORLD)
    seen_in(first)
    # A rank that has its part may abort before the other has its own.
    store.set(f"seen{RANK}", "it")
    store.wait([f"seen{rank}" for rank in range(WORLD)])
    first.abort()
    started = time.monotonic()
    second = group_of(dist.PrefixStore("second", store), RANK, WORLD)
    return [seen_in(second), time.monotonic() - started, first.size()]


def repeated(store: dist.Store) -> Any:
    """Make and abort a group, again and again; count what this process has open."""
    # Otherwise glibc gives new threads new arenas, and the process grows although nothing leaks.
    ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
    counts, resident = [], []
    for number in range(REPEATS):
        group = group_of(dist.PrefixStore(f"group{number}", store), RANK, WORLD)
        assert gathered(group) == list(range(WORLD))
        store.set(f"gathered{number}/{RANK}", "it")
        store.wait([f"gathered{number}/{rank}" for rank in range(WORLD)])
        group.abort()
        del group
        counts.append([len(os.listdir(f"/proc/self/{kind}")) for kind in ("task", "fd")])
        resident.append(
            int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        )
    return [counts, resident[-1] - resident[REPEATS // 2], len(launch._opened)]


def survived(store: dist.Store) -> Any:
    """The last rank ends; the others learn it, abort, and continue as a smaller group."""
    first = group_of(dist.PrefixStore("first", store), RANK, WORLD)
    seen_in(first)
    if RANK == WORLD - 1:
        os._exit(9)
    try:
        while True:
            gathered(first)
    except RuntimeError:
        started = time.monotonic()
    first.abort()
    second = group_of(dist.PrefixStore("second", store), RANK, WORLD - 1)
    return [seen_in(second), time.monotonic() - started, first.size()]


def threads(store: dist.Store) -> Any:
    """Each rank is a thread of one process; each makes two groups."""
    seen: dict[int, Any] = {}

    def run(rank: int) -> None:
        own = store.clone()  # a call that waits keeps others from the same connection
        groups = [group_of(dist.PrefixStore(name, own), rank, 2) for name in ("one", "two")]
        seen[rank] = [seen_in(group) for group in groups]

    ranks = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return seen


def numbered(store: dist.Store) -> Any:
    """The job of the first group has no number left for the second."""
    first = group_of(dist.PrefixStore("first", store), RANK, WORLD)
    before = seen_in(first)
    if RANK == 0:
        (opened,) = launch._opened
        store.add(opened.core.job, 1 << 16)
    broadcast(first)
    second = group_of(dist.PrefixStore("second", store), RANK, WORLD)
    after = seen_in(second)
    tensor = torch.tensor([RANK + 1])
    first.allreduce([tensor]).wait()
    return [before, after, int(tensor)]


def main() -> None:
    """Do as asked; report the observations."""
    torch.set_num_threads(1)
    ways = (swapped, aborted, repeated, survived, threads, numbered)
    seen = {way.__name__: way for way in ways}[sys.argv[2]](meeting())
    with open(sys.argv[1], "w") as out:
        json.dump(seen, out)
    launch.close_all()


if __name__ == "__main__":
    main()
