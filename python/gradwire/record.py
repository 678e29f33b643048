"""Record the cost of each layer of an unchanged PyTorch script, as a table for the simulator.

``gradwire model record train.py`` runs this module; under ``torchrun`` it is started as
``torchrun --nproc-per-node 4 -m gradwire.record --out recorded.csv train.py``, and rank 0 writes.
If no launcher has set its variables, the script sees a launch of one process.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import runpy
import socket
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch.distributed as dist

from gradwire import events
from gradwire.environment import Environment, as_if_alone
from gradwire.recorder import Enough, Recorder
from gradwire.recording import WARM_UP, recording

STEPS = 20
"""Default number of recorded steps."""


class NotRecordedError(Exception):
    """The script gave no table; the message states the cause and a remedy."""


def main(words: Sequence[str] | None = None) -> int:
    """Record the script that the command line names; return the exit code."""
    options = _options(words)
    with _reports(options.told) as report:
        recorder = Recorder(options.steps)
        try:
            said = _run(options.script, options.arguments, recorder)
            _check(recorder, said)
            told = {"out": str(options.out), **_written(recorder, options.out)}
            if options.events:
                _write_events(recorder, options)
        except NotRecordedError as error:
            told = {"error": f"{options.script}: {error}"}
        if not Environment.read().rank.strip("0"):
            report(told)
    return 1 if "error" in told else 0


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="gradwire.record", description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=STEPS, help=f"{WARM_UP + 1} or more")
    parser.add_argument("--out", type=Path, default=Path("recorded.csv"))
    parser.add_argument("--events", type=Path, help="a folder for each rank's events, too")
    parser.add_argument("--told", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("script", type=Path)
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args(words)
    if options.steps <= WARM_UP:
        parser.error(f"--steps {options.steps}: allowed are {WARM_UP + 1} and more; {WARM_UP} warm")
    if not options.script.is_file():
        parser.error(f"{options.script}: no such file; give the path of a Python script")
    return options


@contextlib.contextmanager
def _reports(is_told: bool) -> Any:  # noqa: ANN401
    """Return a function that prints the outcome: for people, or as JSON on standard output.

    With JSON, the script's own standard output goes to standard error.
    """
    if not is_told:
        yield lambda told: print(_for_people(told), file=sys.stderr)
        return
    with os.fdopen(os.dup(1), "w") as output:
        os.dup2(2, 1)
        yield lambda told: print(json.dumps(told), file=output)


def _for_people(told: dict[str, Any]) -> str:
    if "error" in told:
        return f"gradwire.record: {told['error']}"
    return f"gradwire.record: {told['out']}: {told['rows']} tensors, {told['steps']} steps"


def _run(script: Path, arguments: Sequence[str], recorder: Recorder) -> str:
    """Run the script until all steps are recorded or it ends; return how it ended."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    as_if_alone(port)
    sys.argv = [str(script), *arguments]
    sys.path[0] = str(script.resolve().parent)
    try:
        with recorder.watching():
            runpy.run_path(str(script), run_name="__main__")
    except Enough:
        return "it ended"
    except SystemExit as end:
        return f"it ended by exit({end.code!r})"
    except KeyboardInterrupt:
        return "it was interrupted"
    except Exception as error:
        traceback.print_exc()
        return f"it failed with {type(error).__name__}: {error}"
    finally:
        if dist.is_available() and dist.is_initialized():
            dist.destroy_process_group()
    return "it ended"


def _check(recorder: Recorder, said: str) -> None:
    """Refuse an incomplete recording; ``said`` is how the script ended."""
    steps = len(recorder.steps)
    if steps >= recorder.wanted:
        return
    if not recorder.called:
        raise NotRecordedError(
            f"{said} without a forward pass of a torch.nn.Module; give a script that trains one"
        )
    if steps == 0:
        raise NotRecordedError(
            f"{said} without a backward pass that makes gradients of a model; a step needs "
            "loss.backward()"
        )
    remedy = f"let it train longer, or give --steps {steps}" if steps > WARM_UP else "train longer"
    raise NotRecordedError(f"{said} after {steps} of {recorder.wanted} steps; {remedy}")


def _written(recorder: Recorder, out: Path) -> dict[str, Any]:
    """Write the table atomically if this is rank 0; return a summary of it."""
    table = recording(recorder)
    if not Environment.read().rank.strip("0"):
        partial = out.with_name(f"{out.name}.partial")
        try:
            partial.write_text(table.text())
            partial.replace(out)
        except OSError as error:
            raise NotRecordedError(f"cannot write {out}: {error.strerror}") from None
    steps = len(recorder.steps)
    return {"rows": len(table.rows), "steps": steps, "iteration_us": table.iteration / 1e3}


def _write_events(recorder: Recorder, options: argparse.Namespace) -> None:
    """Write the recorded steps of this rank for ``gradwire trace replay``."""
    launch = Environment.read()
    ends = {
        "job": options.script.stem,
        "rank": int(launch.rank or 0),
        "world_size": int(launch.world_size or 1),
    }
    try:
        events.write_computing(options.events, recorder, ends)
    except OSError as error:
        raise NotRecordedError(f"cannot write into {options.events}: {error.strerror}") from None


if __name__ == "__main__":
    sys.exit(main())
