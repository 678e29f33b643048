"""Run a program of ``../device`` as one rank under torchrun; end with 1 if its report is bad.

A report is bad if a check failed, a value was wrong, or two ranks have different parameters.
"""

import json
import os
import runpy
import sys
import tempfile
from pathlib import Path

import torch.distributed as dist

DEVICE = Path(__file__).resolve().parents[1] / "device"


def findings(report: dict[str, object]) -> list[str]:
    """Return what is wrong in this rank's report."""
    if "wrong" in report:
        return [f"{report['wrong']} wrong values"] if report["wrong"] else []
    if "hash" in report:
        return []
    return [f"{line}: {error}" for line, error in report.items() if error]


def main() -> int:
    """Run the program and judge."""
    program, *arguments = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.json")
        sys.argv = [program, str(path), *arguments]
        sys.path.insert(0, str(DEVICE))
        runpy.run_path(str(DEVICE / program), run_name="__main__")
        report = json.loads(path.read_text())
    found = findings(report)
    if "hash" in report:
        dist.init_process_group("gloo")
        hashes: list[object] = [None] * dist.get_world_size()
        dist.all_gather_object(hashes, report["hash"])
        found += [] if len(set(hashes)) == 1 else ["ranks have different parameters"]
        dist.destroy_process_group()
    for line in found:
        print(f"rank {os.environ['RANK']}: {line}", file=sys.stderr)
    if os.environ["RANK"] == "0" and not found:
        print(f"{program} {' '.join(arguments)}: passed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
