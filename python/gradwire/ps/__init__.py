"""A parameter server: workers push gradients and pull parameters, servers optimize.

Start here, in a script that ``torchrun`` starts on all ranks, of which the last two serve::

    setup = ps.Setup(servers=2, mode=ps.SSP(staleness=3))
    if setup.is_server:
        ps.Server(setup, partial(torch.optim.SGD, lr=0.05, momentum=0.9)).serve()
    else:
        with ps.Worker(setup, model) as worker:
            for inputs, labels in batches:
                loss_of(model(inputs), labels).backward()
                worker.step()  # in place of optimizer.step()

- ``setup``: what all processes agree on. ``meeting``: how they find each other.
- ``worker``, ``server``, and ``visit``, what passes between one of each, over a ``link``.
- ``layout``: which server has what. ``progress``: who may go on. ``shard``: sums and optimizer.
"""

from gradwire.ps.meeting import FailedError
from gradwire.ps.server import Server
from gradwire.ps.setup import ASYNC, SSP, SYNC, Mode, Setup
from gradwire.ps.worker import Push, Worker

__all__ = ["ASYNC", "SSP", "SYNC", "FailedError", "Mode", "Push", "Server", "Setup", "Worker"]
