"""A process that has imported PyTorch once, and forks itself for every rank that a test starts.

Importing PyTorch takes a processor two to three seconds, and a test starts two ranks or more. Each
is a process of its own all the same: it has its own environment, and runs a program to its end.

The interpreter's own way out of PyTorch's modules takes a processor a second. A rank whose end is
not what a test looks at leaves after its exit functions; a rank that fails always goes that way.

As a program, this file answers requests, one JSON object a line: ``{"start": ...}`` is answered by
the number of the new process, ``{"ended": number}`` by its exit code, once it has one.
"""

import atexit
import faulthandler
import json
import os
import runpy
import select
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Start:
    """A program to start: its arguments, its environment, and the file of its errors."""

    program: str
    arguments: list[str]
    environment: dict[str, str]
    errors: str
    dismantled: bool
    """Whether it leaves by the interpreter's own way out."""


class Rank:
    """A process that a zygote has started."""

    def __init__(self, zygote: "Zygote", start: Start) -> None:
        """Start it."""
        self._zygote = zygote
        self._errors = Path(start.errors)
        self.pid: int = zygote.ask({"start": asdict(start)})
        self.returncode: int | None = None
        self._end = os.pidfd_open(self.pid)

    def communicate(self, timeout: float | None = None) -> tuple[None, str]:
        """Wait for its end; return ``None``, and its standard error."""
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self.returncode = self._zygote.ask({"ended": self.pid})
            os.close(self._end)
        return None, self._errors.read_text()

    def kill(self) -> None:
        """Kill it, if it has not ended."""
        if self.returncode is None:
            os.kill(self.pid, 9)


class Zygote:
    """The process that forks itself."""

    def __init__(self) -> None:
        """Start it; it imports PyTorch before it answers."""
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ, OMP_NUM_THREADS="1"),
        )

    def ask(self, request: dict[str, Any]) -> Any:
        """Return the answer to a request."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def end(self) -> None:
        """End it; ranks that still run are left alone."""
        self._process.communicate()


def _serve() -> Start | None:
    """Answer until there are no more requests; in a new process, return its program."""
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            number = os.fork()
            if number == 0:
                return Start(**request["start"])
            answer = number
        else:
            _, status = os.waitpid(request["ended"], 0)
            answer = os.waitstatus_to_exitcode(status)
        os.write(1, f"{json.dumps(answer)}\n".encode())
    return None


def _become(start: Start) -> None:
    """Run a program as if this process had been started for it."""
    os.environ.clear()
    os.environ.update(start.environment)
    nothing = os.open(os.devnull, os.O_RDWR)
    errors = os.open(start.errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for descriptor, file in ((0, nothing), (1, nothing), (2, errors)):
        os.dup2(file, descriptor)
    faulthandler.enable()
    sys.argv = [start.program, *start.arguments]
    sys.path[0] = str(Path(start.program).parent)
    runpy.run_path(start.program, run_name="__main__")
    if not start.dismantled:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if __name__ == "__main__":
    import torch.distributed.fsdp
    import torch.distributed.pipelining  # noqa: F401  (most ranks need it)

    if (todo := _serve()) is not None:
        _become(todo)
