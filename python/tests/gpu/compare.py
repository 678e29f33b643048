"""Compare folders of reports of ``examples/train_mnist.py``: the losses must be equal."""

import json
import sys
from pathlib import Path
from typing import Any


def _reports(folder: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(Path(folder).glob("rank*.json"))]


def main() -> int:
    """Print the speed of each, and the first difference from the first folder."""
    wanted = [report["losses"] for report in _reports(sys.argv[1])]
    differ = 0
    for folder in sys.argv[1:]:
        reports = _reports(folder)
        print(f"{Path(folder).name}: {reports[0]['steps_per_s']:.1f} steps/s")
        for rank, (losses, report) in enumerate(zip(wanted, reports, strict=True)):
            steps = enumerate(zip(losses, report["losses"], strict=True))
            other = next((step for step, (one, two) in steps if one != two), None)
            if other is not None:
                print(f"{Path(folder).name}: rank {rank}: other losses from step {other} on")
                differ = 1
    return differ


if __name__ == "__main__":
    sys.exit(main())
