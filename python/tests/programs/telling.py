"""Ranks whose lines, recorders and signals a test looks at.

The argument after the report's path is the name of a function below.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from gradwire import log
from gradwire.ddp import register

TOLD: list[int] = []
LINES: list[logging.LogRecord] = []


class Keeping(logging.Handler):
    """Keeps every line."""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line."""
        LINES.append(record)


def report(seen: dict[str, object]) -> None:
    """Write this rank's observations."""
    with open(sys.argv[1], "w") as out:
        json.dump(seen, out)


def terminated() -> None:
    """Rank 0 waits in an operation that rank 1 never joins, and is told to end meanwhile."""
    dist.all_reduce(torch.ones(8))
    if dist.get_rank() == 0:
        threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
        dist.all_reduce(torch.ones(1 << 20))
    time.sleep(6)


def handled() -> None:
    """Every rank has had a handler of its own for SIGTERM before it joined."""
    dist.all_reduce(torch.ones(8))
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1)
    dist.barrier()
    report({"told": TOLD})


def forked() -> None:
    """A fork of each rank, such as a loader of data, is told to end."""
    dist.all_reduce(torch.ones(8))
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    os.kill(child, signal.SIGTERM)
    report({"code": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])})
    dist.barrier()


def registered() -> None:
    """A model is registered."""
    register(DistributedDataParallel(torch.nn.Linear(2, 2)), 0.1, groups={"bias": 0.0})
    report({})


def logged() -> None:
    """The program uses logging; rank 1 ends, and rank 0 learns of it."""
    registered()
    if dist.get_rank() == 1:
        os._exit(9)
    try:
        while True:
            dist.all_reduce(torch.ones(8))
    except RuntimeError:
        log._end()
    report({"lines": [[line.name, line.levelname, line.getMessage()] for line in LINES]})
    os._exit(0)


def main() -> None:
    """Prepare, join, do as asked."""
    torch.set_num_threads(1)
    way = sys.argv[2]
    if way == "handled":
        signal.signal(signal.SIGTERM, lambda number, _frame: TOLD.append(number))
    if way == "logged":
        logging.basicConfig(level=logging.INFO, handlers=[Keeping()])
    dist.init_process_group("gradwire", timeout=timedelta(seconds=60))
    ways = (terminated, handled, forked, registered, logged)
    {known.__name__: known for known in ways}[way]()


if __name__ == "__main__":
    main()
