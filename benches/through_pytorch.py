"""What training gains through PyTorch: steps per second under DDP, and small all-reduces.

``python benches/through_pytorch.py -n 2 -n 4`` starts the ranks on this machine. Each rank has a
process group of Gloo and one of gradwire, and runs rounds of the same work over both in turn, so
that both see the same machine; ``none`` is the same model without communication, an upper bound for
any backend. Printed are medians over the rounds, and gradwire over Gloo.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BACKENDS = ("gloo", "gradwire")
BATCH = 16
TOKENS = 84
WINDOW = 64
WIDTH = 128
SMALL_ELEMENTS = 1024
SMALL_CALLS = 200


class Transformer(nn.Module):
    """A character transformer of 4 layers, 0.8 million parameters."""

    def __init__(self) -> None:
        """Draw the weights."""
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.place = nn.Parameter(torch.zeros(WINDOW, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, 0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, TOKENS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(WINDOW))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Predict the next token of each."""
        hidden = self.layers(self.embed(tokens) + self.place, mask=self.mask, is_causal=True)
        return self.head(hidden).flatten(0, 1)


def _cnn() -> nn.Module:
    """Make a CNN for digits, 0.8 million parameters."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(1568, 512), nn.ReLU(), nn.Linear(512, 10)),
    )


def _cnn_batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(BATCH, 1, 28, 28), torch.randint(0, 10, (BATCH,))


def _transformer_batch() -> tuple[torch.Tensor, torch.Tensor]:
    tokens = torch.randint(0, TOKENS, (BATCH, WINDOW + 1))
    return tokens[:, :-1], tokens[:, 1:].flatten()


MODELS = {
    "cnn": (_cnn, _cnn_batch, 30),
    "transformer": (Transformer, _transformer_batch, 8),
}


def _steps(model: nn.Module, batch: Callable[[], tuple], count: int) -> float:
    """Train ``count`` steps; return the seconds of the median step of the slowest rank."""
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        inputs, targets = batch()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _slowest(seconds: float) -> float:
    slowest = torch.tensor([seconds], dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.item()


def _training(groups: dict[str, dist.ProcessGroup], name: str, rounds: int) -> dict[str, list]:
    """Steps per second of each backend and without communication, by round."""
    make, batch, steps = MODELS[name]
    torch.manual_seed(1)
    models = {
        backend: DistributedDataParallel(make(), process_group=group, bucket_cap_mb=1)
        for backend, group in groups.items()
    }
    models["none"] = make()
    for model in models.values():
        _steps(model, batch, 3)
    out: dict[str, list] = {backend: [] for backend in models}
    for _ in range(rounds):
        for backend, model in models.items():
            dist.barrier()
            out[backend].append(1 / _slowest(_steps(model, batch, steps)))
    return out


def _small(groups: dict[str, dist.ProcessGroup], rounds: int) -> dict[str, list]:
    """Microseconds of an all-reduce of 4 KiB over each backend, by round."""
    tensor = torch.zeros(SMALL_ELEMENTS)
    out: dict[str, list] = {backend: [] for backend in groups}
    for _ in range(rounds):
        for backend, group in groups.items():
            dist.barrier()
            seconds = []
            for _ in range(SMALL_CALLS):
                start = time.perf_counter()
                dist.all_reduce(tensor, group=group)
                seconds.append(time.perf_counter() - start)
            out[backend].append(_slowest(statistics.median(seconds)) * 1e6)
    return out


def _rank(rounds: int) -> None:
    """Measure on one rank; rank 0 prints the results of all ranks as JSON."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    groups = {backend: dist.new_group(backend=backend) for backend in BACKENDS}
    results = {name: _training(groups, name, rounds) for name in MODELS}
    results["all_reduce 4 KiB, us"] = _small(groups, rounds)
    if dist.get_rank() == 0:
        print(json.dumps(results))
    dist.destroy_process_group()


def _launch(world: int, rounds: int) -> dict[str, dict[str, list]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    common = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, OMP_NUM_THREADS="1")
    command = [sys.executable, __file__, "--as-rank", "--rounds", str(rounds)]
    ranks = [
        subprocess.Popen(
            command,
            env=common | {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)},
            stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
            text=True,
        )
        for rank in range(world)
    ]
    printed, _ = ranks[0].communicate()
    if any(process.wait() for process in ranks):
        raise SystemExit("through_pytorch: a rank failed; what it said is above")
    return json.loads(printed.splitlines()[-1])


def _row(world: int, name: str, by_backend: dict[str, list]) -> dict[str, object]:
    """One line of the table: medians, and the ratio of each round."""
    faster_is_more = name in MODELS
    ratios = sorted(
        ours / gloo if faster_is_more else gloo / ours
        for ours, gloo in zip(by_backend["gradwire"], by_backend["gloo"], strict=True)
    )
    medians = {backend: statistics.median(values) for backend, values in by_backend.items()}
    spread = {"ratio": statistics.median(ratios), "least": ratios[0], "most": ratios[-1]}
    return {"ranks": world, "what": name, **medians, **spread}


def _print(row: dict[str, object]) -> None:
    none = f"{row['none']:8.1f}" if "none" in row else "       -"
    print(
        f"{row['ranks']:5} {row['what']:22} {row['gloo']:9.1f} {row['gradwire']:9.1f} {none} "
        f"{row['ratio']:6.2f} ({row['least']:.2f}-{row['most']:.2f})",
        flush=True,
    )


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, action="append", help="ranks; may be repeated (2 and 4)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each backend (5)")
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.as_rank:
        _rank(arguments.rounds)
        return
    if not arguments.json:
        print("ranks what                    Gloo      gradwire  none   ratio (least-most)")
    for world in arguments.n or [2, 4]:
        for name, by_backend in _launch(world, arguments.rounds).items():
            row = _row(world, name, by_backend)
            print(json.dumps(row)) if arguments.json else _print(row)


if __name__ == "__main__":
    main()
