"""Facts about recorded training: passes, collectives and messages of two ranks, and their job."""

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
dist = torch.distributed
spawning = multiprocessing.get_context("spawn")

WORLD = 2
STEPS = 3
WARM_UP = 2


def _train(folder: Path, rank: int) -> None:
    from torch.nn.parallel import DistributedDataParallel

    from gradwire import events

    store = dist.FileStore(str(folder / "store"), WORLD)
    torch.set_num_threads(1)
    with events.recording(folder, steps=STEPS):
        dist.init_process_group("gradwire", store=store, rank=rank, world_size=WORLD)
        layers = [torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8)]
        model = DistributedDataParallel(torch.nn.Sequential(*layers))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(STEPS + WARM_UP):
            optimizer.zero_grad()
            model(torch.ones(16, 64)).square().mean().backward()
            optimizer.step()
        # The recorder has the job's keys although the script closes the job.
        dist.destroy_process_group()


def _messages(trace: dict[str, Any], word: str) -> list[tuple[int, ...]]:
    """Return group, sequence, part and ends of the messages whose names have ``word``."""
    named = ("group", "sequence", "part", "from", "to", "bytes")
    events = [event for event in trace["traceEvents"] if f".{word}~>" in event["name"]]
    return sorted(tuple(event["args"]["message"][key] for key in named) for event in events)


def both_ranks_record_every_step_both_ends_of_messages_and_the_job(tmp_path: Path) -> None:
    processes = [spawning.Process(target=_train, args=(tmp_path, rank)) for rank in range(WORLD)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    traces = [json.loads((tmp_path / f"events-rank{rank}.json").read_text()) for rank in (0, 1)]
    for trace in traces:
        passes = [(one["cat"], one["args"]["step"]) for one in trace["traceEvents"]]
        for step in range(STEPS):
            counts = [passes.count((cat, step)) for cat in ("FW", "BW", "UPDATE")]
            assert counts == [2, 4, 1], step
        assert trace["gradwire"]["keys"]["collectives.chunk"] == '"4MiB"'
        assert trace["gradwire"]["layers"] == ["0", "2"]
    sent, received = _messages(traces[0], "SEND"), _messages(traces[1], "RECV")
    assert sent
    assert sent == received
