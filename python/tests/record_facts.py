"""Facts about recorded scripts: layers, sizes and times of the table, and refused recordings."""

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils import checkpoint as checkpoints

from gradwire import record, recording
from gradwire.recorder import Enough, Recorder, Step

EXAMPLES = Path(__file__).parents[2] / "examples"
HEAD = "import torch\nfrom torch import nn\nmodel = nn.Linear(3, 2)\n"
STEP = "model(torch.ones(1, 3)).sum().backward()\n"


def _record(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    variables = dict(os.environ, OMP_NUM_THREADS="1")
    for name in ("RANK", "WORLD_SIZE", "GRADWIRE_JOB"):
        variables.pop(name, None)
    command = [sys.executable, "-m", "gradwire.record", "--told", *words]
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=120
    )


def _rows(path: Path) -> list[dict[str, str]]:
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


class _Shared(nn.Module):
    """An embedding whose matrix is the output's too, and attention that calls no module."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(8, 16, bias=False)
        self.attention = nn.MultiheadAttention(8, 2)
        self.frozen = nn.LayerNorm(8).requires_grad_(False)
        self.embedding = nn.Embedding(16, 8)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        seen = self.frozen(self.embedding(tokens))
        return self.output(self.attention(seen, seen, seen)[0])


def _recorded(model: nn.Module, *inputs: torch.Tensor) -> recording.Recording:
    """Record three steps of a model in this process."""
    recorder = Recorder(3)
    with contextlib.suppress(Enough), recorder.watching():
        while True:
            model(*inputs).sum().backward()
    assert len(recorder.steps) == 3
    return recording.recording(recorder)


def a_recorded_example_has_its_parameters_layers_and_times(tmp_path: Path) -> None:
    script = str(EXAMPLES / "train_mnist.py")
    words = ["--steps", "6", "--events", "events", script, "--backend", "gloo", "--epochs", "1"]
    ended = _record(tmp_path, *words)
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    rows = _rows(tmp_path / "recorded.csv")
    assert [int(row["parameters"]) for row in rows if row["tensor"] == "weight"] == [
        144,
        4608,
        802816,
        5120,
    ]
    assert sum(int(row["parameters"]) for row in rows) == 813_258
    assert list(dict.fromkeys(row["layer"] for row in rows)) == ["0", "3", "7", "9"]
    times = [int(row["forward_ns"]) + int(row["backward_ns"]) for row in rows]
    assert all(time > 0 for time in times)
    assert (told["steps"], told["rows"]) == (6, 8)
    assert not list(tmp_path.glob("*.partial"))
    trace = json.loads((tmp_path / "events" / "events-rank0.json").read_text())
    assert trace["gradwire"]["layers"] == ["0", "3", "7", "9"]
    passes = [(one["cat"], one["args"]["step"]) for one in trace["traceEvents"]]
    assert [passes.count(("FW", step)) for step in range(5)] == [4, 4, 4, 4, 0]
    assert [passes.count(("BW", step)) for step in range(5)] == [8, 8, 8, 8, 0]


def a_shared_matrix_counts_once_and_what_is_never_called_belongs_to_what_is_above() -> None:
    model = _Shared()
    table = _recorded(model, torch.arange(5))
    found = {(row.layer, row.tensor): row.parameters for row in table.rows}
    assert found == {
        ("embedding", "weight"): 128,
        ("frozen", "none"): 0,
        ("attention", "in_proj_weight"): 192,
        ("attention", "in_proj_bias"): 24,
        ("attention", "out_proj.weight"): 64,
        ("attention", "out_proj.bias"): 8,
    }
    order = list(dict.fromkeys(row.layer for row in table.rows))
    assert order == ["embedding", "frozen", "attention"]
    assert any("2 tensors (16 elements) without gradients" in said for said in table.remarks)


def times_are_medians_and_together_those_of_a_step() -> None:
    front, back = nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False)
    model = nn.Sequential(front, nn.ReLU(), back)
    recorder = Recorder(5)
    recorder.models = [model]
    recorder.called = {id(module): module for module in (model, *model)}
    for slow in (1000, 1000, 1, 2, 3):
        left = [(id(front), 10 * slow), (id(model[1]), 15 * slow), (id(back), 30 * slow)]
        gradients = {id(back.weight): 50 * slow, id(front.weight): 90 * slow}
        recorder.steps.append(Step(left, 40 * slow, gradients))
    table = recording.recording(recorder)
    rows = [(row.layer, row.parameters, row.forward, row.backward) for row in table.rows]
    assert rows == [("0", 4, 20, 80), ("2", 2, 60, 20)]
    assert table.iteration == sum(row.forward + row.backward for row in table.rows) == 180
    assert "0,4,20,80,weight\n" in table.text()


def gradients_in_another_order_than_that_of_the_rows_are_there_when_all_behind_are() -> None:
    front, back = nn.Linear(2, 2, bias=False), nn.Linear(2, 1, bias=False)
    model = nn.Sequential(front, back)
    recorder = Recorder(3)
    recorder.models = [model]
    recorder.called = {id(module): module for module in (model, *model)}
    left = [(id(front), 10), (id(back), 20)]
    step = Step(left, 20, {id(front.weight): 30, id(back.weight): 70})
    recorder.steps = [step, step, step]
    rows = [(row.layer, row.backward) for row in recording.recording(recorder).rows]
    assert rows == [("0", 0), ("1", 50)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('none')\n", "without a forward pass of a torch.nn.Module"),
        (HEAD + "model(torch.ones(1, 3))\n", "without a backward pass that makes gradients"),
        (HEAD + STEP * 4, "it ended after 4 of 20 steps; let it train longer, or give --steps 4"),
        (HEAD + STEP + "exit(3)\n", "it ended by exit(3) after 1 of 20 steps; train longer"),
        (HEAD + STEP + "{}[7]\n", "it failed with KeyError: 7 after 1 of 20 steps"),
    ],
    ids=["model", "backward", "steps", "exit", "error"],
)
def a_script_that_trains_no_model_for_long_enough_is_told_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("train.py").write_text(text)
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        assert record.main(["train.py"]) == 1
    last = errors.getvalue().splitlines()[-1]
    assert last.startswith("gradwire.record: train.py: it "), last
    assert said in last
    assert not Path("recorded.csv").exists()


def forward_passes_without_gradients_and_within_a_backward_pass_do_not_count() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    recorder = Recorder(3)
    one = torch.ones(1, 2, requires_grad=True)
    with contextlib.suppress(Enough), recorder.watching():
        while True:
            with torch.no_grad():
                model(one)
            checkpoints.checkpoint(model, one, use_reentrant=False).sum().backward()
    layers = {id(layer) for layer in model}
    seen = [[of in layers for of, _ in step.left] for step in recorder.steps]
    # Once no new module is called, only layers are watched.
    assert seen == [[True, True, False], [True, True, False], [True, True]]
    assert all(len(step.gradients) == 4 for step in recorder.steps)
