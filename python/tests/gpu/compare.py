"""Compare two folders of reports of ``examples/train_mnist.py``: losses must be equal."""

import json
import sys
from pathlib import Path


def main() -> int:
    """Print the first difference."""
    ours, theirs = (sorted(Path(folder).glob("rank*.json")) for folder in sys.argv[1:])
    for one, other in zip(ours, theirs, strict=True):
        losses = [json.loads(path.read_text())["losses"] for path in (one, other)]
        for step, (mine, other_loss) in enumerate(zip(*losses, strict=True)):
            if mine != other_loss:
                print(f"{one.name}: step {step}: {mine} and {other_loss}")
                return 1
    print("the same losses, to the last digit")
    return 0


if __name__ == "__main__":
    sys.exit(main())
