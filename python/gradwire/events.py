"""Record where the time of training goes, for ``gradwire trace replay`` and for Perfetto.

Without a change of the script, or around the training loop within it::

    torchrun --nproc-per-node 2 -m gradwire.events --out events train.py

    with gradwire.events.recording("events"):
        train(...)

Each rank writes ``events-rankN.json``: the forward and backward pass of each layer and the
optimizer, as PyTorch's hooks report them, and the collectives and messages that the flight recorder
kept. The form is that of ``trace/src/event.rs``: a Chrome trace with the names of dPRO.

Times are microseconds of the host's clock; ``gradwire trace align`` finds how far the clocks of
hosts are apart. A CPU has finished its work when a hook runs; work of a GPU is noted when it was
launched.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import runpy
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.optim import optimizer as optimizers

import gradwire
from gradwire.gradients import backend_of
from gradwire.recorder import HostClock, Recorder, Step

__all__ = ["NothingRecordedError", "recording", "write_computing"]

VERSION = 1
"""The form of the events, as ``trace/src/event.rs`` has it."""
WARM_UP = 2
"""Steps at the beginning that are left out: memory is allocated, and DDP orders its buckets."""

ENDING_S = 1.0
"""The longest wait for messages of operations that have ended."""

Event = dict[str, Any]


class NothingRecordedError(Exception):
    """There is nothing to write; the message states the cause and a remedy."""


@contextlib.contextmanager
def recording(folder: str | Path, *, steps: int = 20) -> Iterator[None]:
    """Record up to ``steps`` steps of the training inside, and write them into ``folder``.

    Args:
        folder: where each rank writes a file; created if absent. Several hosts may share it.
        steps: how many steps after the first two; the flight recorder (``trace.entries``) must keep
            all operations of this many steps.

    Raises:
        NothingRecordedError: if there were fewer than two steps, or no job of gradwire was open.
    """
    watch = _Watch(steps + WARM_UP)
    with watch.watching():
        yield
    watch.keep_job()
    if watch.dump is None:
        raise NothingRecordedError(
            f"{len(watch.marked)} of {watch.most} steps were seen while a job of gradwire ran; "
            "init_process_group('gradwire') comes before them, and fewer --steps may be enough"
        )
    _write(Path(folder), watch, watch.dump)


@dataclass
class _Marked:
    """What happened in one step, and when, in microseconds of the host's clock."""

    marks: list[tuple[str, int, float]]
    update: tuple[float, float] | None = None


@dataclass
class _Watch(Recorder):
    """Keeps absolute times of steps, and those of the optimizer."""

    most: int
    marked: list[_Marked] = field(default_factory=list)
    dump: dict[str, Any] | None = None
    """The flight recorder when all steps had been seen: a script may close its job afterwards."""
    keys: dict[str, str] = field(default_factory=dict)
    """The job's keys that decide about messages, in the notation of a job file."""
    _began: float = 0.0

    def __post_init__(self) -> None:
        super().__init__(self.most)
        self._ahead = time.time_ns() - time.perf_counter_ns()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch modules, backward passes and optimizers of this process meanwhile."""
        hooks = [
            optimizers.register_optimizer_step_pre_hook(self._before_update),
            optimizers.register_optimizer_step_post_hook(self._after_update),
        ]
        try:
            with super().watching():
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def micros(self, mark: int) -> float:
        """Return a mark of the process's clock as microseconds of the host's clock."""
        return (mark + self._ahead) / 1e3

    def _meet(self, module: torch.nn.Module) -> None:
        super()._meet(module)
        self._clock = HostClock()  # an event of a GPU has no time of the host

    def _end(self) -> None:
        step, self._open, self._depth = self._open, type(self._open)(), 0
        if step.has("begun") and step.has("gradient") and len(self.marked) < self.most:
            marks = [(what, of, self.micros(mark)) for what, of, mark in step.marks]
            self.marked.append(_Marked(marks))
        self._settle()

    def _before_update(self, *_: object) -> None:
        self._began = self.micros(time.perf_counter_ns())

    def _after_update(self, *_: object) -> None:
        if self.marked and self.marked[-1].update is None:
            self.marked[-1].update = (self._began, self.micros(time.perf_counter_ns()))
        if len(self.marked) >= self.most:
            self.keep_job()

    def keep_job(self) -> None:
        """Keep the flight recorder and the keys of the open job, unless that was done before."""
        dumps = [] if self.dump else gradwire.trace()
        # The last operation ends a moment before its peers have told that all of it arrived.
        until = time.monotonic() + ENDING_S
        while dumps and dumps[0]["sending"] > 0 and time.monotonic() < until:
            time.sleep(0.001)
            dumps = gradwire.trace()
        if dumps:
            self.dump, job = dumps[0], backend_of().job()
            deciding = ("collectives.", "transport.")
            self.keys = {key: value for key, value in job.items() if key.startswith(deciding)}


@dataclass(frozen=True)
class _Layers:
    """The layers of the models from front to back, and those of modules and parameters."""

    names: list[str]
    modules: dict[int, str]
    parameters: dict[int, tuple[str, int]]
    """Name and bytes of each parameter."""

    @classmethod
    def of(cls, watch: Recorder) -> _Layers:
        names: dict[int, str] = {}
        parameters: dict[int, tuple[str, int]] = {}
        for model in watch.models:
            for name, module in model.named_modules():
                names.setdefault(id(module), name or type(module).__name__)
            for name, parameter in model.named_parameters():
                size = parameter.numel() * parameter.element_size()
                parameters.setdefault(id(parameter), (name, size))
        called = [key for key, module in watch.called.items() if list(_own(module))]
        modules = {key: names.get(key, "model") for key in called}
        return cls(list(dict.fromkeys(modules.values())), modules, parameters)

    def layer(self, parameter: str) -> int | None:
        """Return the layer with the longest name that is a prefix of the parameter's."""
        fitting = [name for name in self.names if parameter.startswith(f"{name}.")]
        return self.names.index(max(fitting, key=len)) if fitting else None


def _own(module: torch.nn.Module) -> Iterator[torch.nn.Parameter]:
    return module.parameters(recurse=False)


def write_computing(folder: Path, recorder: Recorder, ends: dict[str, Any]) -> None:
    """Write the steps of ``recorder`` without communication, for ``gradwire model record``.

    Args:
        folder: where this rank writes a file; created if absent.
        recorder: whose steps, without the first two.
        ends: ``job``, ``rank`` and ``world_size``.
    """
    layers = _Layers.of(recorder)
    steps = [_marked(step) for step in recorder.steps[WARM_UP:]]
    run = {**ends, "job_id": 0, "groups": []}
    _keep(folder, _head(run, layers), _computing_of(steps, layers))


def _marked(step: Step) -> _Marked:
    """Return the times of a step by the host's clock."""
    marks = [("begun", 0, 0), *(("left", of, at) for of, at in step.left)]
    marks.append(("backward", 0, step.backward))
    ready = sorted(step.gradients.items(), key=lambda gradient: gradient[1])
    marks += [("gradient", of, at) for of, at in ready]
    return _Marked([(what, of, (step.began + at) / 1e3) for what, of, at in marks])


def _write(folder: Path, watch: _Watch, dump: dict[str, Any]) -> None:
    steps = watch.marked[WARM_UP:]
    if len(steps) <= 1:
        raise NothingRecordedError(
            f"{len(watch.marked)} steps were seen, {WARM_UP + 2} or more are needed: record more "
            "steps, with loss.backward() inside"
        )
    layers = _Layers.of(watch)
    events = _computing_of(steps, layers)
    starts = [step.marks[0][2] for step in steps]
    events += _communication(dump, steps, starts, layers)
    _keep(folder, _head(dump, layers) | {"keys": watch.keys}, events)


def _head(dump: dict[str, Any], layers: _Layers) -> dict[str, Any]:
    return {
        "events": VERSION,
        "job": dump["job"],
        "run": dump["job_id"],
        "world_size": dump["world_size"],
        "ranks": {str(dump["rank"]): socket.gethostname()},
        "groups": {str(group["id"]): group["ranks"] for group in dump["groups"]},
        "layers": layers.names,
    }


def _keep(folder: Path, head: dict[str, Any], events: list[Event]) -> None:
    """Write the file of the one rank that ``head`` names, whole or not at all."""
    [(rank, host)] = head["ranks"].items()
    for event in events:
        event["pid"] = f"{host}.rank{rank}"
        event["args"]["rank"] = int(rank)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events-rank{rank}.json"
    partial = path.with_suffix(".json.part")
    partial.write_text(json.dumps({"gradwire": head, "traceEvents": _in_lanes(events)}))
    partial.replace(path)


def _event(cat: str, name: str, times: tuple[float, float], tid: str, **args: object) -> Event:
    begin, end = times
    return {
        "name": f"{cat}.{name}",
        "cat": cat,
        "ph": "X",
        "ts": begin,
        "dur": max(end - begin, 0.0),
        "tid": tid,
        "args": args,
    }


def _computing(number: int, step: _Marked, layers: _Layers) -> Iterator[Event]:
    """Yield the passes of a step: each layer begins where the one before it ended."""
    last = step.marks[0][2]
    for what, of, at in step.marks:
        if what == "left" and of in layers.modules:
            yield _event("FW", layers.modules[of], (last, at), "compute", step=number)
        elif what == "gradient":
            yield _event("BW", layers.parameters[of][0], (last, at), "compute", step=number)
        elif what != "backward":
            continue
        last = at
    if step.update:
        yield _event("UPDATE", "all", step.update, "compute", step=number)


def _computing_of(steps: list[_Marked], layers: _Layers) -> list[Event]:
    numbered = enumerate(steps)
    return [event for number, step in numbered for event in _computing(number, step, layers)]


def _communication(
    dump: dict[str, Any], steps: list[_Marked], starts: list[float], layers: _Layers
) -> Iterator[Event]:
    """Yield the collectives that began in a recorded step, and their messages."""
    end = max(
        [step.marks[-1][2] for step in steps] + [step.update[1] for step in steps if step.update]
    )
    joined = _joined(dump)
    known: dict[tuple[int, int], tuple[str, int]] = {}
    streams = [_stream(step, layers) for step in steps]
    for one in dump["operations"]:
        begin = joined + one["submitted_us"]
        if one["ended_us"] is None or one["tag"] is not None or not starts[0] <= begin <= end:
            continue
        step = sum(start <= begin for start in starts) - 1
        number = sum(at == step for _, at in known.values())
        name = f"{one['kind'].replace('_', '-')} {number}"
        known[one["group"], one["sequence"]] = (name, step)
        operation: dict[str, Any] = {key: one[key] for key in ("kind", "group", "bytes")}
        members = next(group["ranks"] for group in dump["groups"] if group["id"] == one["group"])
        if one["root"] is not None:
            operation["root"] = members.index(one["root"])
        if one["kind"] == "all_reduce":
            operation["layers"] = _taken(streams[step], one["bytes"])
        times = (begin, joined + one["ended_us"])
        name = f"{name}.{one['kind'].upper()}"
        yield _event("Comm", name, times, "comm", step=step, operation=operation)
    for one in dump["messages"]:
        name, step = known.get((one["group"], one["sequence"]), ("", -1))
        if step >= 0:
            yield _message(dump["rank"], joined, one, (name, step))


def _joined(dump: dict[str, Any]) -> float:
    """Return when the rank joined, in microseconds of the host's clock."""
    return dump["at_unix_s"] * 1e6 - dump["at_us"]


def _message(rank: int, joined: float, one: dict[str, Any], named: tuple[str, int]) -> Event:
    is_sent = one["side"] == "sent"
    ends = (rank, one["peer"]) if is_sent else (one["peer"], rank)
    message = {key: one[key] for key in ("group", "sequence", "part", "bytes")}
    message |= {"from": ends[0], "to": ends[1]}
    word = "SEND" if is_sent else "RECV"
    name = f"{named[0]}.{word}~>{ends[0]}_{ends[1]}_{one['part']}"
    times = (joined + one["first_us"], joined + one["last_us"])
    return _event("Comm", name, times, "comm_detail", step=named[1], message=message)


def _stream(step: _Marked, layers: _Layers) -> list[tuple[int | None, int]]:
    """Return layer and bytes of the step's gradients in the order in which they were ready."""
    ready = [layers.parameters[of] for what, of, _ in step.marks if what == "gradient"]
    return [(layers.layer(name), size) for name, size in ready]


def _taken(stream: list[tuple[int | None, int]], wanted: int) -> list[tuple[int, int]]:
    """Take the gradients of a bucket from the stream; empty where they do not fill it exactly."""
    at, count, spans = 0, 0, list[tuple[int, int]]()
    for layer, size in stream:
        if at >= wanted:
            break
        if layer is not None and (not spans or spans[-1][1] != layer):
            spans.append((at, layer))
        at, count = at + size, count + 1
    if at != wanted:
        return []
    del stream[:count]
    return spans


def _in_lanes(events: list[Event]) -> list[Event]:
    """Number the lanes in which no two events overlap, since viewers draw no others."""
    events.sort(key=lambda event: event["ts"])
    lanes: dict[str, list[float]] = {}
    for event in events:
        ends = lanes.setdefault(event["tid"], [])
        free = [lane for lane, end in enumerate(ends) if end <= event["ts"]]
        lane = free[0] if free else len(ends)
        ends[lane : lane + 1] = [event["ts"] + event["dur"]]
        event["tid"] += f" {lane}" if lane else ""
    return events


def main(words: Sequence[str] | None = None) -> int:
    """Run the script that the command line names, and record it; return the exit code."""
    parser = argparse.ArgumentParser(prog="gradwire.events", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20, help="steps after the first two")
    parser.add_argument("--out", type=Path, default=Path("events"), help="a folder, which is made")
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(words)
    if not options.script.is_file():
        parser.error(f"{options.script}: no such file; give the path of a Python script")
    if options.steps < 2:
        parser.error(f"--steps {options.steps}: allowed are 2 and more")
    sys.argv = [str(options.script), *options.arguments]
    sys.path[0] = str(options.script.resolve().parent)
    try:
        with recording(options.out, steps=options.steps):
            runpy.run_path(str(options.script), run_name="__main__")
    except NothingRecordedError as error:
        print(f"gradwire.events: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
