"""Ends groups while others of their job continue, and checks what is left of them.

The argument after the report's path is the name of a function below; the next one is the first port
of the metrics, at which each rank counts the packets that it has sent.
"""

import contextlib
import datetime
import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from gradwire import launch

RANK = int(os.environ["RANK"])
CPU = torch.device("cpu")
QUIET_SECONDS = 3.0
SETTLED_SECONDS = 2.0
MESSAGE = 50_000


def sent_packets() -> int:
    """Return how many packets this rank has sent to all others."""
    url = f"http://127.0.0.1:{int(sys.argv[3]) + RANK}/snapshot"
    with urllib.request.urlopen(url, timeout=10) as answer:
        peers = json.load(answer)["peers"]
    return sum(row["sent_packets"] for peer in peers for row in peer["classes"])


def sent_meanwhile() -> int:
    """Return how many packets this rank sends while no rank asks for any."""
    meet()
    return sent_among(int(os.environ["WORLD_SIZE"]))


def sent_among(ranks: int) -> int:
    """Return how many packets this rank sends while none of ``ranks`` ranks asks for any."""
    time.sleep(SETTLED_SECONDS)
    before = sent_packets()
    time.sleep(QUIET_SECONDS)
    sent = sent_packets() - before
    meet(ranks)  # before a rank that is ready sooner sends again
    return sent


_met = iter(range(1000))


def meet(ranks: int | None = None) -> None:
    """Wait for this many ranks, or for all, at PyTorch's store, without a packet of gradwire."""
    store = dist.distributed_c10d._get_default_store()
    name = f"met/{next(_met)}"
    if store.add(name, 1) == (ranks or int(os.environ["WORLD_SIZE"])):
        store.set(f"{name}/all", "here")
    store.wait([f"{name}/all"])


def summed(group: dist.ProcessGroup | None = None) -> float:
    """Return the first element of an all-reduce of ones."""
    tensor = torch.ones(8)
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


def failure_of(wait: Callable[[], Any]) -> dict[str, Any]:
    """Return the error of an operation and how long it took to arrive."""
    started = time.monotonic()
    try:
        wait()
    except RuntimeError as error:
        return {"error": str(error), "seconds": time.monotonic() - started}
    return {"error": "", "seconds": time.monotonic() - started}


def unmatched_send(seen: dict[str, Any]) -> None:
    """Rank 0 sends a message that rank 1 never receives; one of them destroys the group."""
    for ends in range(2):
        group = dist.new_group()
        summed(group)
        work = dist.isend(torch.ones(MESSAGE), 1, group=group) if RANK == 0 else None
        waiting = sent_meanwhile()
        if ends == RANK:
            dist.destroy_process_group(group)
        meet()
        if work is not None:
            seen[f"send ended by {ends}"] = failure_of(work.wait) | {"waiting": waiting}
        seen[f"after {ends}"] = sent_meanwhile()
    seen["sum"] = summed()


def dropped_work(seen: dict[str, Any]) -> None:
    """Rank 0 keeps no Work of its message, which rank 1 receives a second later."""
    if RANK == 0:
        dist.isend(torch.full((MESSAGE,), 7.0), 1)
        torch.ones(MESSAGE)  # memory of its size, should it have been given back
    tensor = torch.zeros(MESSAGE)
    if RANK == 1:
        time.sleep(1)
        dist.recv(tensor, 0)
        seen["right"] = bool((tensor == 7.0).all())
    meet()


def aborted(seen: dict[str, Any]) -> None:
    """Rank 0 aborts, while messages of all ranks wait for a receive; all keep their groups."""
    summed()
    work = dist.isend(torch.ones(MESSAGE), (RANK + 1) % 3)
    meet()
    if RANK == 0:
        dist.group.WORLD._get_backend(CPU).abort()
    seen.update(failure_of(work.wait))
    seen["after"] = sent_meanwhile()


def aborted_group(seen: dict[str, Any]) -> None:
    """Rank 0 aborts one of two groups, in which messages of all ranks wait for a receive."""
    group = dist.new_group()
    summed(group)
    work = dist.isend(torch.ones(MESSAGE), (RANK + 1) % 3, group=group)
    meet()
    if RANK == 0:
        group._get_backend(CPU).abort()
    if RANK != 1:  # no rank has aborted that takes the message of rank 1
        seen.update(failure_of(work.wait))
    meet()
    if RANK != 0:
        group._get_backend(CPU).abort()
    seen["sum"] = summed()
    seen["later"] = failure_of(lambda: summed(group))["error"]
    seen["after"] = sent_meanwhile()


def lost_rank(seen: dict[str, Any]) -> None:
    """Rank 2 is killed in an operation; the others keep the group and submit nothing more."""
    summed()
    meet()
    if RANK == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    tensor = torch.ones(1 << 20)
    seen.update(failure_of(lambda: dist.all_reduce(tensor)))
    seen["after"] = sent_among(2)


def left_alone(seen: dict[str, Any]) -> None:
    """Rank 0 destroys all groups, with a message that no rank receives; the others continue."""
    group = dist.new_group([1, 2])
    store = dist.distributed_c10d._get_default_store()
    summed()
    if RANK == 0:
        dist.isend(torch.ones(MESSAGE), 1)
        started = time.monotonic()
        dist.destroy_process_group()
        seen["seconds"] = time.monotonic() - started
        store.set("left", "here")
        store.wait(["done1", "done2"])
        return
    sums = []
    while not store.check(["left"]):
        sums.append(summed(group))
        time.sleep(0.1)
        if RANK == 1:
            store.set(f"more/{len(sums)}", str(int(store.check(["left"]))))
        if store.get(f"more/{len(sums)}") == b"1":
            break
    sums.append(summed(group))
    seen["sums"] = sorted(set(sums))
    started = time.monotonic()
    dist.destroy_process_group()
    seen["seconds"] = time.monotonic() - started
    store.set(f"done{RANK}", "here")


def split_beyond_the_numbers(seen: dict[str, Any]) -> None:
    """All numbers of a job's groups but one are taken."""
    if RANK == 0:
        (opened,) = launch._opened
        taken = dist.distributed_c10d._get_default_store()
        while hasattr(taken, "underlying_store"):
            taken = taken.underlying_store
        taken.add(opened.core.job, (1 << 16) - 2)
    summed()
    last = dist.split_group(split_ranks=[[0, 1]])
    seen["last"] = summed(last)
    seen.update(failure_of(lambda: dist.split_group(split_ranks=[[0, 1]])))
    seen["sum"] = summed(dist.new_group())


def main() -> None:
    """Do as asked; report the observations."""
    torch.set_num_threads(1)
    dist.init_process_group("gradwire", timeout=datetime.timedelta(seconds=60))
    ways = (
        unmatched_send,
        dropped_work,
        aborted,
        aborted_group,
        lost_rank,
        left_alone,
        split_beyond_the_numbers,
    )
    seen: dict[str, Any] = {}
    {way.__name__: way for way in ways}[sys.argv[2]](seen)
    with open(sys.argv[1], "w") as out:
        json.dump(seen, out)
    with contextlib.suppress(Exception):
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
