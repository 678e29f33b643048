"""The command ``python -m gradwire.study``: choose cells, run those that are missing, table all."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path

from gradwire.study import cells, expectations, findings, table
from gradwire.study.cells import Cell
from gradwire.study.records import Records

OUT = Path("out/study")


def main() -> int:
    """Do what the arguments say; return the exit code: 0, 1 where a cell failed."""
    arguments = _arguments()
    chosen = _chosen(arguments)
    records = Records(arguments.out)
    if arguments.list:
        _list(chosen, records, arguments.json)
        return 0
    failed = _run([cell for cell in chosen if not records.has(cell)], len(chosen), records)
    if arguments.cell and arguments.json:
        for record in records.read(chosen):
            print(json.dumps(record))
    else:
        _tell(chosen, records, arguments.json)
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gradwire.study", description=__doc__)
    parser.add_argument("--out", type=Path, default=OUT, help=f"folder of the records ({OUT})")
    parser.add_argument("--quick", action="store_true", help="a handful of cells, in a minute")
    parser.add_argument("--cell", action="append", metavar="ID", help="this cell; may be repeated")
    parser.add_argument("--list", action="store_true", help="list the cells and run nothing")
    parser.add_argument("--json", action="store_true", help="JSON instead of Markdown")
    return parser.parse_args()


def _chosen(arguments: argparse.Namespace) -> list[Cell]:
    every = cells.quick() if arguments.quick else cells.grid()
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


def _run(missing: list[Cell], every: int, records: Records) -> int:
    """Run cells one after the other; return how many have failed."""
    if not missing:
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before PyTorch is imported
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    from gradwire import build
    from gradwire.study import ranks, tasks
    from gradwire.study.progress import Progress

    build.load()  # compiled here, once, if it is not yet: ranks inherit it
    told, failed = Progress(every, len(missing)), 0
    made = tasks.made({cell.task for cell in missing})
    for cell in missing:
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
    if as_json:
        groups = [asdict(group) for group in found]
        print(json.dumps({"groups": groups, "expected": [asdict(v) for v in judged]}))
    else:
        print(table.markdown(found, tasks.PLANS, judged))


if __name__ == "__main__":
    sys.exit(main())
