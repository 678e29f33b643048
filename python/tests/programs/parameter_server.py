"""A server, or a worker that trains until it is killed, a server is, or a rank says "enough".

The argument is a folder: every rank writes its notes there, each file whole at once. Workers
leave ``entered<r>`` (clock at the start), ``clock<r>`` after five steps of each life, ``latest<r>``
and ``error<r>`` when training fails: after how many seconds, and the error's text.
"""

import os
import sys
import threading
import time
from functools import partial
from pathlib import Path

import torch
from torch import nn

from gradwire import ps


def _note(path: Path, text: str) -> None:
    """Write a file, whole at once."""
    draft = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}")
    draft.write_text(text)
    draft.rename(path)


def _train(folder: Path, setup: ps.Setup) -> None:
    """Train, slowly, until something ends it."""
    model = nn.Linear(64, 64)
    started = time.monotonic()
    try:
        with ps.Worker(setup, model) as worker:
            first = worker.clock
            _note(folder / f"entered{setup.rank}", str(first))
            while not (folder / "enough").exists():
                started = time.monotonic()
                model.zero_grad()
                model(torch.randn(8, 64)).square().mean().backward()
                worker.step()
                time.sleep(0.02)
                if worker.clock == first + 5:
                    _note(folder / f"clock{setup.rank}", str(worker.clock))
                _note(folder / f"latest{setup.rank}", str(worker.clock))
    except ps.FailedError as error:
        _note(folder / f"error{setup.rank}", f"{time.monotonic() - started:.1f} {error}")


def setup_of(rank: int | None = None, world: int | None = None) -> ps.Setup:
    """Describe two servers, for the rank of the environment if none is given."""
    given = {} if rank is None or world is None else {"rank": rank, "world_size": world}
    return ps.Setup(servers=2, mode=ps.SSP(2), timeout=30, **given)


def run(folder: Path, rank: int | None = None, world: int | None = None) -> None:
    """Serve or train; rank and world size are those of the environment if none are given."""
    setup = setup_of(rank, world)
    if setup.is_server:
        ps.Server(setup, partial(torch.optim.SGD, lr=0.1)).serve()
    else:
        _train(folder, setup)


if __name__ == "__main__":
    torch.set_num_threads(1)
    run(Path(sys.argv[1]))
