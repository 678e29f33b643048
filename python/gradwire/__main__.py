"""``python -m gradwire nccl``: the environment by which NCCL finds the plugin, or a check of it."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from gradwire import nccl


def main(words: list[str] | None = None) -> int:
    """Run the command that ``words`` name; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m gradwire", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    told = 'print the environment for NCCL: eval "$(python -m gradwire nccl)"'
    command = commands.add_parser("nccl", help=told, description=told)
    command.add_argument("--json", action="store_true", help="print one JSON object")
    form = command.add_mutually_exclusive_group()
    form.add_argument("--path", action="store_true", help="print the plugin's file only")
    form.add_argument(
        "--check",
        action="store_true",
        help="load the plugin, and send messages through two connections of one process",
    )
    options = parser.parse_args(words)
    if options.check:
        finding = nccl.check()
        _tell(options.json, dataclasses.asdict(finding), finding.found)
        return 0 if finding.ok else 1
    if options.path:
        _tell(options.json, {"path": str(nccl.library())}, str(nccl.library()))
    else:
        _tell(options.json, nccl.variables(), nccl.exports())
    return 0


def _tell(as_json: bool, values: dict[str, object] | dict[str, str], text: str) -> None:
    print(json.dumps(values) if as_json else text)


if __name__ == "__main__":
    sys.exit(main())
