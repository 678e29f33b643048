"""Facts about training whose all-reduces an aggregator sums: its process, and ranks under DDP."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from launching import Launch

TOKEN = ("GRADWIRE_TOKEN", "a token of this test")
COMMAND = str(Path(sys.executable).parent / "gradwire")
WORLD = 2


@contextlib.contextmanager
def _aggregator(said: list[dict[str, int]]) -> Iterator[str]:
    """Run an aggregator, and add what it has counted to ``said`` in the end."""
    command = [COMMAND, "aggregate", "--listen", "127.0.0.1:0", "--until-input-ends"]
    process = subprocess.Popen(
        command,
        env=dict([TOKEN]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())["aggregator"]
    finally:
        process.stdin.close()
        said.extend(json.loads(line) for line in process.stdout)
        process.wait(timeout=30)


def _trained(backend: str, address: str) -> list[dict[str, Any]]:
    """Train under DDP and return the reports of all ranks."""
    job = f'[collectives]\nalgorithm = "in-network"\naggregator = "{address}"\n'
    ways = (backend, "plain")
    launch = Launch("training.py", world=WORLD, arguments=ways, job=job, variables=(TOKEN,))
    return [ended.succeeded() for ended in launch.run()]


def training_through_an_aggregator_equals_gloo() -> None:
    said: list[dict[str, int]] = []
    with _aggregator(said) as address:
        ranks = _trained("gradwire", address)
    assert said[0]["summed_packets"] > 0
    assert said[0]["refused_packets"] == 0
    assert ranks[0]["hash"] == ranks[1]["hash"]
    gloo = _trained("gloo", address)
    ours, theirs = (torch.tensor(one[0]["parameters"]) for one in (ranks, gloo))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def training_without_its_aggregator_equals_gloo() -> None:
    address = "127.0.0.1:9"
    ranks, gloo = (_trained(backend, address) for backend in ("gradwire", "gloo"))
    assert ranks[0]["hash"] == ranks[1]["hash"]
    ours, theirs = (torch.tensor(one[0]["parameters"]) for one in (ranks, gloo))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
