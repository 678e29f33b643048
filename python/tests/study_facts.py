"""Facts about the study of training under loss: its cells on real sockets, and its arithmetic."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import launching
from gradwire.study import cells, expectations, findings, table
from gradwire.study.cells import Cell
from gradwire.study.records import Records
from gradwire.study.task import Plan

sys.path.append(str(Path(__file__).parents[2] / "examples"))

VARIANTS = (
    *("all:rescale:0:none", "all:error-feedback:0.2:none", "all:zero:0.2:hadamard"),
    *("front:zero:0.2:none", "large:zero:0.2:none", "bounded:rescale:0.2:none"),
)
PLAN = Plan(30, 10.0, 10, "accuracy", True, 0.01, front=("0.",))


@pytest.fixture(scope="module")
def run() -> dict[str, dict[str, Any]]:
    """Records of cells that were run, by variant."""
    (ended,) = launching.Launch("small_study.py", world=1, arguments=VARIANTS).run()
    return dict(zip(VARIANTS, ended.succeeded(), strict=True))


@pytest.mark.parametrize("variant", VARIANTS[1:3])
def what_is_dropped_stays_missing(variant: str, run: dict[str, dict[str, Any]]) -> None:
    assert abs(run[variant]["accepted"] - 0.2) < 0.03
    assert run[variant]["counted"]["faults_dropped"] > 0


def without_drops_nothing_is_missing(run: dict[str, dict[str, Any]]) -> None:
    record = run["all:rescale:0:none"]
    assert (record["accepted"], record["counted"]["lost_segments"]) == (0.0, 0)
    assert [step for step, _ in record["curve"]] == [6, 12]


def only_the_front_loses_where_only_the_front_may(run: dict[str, dict[str, Any]]) -> None:
    assert abs(run["front:zero:0.2:none"]["accepted"] - 0.1) < 0.03


def large_gradients_are_lost_in_the_application(run: dict[str, dict[str, Any]]) -> None:
    record = run["large:zero:0.2:none"]
    assert abs(record["accepted"] - 0.2) < 0.05
    assert record["counted"]["faults_dropped"] == 0


def a_bound_keeps_what_stays_missing_below_what_is_dropped(
    run: dict[str, dict[str, Any]],
) -> None:
    assert 0.0 < run["bounded:rescale:0.2:none"]["accepted"] < 0.2


def every_cell_has_a_name_of_its_own() -> None:
    names = [cell.id for cell in cells.grid()]
    assert len(set(names)) == len(names) > 250
    assert {cell.id for cell in cells.quick()} <= set(names)


def a_finished_cell_is_not_run_again(tmp_path: Path) -> None:
    records = Records(tmp_path)
    lossless, lossy = Cell("mnist", 1), Cell("mnist", 1, 0.1, "zero")
    for cell in (lossless, lossy):
        records.keep(cell, _record(cell, [0.5, 0.9]))
    command = [sys.executable, "-m", "gradwire.study", "--out", str(tmp_path), "--json"]
    chosen = ["--cell", lossless.id, "--cell", lossy.id]
    ended = subprocess.run([*command, *chosen], capture_output=True, text=True, check=True)
    assert [json.loads(line)["id"] for line in ended.stdout.splitlines()] == [lossless.id, lossy.id]


def when_the_time_is_up_no_cell_is_begun_and_what_is_left_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gradwire.study", "--out", str(tmp_path), "--minutes", "0"]
    chosen = ["--cell", "mnist-seed1-lossless"]
    ended = subprocess.run([*command, *chosen], capture_output=True, text=True, check=True)
    assert "the time is up: 1 cells are left; the same command runs them" in ended.stderr
    assert json.loads((tmp_path / "findings.json").read_text())["left"] == 1


def ranks_end_with_a_study_that_is_killed_and_its_cell_is_not_kept(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gradwire.study", "--out", str(tmp_path)]
    study = subprocess.Popen([*command, "--cell", "mnist-seed1-lossless"])
    try:
        ranks = _waited_for(lambda: _children(study.pid), lambda found: len(found) == cells.WORLD)
    finally:
        study.kill()
        study.wait()
    _waited_for(lambda: [rank for rank in ranks if _is_running(rank)], lambda left: not left)
    assert not list(tmp_path.glob("cells/*"))


def groups_are_told_flat_with_their_scores_by_seed() -> None:
    records = [_record(Cell("mnist", 1), [0.5, 0.9])]
    (group,) = findings.groups_of(records, {"mnist": PLAN})
    assert group.told() == {
        "task": "mnist",
        "part": "all",
        "transform": "none",
        "holes": "rescale",
        "drop": 0.0,
        "final": {1: 0.9},
        "steps": {1: pytest.approx(19.75)},
        "accepted": {1: 0.0},
    }


def an_unknown_cell_is_refused_by_its_name(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "gradwire.study", "--out", str(tmp_path), "--cell", "mnist-x"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "'mnist-x'" in ended.stderr


def the_steps_to_an_aim_lie_on_a_line_between_two_scores() -> None:
    records = [_record(Cell("mnist", 1), [0.5, 0.7, 0.91])]
    records.append(_record(Cell("mnist", 1, 0.1, "zero"), [0.5, 0.8, 1.0]))
    records.append(_record(Cell("mnist", 1, 0.3, "zero"), [0.5, 0.6, 0.7]))
    _, reached, missed = findings.groups_of(records, {"mnist": PLAN})
    assert reached.steps == {1: pytest.approx(25.0)}
    assert missed.steps == {1: float("inf")}


def what_is_worse_than_the_noise_is_told() -> None:
    verdict = _verdict([0.95, 0.951, 0.949], [0.90, 0.901, 0.899])
    assert verdict.holds is False
    assert "DOES NOT HOLD" in table.markdown([], {}, [verdict])


def what_is_worse_within_the_noise_is_as_expected() -> None:
    assert _verdict([0.95, 0.93, 0.94], [0.93, 0.95, 0.93]).holds is True


def the_network_of_the_study_is_that_of_the_example() -> None:
    import train_mnist
    from gradwire.study import digits

    theirs, ours = train_mnist.network(), digits.network()
    assert [type(layer) for layer in ours] == [type(layer) for layer in theirs]
    shapes = [[value.shape for value in net.state_dict().values()] for net in (ours, theirs)]
    assert shapes[0] == shapes[1]
    images = torch.randn(2, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours(images), theirs(images))


def _record(cell: Cell, scores: list[float]) -> dict[str, Any]:
    curve = [[10 * (at + 1), score] for at, score in enumerate(scores)]
    names = ("task", "seed", "drop", "holes", "transform", "part")
    kind = {name: getattr(cell, name) for name in names}
    return {"id": cell.id, **kind, "accepted": cell.drop, "curve": curve}


def _verdict(zero: list[float], rescale: list[float]) -> expectations.Verdict:
    records = [
        _record(Cell("mnist", seed, 0.1, holes), [scores[seed]])
        for holes, scores in (("zero", zero), ("rescale", rescale))
        for seed in range(3)
    ]
    plans = {"mnist": PLAN}
    judged = expectations.verdicts(findings.groups_of(records, plans), plans)
    return next(v for v in judged if v.expectation.startswith("rescale"))


def _waited_for(look: Callable[[], list[int]], fits: Callable[[list[int]], bool]) -> list[int]:
    """Look until the observation fits, for a minute at most."""
    for _ in range(1200):
        seen = look()
        if fits(seen):
            return seen
        time.sleep(0.05)
    raise AssertionError(f"not within a minute: {seen}")


def _children(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(word) for word in text.split()]


def _is_running(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it ended, perhaps while its file was read
        return False
    return stat.rsplit(")", 1)[1].split()[0] not in "ZX"
