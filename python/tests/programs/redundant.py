"""A server that a test may kill, or one that comes in its place.

Arguments are the number of servers, the timeout, and whether it "lives" or "dies" while it is
rebuilt. The optimizer has state: a server without it would compute other updates.
"""

import os
import sys
from functools import partial

import torch

from gradwire import ps
from gradwire.ps.redundancy import Redundancy


def _die(*_: object) -> None:
    os._exit(9)


if __name__ == "__main__":
    torch.set_num_threads(1)
    if sys.argv[3] == "dies":
        Redundancy._receive = _die  # the other servers have begun to send
    setup = ps.Setup(servers=int(sys.argv[1]), timeout=float(sys.argv[2]))
    try:
        ps.Server(setup, partial(torch.optim.Adam, lr=0.01)).serve()
    except ps.FailedError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
