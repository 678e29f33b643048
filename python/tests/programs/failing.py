"""Lets one rank fail in a chosen way and reports how the other ranks fare.

The argument after the report's path is the name of a function below.
"""

import datetime
import json
import os
import signal
import sys
import time
import urllib.request

import torch
import torch.distributed as dist

import gradwire


def report(seen: dict[str, object]) -> None:
    """Write this rank's observations."""
    with open(sys.argv[1], "w") as out:
        json.dump(seen, out)


def reduce_until_error() -> None:
    """All-reduce until an error is raised; report it and how long the last operation took."""
    tensor = torch.ones(1 << 20)
    started = time.monotonic()
    try:
        while True:
            started = time.monotonic()
            dist.all_reduce(tensor)
    except RuntimeError as error:
        seconds = time.monotonic() - started
        seen = {"error": str(error), "kind": type(error).__name__, "seconds": seconds}
        started = time.monotonic()
        dist.destroy_process_group()
        report({**seen, "destroyed": time.monotonic() - started})


def killed() -> None:
    """Rank 1 is killed in the middle of an all-reduce."""
    if dist.get_rank() == 1:
        for _ in range(5):
            dist.all_reduce(torch.ones(1 << 20))
        dist.all_reduce(torch.ones(1 << 20), async_op=True)
        os.kill(os.getpid(), signal.SIGKILL)
    reduce_until_error()


def silent() -> None:
    """Rank 1 lives but takes no part; the group's timeout is two seconds."""
    if dist.get_rank() == 1:
        time.sleep(6)
        report({})
    else:
        reduce_until_error()


def leaves() -> None:
    """Rank 1 ends with an operation pending and without saying goodbye."""
    if dist.get_rank() == 1:
        dist.all_reduce(torch.ones(8), async_op=True)
        report({})
        return
    dist.all_reduce(torch.ones(8))
    reduce_until_error()


def again() -> None:
    """The group is destroyed and created again in the same processes.

    The ranks meet by a file: PyTorch's store on a port may be asked for again before it is gone.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    for turn in range(2):
        tensor = torch.ones(8)
        dist.all_reduce(tensor)
        dist.destroy_process_group()
        meeting = f"file://{os.path.dirname(sys.argv[1])}/meeting-{turn}"
        dist.init_process_group("gradwire", init_method=meeting, rank=rank, world_size=world)
    dist.all_reduce(tensor)
    report({"sum": tensor[0].item()})
    dist.destroy_process_group()


def watched() -> None:
    """Each rank asks the port that is its own who it is."""
    local = int(os.environ["LOCAL_RANK"])
    url = f"http://127.0.0.1:{int(sys.argv[3]) + local}/snapshot"
    with urllib.request.urlopen(url, timeout=10) as answer:
        report({"rank": json.load(answer)["rank"], "local": local})
    dist.barrier()


def traced() -> None:
    """Rank 1 takes no part in an operation; rank 0 looks at its trace meanwhile, then fails."""
    dist.barrier()
    if dist.get_rank() == 1:
        time.sleep(4)
        report({})
        return
    work = dist.all_reduce(torch.ones(1 << 10), async_op=True)
    live = gradwire.trace()
    while live[0]["operations"][-1]["needs"] is None:
        live = gradwire.trace()  # the operation is on its way to the thread that runs it
    try:
        work.wait()
    except RuntimeError as error:
        report({"error": str(error), "live": live})


def starts() -> None:
    """Nothing fails after the start."""
    report({})


def main() -> None:
    """Start, then fail as asked."""
    torch.set_num_threads(1)
    seconds = 2 if sys.argv[2] in ("silent", "traced") else 60
    dist.init_process_group("gradwire", timeout=datetime.timedelta(seconds=seconds))
    ways = (killed, silent, leaves, again, watched, traced, starts)
    {way.__name__: way for way in ways}[sys.argv[2]]()


if __name__ == "__main__":
    main()
