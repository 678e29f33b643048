"""Facts about gradwire under torchft, by torchft's own tests where it is installed."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from launching import PROGRAMS

pytest.importorskip("torchft", reason="requirements-test.txt has it")
EXAMPLE = Path(__file__).parents[2] / "examples" / "train_diloco.py"


def torchfts_own_tests_of_process_groups_pass(tmp_path: Path) -> None:
    is_slow = os.environ.get("GRADWIRE_SLOW") == "1"
    report = tmp_path / "report.json"
    program = [sys.executable, str(PROGRAMS / "torchft_tests.py"), str(report)]
    subprocess.run([*program, *(["resilient"] if is_slow else [])], timeout=600, check=True)
    assert json.loads(report.read_text()) == {"run": 16 if is_slow else 8, "failed": []}


def a_tolerance_that_is_no_share_is_refused() -> None:
    from gradwire.torchft import ProcessGroupGradwire

    with pytest.raises(ValueError, match=r"1\.5: give a share of a message"):
        ProcessGroupGradwire(timedelta(seconds=1), tolerance=1.5)


def replicas_of_diloco_train_alike_over_gloo_and_gradwire() -> None:
    if os.environ.get("GRADWIRE_SLOW") != "1":
        pytest.skip("four processes that import PyTorch take long: set GRADWIRE_SLOW=1")
    losses = []
    for backend in ("gloo", "gradwire"):
        program = [sys.executable, str(EXAMPLE), "--backend", backend, "--steps", "4"]
        done = subprocess.run(
            [*program, "--every", "2"], timeout=200, check=True, capture_output=True, text=True
        )
        losses.append(json.loads(done.stdout.splitlines()[-1])["loss"])
    assert losses[0] == losses[1]
