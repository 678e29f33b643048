"""A server, or a worker that trains until it is killed, a server is, or somebody says "enough".

The argument is a folder: every rank writes there what it sees, each file whole at once. Workers
leave ``clock<r>`` after five steps of each life and ``error<r>`` when training fails.
"""

import os
import sys
import time
from pathlib import Path

import torch

from gradwire import ps

sys.path.insert(0, str(Path(__file__).parents[1]))
import serving

FOLDER = Path(sys.argv[1])


def note(name: str, text: str) -> None:
    """Write a file, whole at once."""
    draft = FOLDER / f"{name}.{os.getpid()}"
    draft.write_text(text)
    draft.rename(FOLDER / name)


def train(setup: ps.Setup) -> None:
    """Train, slowly, until something ends it."""
    model = serving.network()
    started = time.monotonic()
    try:
        with ps.Worker(setup, model) as worker:
            first = worker.clock
            note(f"entered{setup.rank}", str(first))
            while not (FOLDER / "enough").exists():
                started = time.monotonic()
                model.zero_grad()
                serving.loss_of(model, setup.rank, worker.clock).backward()
                worker.step()
                time.sleep(0.02)
                if worker.clock == first + 5:
                    note(f"clock{setup.rank}", str(worker.clock))
                note(f"latest{setup.rank}", str(worker.clock))
    except ps.FailedError as error:
        note(f"error{setup.rank}", f"{time.monotonic() - started:.1f} {error}")


def main() -> None:
    """Serve or train."""
    torch.set_num_threads(1)
    setup = ps.Setup(servers=2, mode=ps.SSP(2), timeout=30)
    if setup.is_server:
        ps.Server(setup, serving.SGD).serve()
    else:
        train(setup)


if __name__ == "__main__":
    main()
