r"""``python -m gradwire.ps``: a server without a script.

It takes the rank from ``RANK`` and ``WORLD_SIZE`` like a script that calls :class:`Server`, and
serves any model that the workers have::

    RANK=2 WORLD_SIZE=4 MASTER_ADDR=10.0.0.3 MASTER_PORT=29500 \
        python -m gradwire.ps --servers 2 --optimizer SGD lr=0.05 momentum=0.9
"""

from __future__ import annotations

import argparse
import ast
import functools
import sys

import torch

from gradwire.ps.meeting import FailedError
from gradwire.ps.server import Server
from gradwire.ps.setup import Mode, Setup
from gradwire.ps.shard import Optimize


def optimizer_of(words: list[str]) -> Optimize | None:
    """Read ``SGD lr=0.05``: a class of ``torch.optim`` and its arguments; nothing for no class."""
    if not words:
        return None
    name, *arguments = words
    made = getattr(torch.optim, name, None)
    if not isinstance(made, type) or not issubclass(made, torch.optim.Optimizer):
        known = ", ".join(n for n in dir(torch.optim) if n[0].isupper() and n != "Optimizer")
        raise ValueError(f"gradwire.ps: no optimizer {name!r} in torch.optim, which has {known}")
    given = {}
    for argument in arguments:
        key, _, value = argument.partition("=")
        try:
            given[key] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            raise ValueError(
                f"gradwire.ps: {argument!r}: write arguments of {name} as name=value, such as "
                "lr=0.05 or betas=(0.9,0.99)"
            ) from None
    return functools.partial(made, **given)


def main() -> int:
    """Serve as the arguments say; returns the exit code."""
    parser = argparse.ArgumentParser("python -m gradwire.ps", description=__doc__.splitlines()[0])
    parser.add_argument("--servers", type=int, required=True, help="ranks that serve, the last")
    parser.add_argument("--mode", default="sync", help="sync, ssp or async")
    parser.add_argument("--staleness", type=int, default=2, help="steps, with --mode ssp")
    parser.add_argument("--tolerance", type=float, help="share of a gradient that may be missing")
    parser.add_argument("--pull-tolerance", type=float, default=0.0, help="same, of parameters")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds to wait for workers")
    parser.add_argument(
        "--optimizer",
        nargs="+",
        default=[],
        metavar="WORD",
        help="class of torch.optim and its arguments: SGD lr=0.05; without, pushes are added",
    )
    arguments = parser.parse_args()
    try:
        setup = Setup(
            servers=arguments.servers,
            mode=Mode.named(arguments.mode, arguments.staleness),
            tolerance=arguments.tolerance,
            pull_tolerance=arguments.pull_tolerance,
            timeout=arguments.timeout,
        )
        Server(setup, optimizer_of(arguments.optimizer)).serve()
    except (ValueError, FailedError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
