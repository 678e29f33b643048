"""Train a transformer by DiLoCo under torchft, replicas that meet rarely and come and go.

``python examples/train_diloco.py --replicas 2 --backend gradwire --tolerance 0.1`` starts a
lighthouse of torchft and the replicas as processes of this machine. On several machines, start
``torchft_lighthouse --min-replicas 2`` on one, and on each of the others this program with its
number in --replica, the lighthouse in --lighthouse, and its own address in --host.

Each replica trains alone for --every steps; then the change of its parameters since the last
meeting is averaged over all replicas, and an outer optimizer follows it. That average is all that
the network carries. The last line is JSON: ``outer_s`` are the seconds that each meeting took.
"""

from __future__ import annotations

import argparse
import json
import logging
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torchft import Manager, ProcessGroupGloo
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo

from gradwire.torchft import ProcessGroupGradwire
from transformer import arguments, batch, loss_of, told, transformer

TIMEOUT = timedelta(seconds=120)


def group_of(chosen: argparse.Namespace) -> dist.ProcessGroup:
    """Make the process group that the manager configures for each quorum."""
    if chosen.backend == "gloo":
        return ProcessGroupGloo(timeout=TIMEOUT)
    return ProcessGroupGradwire(timeout=TIMEOUT, tolerance=chosen.tolerance)


class Replica:
    """The model of one replica, with its optimizers."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        """Start from the same parameters as the others."""
        self.model = transformer()
        self.inner = torch.optim.AdamW(self.model.parameters(), lr=3e-3)
        self.outer = torch.optim.SGD(self.model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        self.chosen = chosen

    def save(self) -> dict[str, Any]:
        """Return what a replica that comes later must have."""
        optimizers = {"inner": self.inner.state_dict(), "outer": self.outer.state_dict()}
        return {"model": self.model.state_dict(), **optimizers}

    def load(self, state: dict[str, Any]) -> None:
        """Continue from the state of another replica."""
        self.model.load_state_dict(state["model"])
        self.inner.load_state_dict(state["inner"])
        self.outer.load_state_dict(state["outer"])

    def train(self) -> tuple[list[float], list[float]]:
        """Train; return the losses, and the seconds of each step that met the other replicas."""
        store = dist.TCPStore(self.chosen.host, 0, is_master=True, wait_for_workers=False)
        members = membership_of(self.chosen, store, self)
        losses, met = [], []
        every = self.chosen.every
        with DiLoCo(members, [self.model], self.inner, self.outer, sync_every=every):
            for step in range(1, self.chosen.steps + 1):
                inputs, targets = batch(step, 8, part=self.chosen.replica)
                self.inner.zero_grad()
                loss = loss_of(self.model(inputs), targets)
                loss.backward()
                started = time.monotonic()
                self.inner.step()
                losses.append(loss.item())
                if step % every == 0:
                    met.append(time.monotonic() - started)
        members.shutdown(wait=False)
        return losses, met


def membership_of(chosen: argparse.Namespace, store: dist.TCPStore, replica: Replica) -> Manager:
    """Make the manager of a replica that is one process."""
    return Manager(
        pg=group_of(chosen),
        min_replica_size=chosen.replicas,
        use_async_quorum=False,
        replica_id=f"replica{chosen.replica}",
        store_addr=chosen.host,
        store_port=store.port,
        rank=0,
        world_size=1,
        lighthouse_addr=chosen.lighthouse,
        hostname=chosen.host,
        timeout=TIMEOUT,
        state_dict=replica.save,
        load_state_dict=replica.load,
    )


def start_all(chosen: argparse.Namespace) -> None:
    """Start a lighthouse, and every replica as a process."""
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=chosen.replicas)
    given = [*sys.argv[1:], "--lighthouse", lighthouse.address()]
    replicas = [
        subprocess.Popen([sys.executable, __file__, *given, "--replica", str(number)])
        for number in range(chosen.replicas)
    ]
    codes = [replica.wait() for replica in replicas]
    lighthouse.shutdown()
    sys.exit(max(codes))


def main() -> None:
    """Train one replica, or start all."""
    parser = arguments(__doc__)
    parser.add_argument("--replicas", type=int, default=2, help="replicas of a quorum, at least")
    parser.add_argument("--every", type=int, default=10, help="steps between two meetings")
    parser.add_argument("--tolerance", type=float, default=0.0, help="share that may be missing")
    parser.add_argument("--replica", type=int, help="number of this replica; default: start all")
    parser.add_argument("--lighthouse", help="address of torchft's lighthouse")
    parser.add_argument("--host", default="localhost", help="this machine, as others reach it")
    chosen = parser.parse_args()
    if chosen.replica is None:
        return start_all(chosen)
    logging.getLogger("torchft").setLevel(logging.WARNING)
    torch.set_num_threads(1)
    losses, met = Replica(chosen).train()
    if chosen.replica == 0:
        print(told(losses))
        print(json.dumps({"backend": chosen.backend, "outer_s": met, "loss": losses[-1]}))
    return None


if __name__ == "__main__":
    main()
