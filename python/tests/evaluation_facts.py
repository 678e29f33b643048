"""Facts about the evaluation in its quick form, by the command that the package brings."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TABLES = ("scheduling", "search", "fabric", "steps", "losses", "stragglers")

_slow = pytest.mark.skipif(
    os.environ.get("GRADWIRE_SLOW") != "1", reason="simulates for a minute; GRADWIRE_SLOW=1 runs it"
)


def _evaluate(out: Path) -> dict[str, Any]:
    command = Path(sys.executable).with_name("gradwire")
    only = [word for table in TABLES for word in ("--only", table)]
    line = [command, "eval", "dlcp", "--quick", "--json", "--out", out, *only]
    done = subprocess.run(line, check=True, capture_output=True, text=True, timeout=600)
    return json.loads(done.stdout)


def _goal(report: dict[str, Any], words: str) -> dict[str, Any]:
    goals = [goal for section in report["sections"] for goal in section["goals"]]
    (found,) = [goal for goal in goals if words in json.dumps(goal)]
    return found


@_slow
def test_the_quick_evaluation_says_what_is_simulated_and_runs_no_cell_twice(tmp_path: Path) -> None:
    """All simulated tables, once; the same command then only writes the report again."""
    report = _evaluate(tmp_path)
    assert [section["name"] for section in report["sections"]] == list(TABLES)
    assert {section["source"] for section in report["sections"]} == {"simulated"}
    assert _goal(report, "ResNet50 with servers at 25 Gb/s")["state"] == "met"
    assert _goal(report, "Gains at 25 Gb/s in the order")["state"] == "met"
    assert "(simulated)" in (tmp_path / "report.md").read_text()
    assert '<span class="simulated">simulated<' in (tmp_path / "report.html").read_text()
    again = _evaluate(tmp_path)
    assert again["cost"]["kept"] == report["cost"]["cells"] > 0
    assert again["sections"] == report["sections"]
