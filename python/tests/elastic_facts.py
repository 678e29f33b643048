"""Facts about torchrun's restarts: a killed rank costs the steps since the last checkpoint."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "elastic.py"


def _trained(out: Path, *more: str) -> tuple[list[float], str]:
    """Run the example by torchrun; return the losses, and its output."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "--max-restarts", "1", str(EXAMPLE)]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    environment.pop("GRADWIRE_JOB", None)
    ended = subprocess.run(
        [*command, "--out", str(out), *more],
        env=environment,
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads((out / "losses.json").read_text()), ended.stdout


def training_goes_on_from_the_last_checkpoint_after_a_rank_was_killed(tmp_path: Path) -> None:
    undisturbed, _ = _trained(tmp_path / "undisturbed")
    disturbed, printed = _trained(tmp_path / "disturbed", "--kill-at", "25")
    assert "rank 0: step 20, restart 1" in printed
    assert disturbed == undisturbed
    assert len(disturbed) == 50
    assert sum(disturbed[40:]) < sum(disturbed[:10]) / 2


def torchrun_blames_the_rank_that_raised() -> None:
    program = Path(__file__).parent / "programs" / "raising.py"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    environment.pop("GRADWIRE_JOB", None)
    ended = subprocess.run(
        [*command, "--nproc-per-node", "2", str(program)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    blamed = ended.stderr.split("Root Cause (first observed failure):")[1]
    assert re.search(r"rank\s*: 1 ", blamed), blamed
