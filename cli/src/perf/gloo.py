"""One rank of Gloo, told what to do by the lines of `gradwire perf` on standard input."""

import json
import os
import queue
import sys
import threading
import time

import torch
import torch.distributed as dist

lines = queue.SimpleQueue()


def read_lines() -> None:
    """Pass lines on; without a launcher there is nothing more to do."""
    for line in sys.stdin:
        lines.put(line)
    os._exit(4)


def answer(kind: str, body: dict) -> None:
    """Tell the launcher something."""
    print(json.dumps({kind: body}), flush=True)


def measure(order: dict, rank: int) -> dict:
    """Time all-reduces of one size, each after a barrier, as gradwire's ranks do."""
    source = torch.full((order["bytes"] // 4,), float(rank + 1))
    tensor = torch.empty_like(source)
    times = []
    for _ in range(order["iterations"]):
        tensor.copy_(source)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(tensor)
        times.append((time.perf_counter() - start) * 1e6)
    return {"times_us": times}


def main() -> None:
    """Follow the launcher's orders."""
    threading.Thread(target=read_lines, daemon=True).start()
    rank = world = 0
    store = None
    while True:
        ((kind, order),) = json.loads(lines.get()).items()
        if kind == "Open":
            rank, world = order["rank"], order["world"]
            rendezvous = ""
            if rank == 0:
                store = dist.TCPStore("127.0.0.1", 0, world, is_master=True, wait_for_workers=False)
                rendezvous = f"127.0.0.1:{store.port}"
            answer("Opened", {"rendezvous": rendezvous})
        elif kind == "Join":
            host, port = order["rendezvous"].split(":")
            store = store or dist.TCPStore(host, int(port), world, is_master=False)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
            answer("Joined", {})
        elif kind == "Round":
            answer("Measured", measure(order, rank))
        else:
            dist.destroy_process_group()
            return


main()
