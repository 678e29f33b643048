"""Compare the time of training steps with and without recording, side by side in one run.

    torchrun --nproc-per-node 2 benches/recording.py

Pairs of blocks of steps follow each other: one without any recording (``trace.entries = 0`` and no
hook), one with the flight recorder and the hooks of ``gradwire.events``. For both examples, and for
each way, the medians over the blocks of both ranks: wall-clock time, and processor time of the
rank's process, which other programs on the machine hardly change.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gradwire import events

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import train_mnist
import transformer

ALLOWED = 0.02
"""Share of a step that recording may cost."""
WARM_UP = 4
"""Steps of a block that do not count: connections and memory are new."""


def _mnist() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(1)
    images = torch.rand(32, 1, 28, 28, generator=draws)
    return train_mnist.network(), images, torch.randint(10, (32,), generator=draws)


def _characters() -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    return transformer.transformer(), *transformer.batch(0, 16)


EXAMPLES = {"train_mnist": _mnist, "train_shakespeare": _characters}


def block(example: str, steps: int, watch: contextlib.AbstractContextManager[None]) -> list[list]:
    """Train some steps; return wall-clock and processor time of each, in milliseconds."""
    torch.manual_seed(1)
    model, inputs, targets = EXAMPLES[example]()
    times = []
    with watch:
        model = DistributedDataParallel(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for _ in range(steps + WARM_UP):
            began = time.perf_counter(), time.process_time()
            optimizer.zero_grad()
            outputs = model(inputs)
            nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten()).backward()
            optimizer.step()
            ended = time.perf_counter(), time.process_time()
            times.append([(end - begin) * 1e3 for begin, end in zip(began, ended, strict=True)])
    return times[WARM_UP:]


def compared(ranks: list[dict[str, list]], at: int) -> tuple[float, dict[str, float]]:
    """Return the median cost of pairs of blocks of all ranks, and the median of each way."""
    costs, whole = [], {"without": [], "with": []}
    for seen in ranks:
        medians = {
            way: [statistics.median(step[at] for step in steps) for steps in blocks]
            for way, blocks in seen.items()
        }
        pairs = zip(medians["without"], medians["with"], strict=True)
        costs += [after / before - 1 for before, after in pairs]
        for way, times in medians.items():
            whole[way] += times
    return statistics.median(costs), {way: statistics.median(times) for way, times in whole.items()}


def main() -> int:
    """Alternate the blocks; print a row for each example."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=12, help="blocks of each way (default: 12)")
    parser.add_argument("--steps", type=int, default=25, help="steps of a block (default: 25)")
    options = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    # torchrun's own store is at that port; each block has a part of it for itself.
    store = dist.TCPStore(*address, world, is_master=False)
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    job = folder / "job.toml"
    os.environ["GRADWIRE_JOB"] = str(job)
    worst = 0.0
    for example in EXAMPLES:
        seen: dict[str, list[list[list[float]]]] = {"without": [], "with": []}
        for number in range(2 * options.blocks):
            # Which way goes first changes from pair to pair.
            way = list(seen)[(number + number // 2) % 2]
            job.write_text("" if way == "with" else "[trace]\nentries = 0\n")
            part = dist.PrefixStore(f"{example} {number}", store)
            dist.init_process_group("gradwire", store=part, rank=rank, world_size=world)
            watch = contextlib.nullcontext()
            if way == "with":
                watch = events.recording(folder / example, steps=options.steps + WARM_UP)
            seen[way].append(block(example, options.steps, watch))
            dist.destroy_process_group()
        store.set(f"{example} of {rank}", json.dumps(seen))
        ranks = [json.loads(store.get(f"{example} of {of}")) for of in range(world)]
        for at, what in enumerate(("wall-clock", "processor")):
            cost, whole = compared(ranks, at)
            worst = max(worst, cost) if what == "processor" else worst
            if rank == 0:
                print(
                    f"{example:<20}{what:<12}without {whole['without']:8.3f} ms  "
                    f"with {whole['with']:8.3f} ms  pairs of blocks {100 * cost:+5.2f} %",
                    flush=True,
                )
    shutil.rmtree(folder)
    return worst > ALLOWED


if __name__ == "__main__":
    sys.exit(main())
