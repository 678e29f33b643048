"""The command ``python -m gradwire.study``: choose cells, run the missing ones, print tables.

Each finished cell is a file in the folder of the records and is not run again; the results are
printed, and kept in the same folder as findings.md and findings.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

from gradwire.study import cells, expectations, findings, table
from gradwire.study.cells import Cell
from gradwire.study.records import Records

OUT = Path("out/study")


def main() -> int:
    """Run the study that the arguments choose; return the exit code: 0, 1 where a cell failed."""
    arguments = _arguments()
    chosen = _chosen(arguments)
    records = Records(arguments.out)
    if arguments.list:
        _list(chosen, records, arguments.json)
        return 0
    failed = _run(chosen, records, time.monotonic() + arguments.minutes * 60)
    if arguments.cell and arguments.json:
        for record in records.read(chosen):
            print(json.dumps(record))
    else:
        _tell(chosen, records, arguments.json)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gradwire.study", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the records ({OUT})")
    parser.add_argument("--quick", action="store_true", help="a handful of cells, in a minute")
    parser.add_argument("--core", action="store_true", help="a third of the cells")
    parser.add_argument("--cell", action="append", metavar="ID", help="this cell; may be repeated")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no cell after this many minutes"
    )
    parser.add_argument("--list", action="store_true", help="list the cells and run nothing")
    parser.add_argument("--json", action="store_true", help="JSON instead of Markdown")
    return parser.parse_args()


def _chosen(arguments: argparse.Namespace) -> list[Cell]:
    every = cells.grid()
    if arguments.quick:
        every = cells.quick()
    elif arguments.core:
        every = cells.core()
    if not arguments.cell:
        return every
    by_id = {cell.id: cell for cell in cells.grid()}
    unknown = [name for name in arguments.cell if name not in by_id]
    if unknown:
        raise SystemExit(
            f"gradwire.study: there is no cell {unknown[0]!r}; --list tells all {len(by_id)}"
        )
    return [by_id[name] for name in arguments.cell]


def _list(chosen: list[Cell], records: Records, as_json: bool) -> None:
    for cell in chosen:
        finished = records.has(cell)
        if as_json:
            print(json.dumps({"id": cell.id, "finished": finished, **asdict(cell)}))
        else:
            print(f"{cell.id}{'  finished' if finished else ''}")


def _run(chosen: list[Cell], records: Records, until: float) -> int:
    """Run those of ``chosen`` that are not finished, in turn; return how many have failed."""
    missing = [cell for cell in chosen if not records.has(cell)]
    if not missing:
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch is imported
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    from gradwire import build
    from gradwire.study import ranks, tasks
    from gradwire.study.progress import Progress

    build.load()  # compiled here, once, if it is not yet: ranks inherit it
    told, failed = Progress(len(chosen), len(missing)), 0
    made = tasks.made({cell.task for cell in missing})
    for cell in missing:
        if time.monotonic() > until:
            told.stopped()
            break
        try:
            record = ranks.run(cell, made[cell.task])
        except ranks.CellError as error:
            failed += 1
            told.failed(error)
        else:
            records.keep(cell, record)
            told.ended(record)
    return failed


def _tell(chosen: list[Cell], records: Records, as_json: bool) -> None:
    from gradwire.study import tasks

    found = findings.groups_of(records.read(chosen), tasks.PLANS)
    judged = expectations.verdicts(found, tasks.PLANS)
    groups = [group.told() for group in found]
    told = {"groups": groups, "expected": [asdict(verdict) for verdict in judged]}
    left = sum(not records.has(cell) for cell in chosen)
    whole = json.dumps({**told, "left": left})
    text = table.markdown(found, tasks.PLANS, judged)
    records.put("findings.json", whole + "\n")
    records.put("findings.md", text + "\n")
    print(whole if as_json else text)


if __name__ == "__main__":
    sys.exit(main())
