"""Forks a rank that is in a job; the child uses the process group of its parent."""

import json
import os
import sys
from typing import Any

import torch
import torch.distributed as dist


def told_by_fork(act: Any) -> dict[str, str]:
    """Return the errors of a forked child that does something, by what it did."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, json.dumps(act()).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        text = told.read()
    os.waitpid(child, 0)
    return json.loads(text)


def error_of(act: Any) -> str:
    """Return the error of a call, empty if there was none."""
    try:
        act()
    except RuntimeError as error:
        return str(error)
    return ""


def forked() -> Any:
    """A child of rank 1 takes part in collectives, and waits for one that its parent began."""
    tensor = torch.ones(4)
    dist.all_reduce(tensor)
    told = {}
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 1:
        # Rank 0 takes part only when the child has told: until then the operation is not done.
        work = dist.all_reduce(torch.ones(4), async_op=True)

        def act() -> dict[str, str]:
            submitted = error_of(lambda: dist.all_reduce(torch.full((4,), 100.0)))
            return {"submitted": submitted, "waited": error_of(work.wait)}

        told = told_by_fork(act)
        store.set("the child has told", "")
        work.wait()
    else:
        store.wait(["the child has told"])
        dist.all_reduce(torch.ones(4))
    sums = []
    for _ in range(3):
        tensor = torch.ones(4)
        dist.all_reduce(tensor)
        sums.append(tensor[0].item())
    dist.destroy_process_group()
    return {"told": told, "sums": sums}


def main() -> None:
    """Fork, then continue; report the observations."""
    torch.set_num_threads(1)
    dist.init_process_group("gradwire")
    seen = forked()
    with open(sys.argv[1], "w") as out:
        json.dump(seen, out)


if __name__ == "__main__":
    main()
