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

- ``setup`` is the configuration of all processes; through ``meeting`` they find each other.
- ``worker`` and ``server`` are the two sides; ``visit`` serves one worker at one server over a
  ``link``.
- ``layout`` assigns parameters to servers, ``progress`` decides which workers may continue, and
  ``shard`` sums gradients and runs the optimizer.
"""

from gradwire.ps.meeting import FailedError
from gradwire.ps.server import Server
from gradwire.ps.setup import ASYNC, SSP, SYNC, Mode, Setup
from gradwire.ps.worker import Push, Worker

__all__ = ["ASYNC", "SSP", "SYNC", "FailedError", "Mode", "Push", "Server", "Setup", "Worker"]
