"""Run the examples of Lightning, DeepSpeed and Ray Train over Gloo and over gradwire, and compare.

``make test-frameworks`` installs their packages and runs it. With two ranks a sum has one order,
so each pair must print the same losses.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2")
EXAMPLES = {
    "train_lightning.py": (sys.executable,),
    "train_deepspeed.py": TORCHRUN,
    "train_ray.py": (sys.executable,),
}
LOSSES = re.compile(r"loss ([0-9.]+) in the first step, ([0-9.]+) in the last")


def losses(example: str, backend: str) -> str:
    """Run an example; return the losses that it prints."""
    command = (*EXAMPLES[example], str(HERE / example), "--backend", backend, "--steps", "20")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = dict(os.environ, DS_ACCELERATOR="cpu", OMP_NUM_THREADS="1", PATH=path)
    ended = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    found = LOSSES.search(ended.stdout + ended.stderr)
    if ended.returncode != 0 or found is None:
        raise SystemExit(f"{example} over {backend}:\n{ended.stdout}{ended.stderr}")
    return found.group()


def main() -> int:
    """Print the losses of each example; return 1 if a pair differs."""
    differ = 0
    for example in EXAMPLES:
        theirs, ours = losses(example, "gloo"), losses(example, "gradwire")
        print(f"{example}: gloo: {theirs}; gradwire: {ours}", flush=True)
        differ |= theirs != ours
    return differ


if __name__ == "__main__":
    sys.exit(main())
