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


def ping_pong(tensor: torch.Tensor, source: torch.Tensor) -> None:
    """Rank 0 sends and rank 1 answers; the others look on."""
    rank = dist.get_rank()
    if rank == 0:
        dist.send(source, 1)
        dist.recv(tensor, 1)
    elif rank == 1:
        dist.recv(tensor, 0)
        dist.send(source, 0)


def exercise(kind: str, elements: int, rank: int, world: int) -> tuple:
    """What to do, the tensor with the result, and what it holds before."""
    whole = torch.full((elements,), float(rank + 1))
    block = whole[: elements // world]
    scatter, gather = dist.reduce_scatter_tensor, dist.all_gather_into_tensor
    return {
        "all-reduce": (dist.all_reduce, whole.clone(), whole),
        "reduce-scatter": (lambda out: scatter(out, whole), block.clone(), block),
        "all-gather": (lambda out: gather(out, block), whole.clone(), whole),
        "broadcast": (lambda out: dist.broadcast(out, 0), whole.clone(), whole),
        "reduce": (lambda out: dist.reduce(out, 0), whole.clone(), whole),
        "all-to-all": (lambda out: dist.all_to_all_single(out, whole), whole.clone(), whole),
        "barrier": (lambda _: dist.barrier(), whole.clone(), whole),
        "send-recv": (lambda out: ping_pong(out, whole), whole.clone(), whole),
    }[kind]


def measure(order: dict, rank: int, world: int) -> dict:
    """Time collectives of one size, each between barriers, as gradwire's ranks do."""
    act, tensor, source = exercise(order["kind"], order["bytes"] // 4, rank, world)
    times = []
    for _ in range(order["iterations"]):
        tensor.copy_(source)
        dist.barrier()
        start = time.perf_counter()
        act(tensor)
        times.append((time.perf_counter() - start) * 1e6)
        dist.barrier()
    if order["kind"] == "send-recv":
        times = [one / 2 if rank == 0 else 0.0 for one in times]
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
                place = order["bind"]
                store = dist.TCPStore(place, 0, world, is_master=True, wait_for_workers=False)
                rendezvous = f"{place}:{store.port}"
            answer("Opened", {"rendezvous": rendezvous})
        elif kind == "Join":
            host, port = order["rendezvous"].split(":")
            store = store or dist.TCPStore(host, int(port), world, is_master=False)
            dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
            answer("Joined", {"wire": "tcp"})
        elif kind == "Round":
            answer("Measured", measure(order, rank, world))
        else:
            dist.destroy_process_group()
            return


main()
