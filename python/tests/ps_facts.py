"""Facts about the parameter server: its results, which worker waits for which, its failures."""

import contextlib
import functools
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import serving
from gradwire import ps
from gradwire.ps.layout import Layout
from gradwire.ps.setup import Setup
from serving import Launch, Place


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Place:
    """Return a fresh place to meet, with the default job."""
    place = Place(monkeypatch, tmp_path)
    place.prepare()
    return place


def _raised(end: Any) -> str:
    assert isinstance(end, ps.FailedError), repr(end)
    return str(end)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (2, 2), (3, 2)])
def synchronous_training_equals_training_alone_bit_by_bit(workers: int, servers: int) -> None:
    ends = Launch(functools.partial(serving.steps, 6), workers, servers).run()
    assert ends[workers:] == [None] * servers
    for parameters in ends[:workers]:
        assert torch.equal(parameters, serving.alone(6, workers))


@pytest.mark.usefixtures("place")
def without_an_optimizer_what_is_pushed_is_added() -> None:
    def train(setup: Setup) -> torch.Tensor:
        model = nn.Linear(4, 4, bias=False)
        nn.init.zeros_(model.weight)
        with ps.Worker(setup, model) as worker:
            for step in range(3):
                push = worker.push({"weight": torch.full((4, 4), float(1 + setup.rank + step))})
                push.wait()
            worker.pull()
        return model.weight.detach()

    ends = Launch(train, optimizer=None).run()
    assert torch.equal(ends[0], torch.full((4, 4), 1.0 + 2 + 3 + 2 + 3 + 4))
    assert torch.equal(ends[1], ends[0])


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("staleness", [0, 3])
def nobody_runs_ahead_of_a_slow_worker_by_more_than_the_staleness(staleness: int) -> None:
    clocks, leads = [0, 0], []

    def train(setup: Setup) -> None:
        model = serving.network()
        with ps.Worker(setup, model) as worker:
            while worker.clock < 12:
                clocks[setup.rank] = worker.clock
                if setup.rank == 0:
                    leads.append(clocks[0] - clocks[1])
                else:
                    time.sleep(0.03)
                serving.loss_of(model, setup.rank, worker.clock).backward()
                # Noted first: the push may let the other worker go before it returns.
                clocks[setup.rank] = worker.clock + 1
                worker.push()
                worker.pull()

    assert Launch(train, setup={"mode": ps.SSP(staleness)}).run() == [None] * 4
    assert max(leads) == staleness


@pytest.mark.usefixtures("place")
def asynchronous_workers_do_not_wait_for_one_that_has_stopped() -> None:
    is_done, seen = threading.Event(), []

    def train(setup: Setup) -> torch.Tensor:
        model = serving.network()
        with ps.Worker(setup, model) as worker:
            if setup.rank == 1:
                worker.step()
                assert is_done.wait(30)
                seen.append(worker.clock)
                worker.step()
            else:
                before = serving.loss_of(model, 0, 0).item()
                for step in range(40):
                    model.zero_grad()
                    serving.loss_of(model, 0, step).backward()
                    worker.step()
                seen.append(serving.loss_of(model, 0, 0).item() < before / 2)
                is_done.set()

    assert Launch(train, setup={"mode": ps.ASYNC}).run() == [None] * 4
    assert seen == [True, 1]


def a_worker_that_comes_back_goes_on_where_training_is(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    def crashes_once(setup: Setup) -> torch.Tensor:
        if setup.rank == 1:
            _enter_and_crash(setup, at=3)
        return _constant_steps(6, setup)

    ends = Launch(crashes_once).run()
    place.prepare()
    expected = Launch(functools.partial(_constant_steps, 6), workers=1, servers=1).run()[0]
    assert torch.equal(ends[0], expected)
    assert torch.equal(ends[1], expected)
    said = capsys.readouterr().err
    assert "worker 1 (rank 1, 127.0.0.1" in said
    assert "was lost at clock 3" in said


def _constant_steps(count: int, setup: Setup) -> torch.Tensor:
    """Train on gradients that are equal on all workers, at any parameters."""
    model = serving.network(seed=7 + setup.rank)
    with ps.Worker(setup, model) as worker:
        _push_constants(worker, model, count)
    return serving.flat(model)


def _push_constants(worker: ps.Worker, model: nn.Module, until: int) -> None:
    while worker.clock < until:
        step = 0.25 * worker.clock
        worker.push({name: torch.full_like(p, step) for name, p in model.named_parameters()})
        worker.pull()


def _enter_and_crash(setup: Setup, at: int = 0) -> None:
    model = serving.network()
    with contextlib.suppress(ZeroDivisionError), ps.Worker(setup, model) as worker:
        _push_constants(worker, model, at)
        raise ZeroDivisionError


@pytest.mark.usefixtures("place")
def a_worker_that_does_not_come_back_is_named_to_all() -> None:
    def waits(setup: Setup) -> torch.Tensor | None:
        return serving.steps(6, setup) if setup.rank == 0 else _enter_and_crash(setup)

    ends = Launch(waits, setup={"timeout": 1.5}).run()
    for end in (ends[0], ends[2], ends[3]):
        assert "worker 1 (rank 1, 127.0.0.1" in _raised(end)


@pytest.mark.usefixtures("place")
def a_killed_worker_may_come_back_and_a_killed_server_is_named_within_ten_seconds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ranks = serving.Processes(tmp_path, here=(0, 2))
    try:
        ranks.start_all()
        ranks.note("clock1")
        ranks.signal(1, signal.SIGKILL)
        assert ranks.code(1) == -signal.SIGKILL
        before = int(ranks.note("latest0"))
        _wait_until(lambda: int(ranks.note("latest0")) > before + 5)  # beyond the staleness
        said = capsys.readouterr().err
        assert "server 0: worker 1 (rank 1, 127.0.0.1" in said
        assert "the others go on" in said

        (tmp_path / "entered1").unlink()
        ranks.start(1)
        assert int(ranks.note("entered1")) > before, "it goes on beside the others"

        ranks.signal(3, signal.SIGKILL)
        for rank in (0, 1):
            seconds, said = ranks.note(f"error{rank}", patience=15).split(" ", 1)
            assert float(seconds) < 10
            assert "server 1 (rank 3, 127.0.0.1, process" in said
    finally:
        ranks.end()


def _wait_until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


LOSSY = """
tolerance = "30%"
holes = "{rule}"
[transport]
mtu = 1500
[loss]
min_message = "0B"
protected_share = "0%"
protected_back_layers = "0%"
[faults]
seed = {seed}
drop = "10%"
"""
PUSHES = 6


def _sums_of_ones(place: Place, rule: str, seed: int) -> tuple[torch.Tensor, Launch]:
    """Let two workers push ones, which servers add up, over a wire that loses a tenth."""
    place.job = LOSSY.format(rule=rule, seed=seed)
    place.prepare()

    def train(setup: Setup) -> torch.Tensor:
        model = nn.Linear(500, 100, bias=False)
        nn.init.zeros_(model.weight)
        with ps.Worker(setup, model) as worker:
            for _ in range(PUSHES):
                worker.push({"weight": torch.ones(100, 500)})
            worker.pull()
        return model.weight.detach()

    launch = Launch(train, optimizer=None)
    ends = launch.run()
    assert torch.equal(ends[0], ends[1]), ends
    return ends[0], launch


@pytest.mark.parametrize("seed", [1, 2])
def what_stands_in_for_a_lost_gradient_is_what_the_job_says(place: Place, seed: int) -> None:
    whole = 2.0 * PUSHES
    rescaled, launch = _sums_of_ones(place, "rescale", seed)
    lost = sum(counted["lost_segments"] for counted in launch.counters)
    arrived = sum(counted["received_segments"] for counted in launch.counters)
    assert 0 < lost <= 0.3 * (lost + arrived), f"seed {seed}"
    zero, _ = _sums_of_ones(place, "zero", seed)
    late, _ = _sums_of_ones(place, "error-feedback", seed)
    assert (rescaled % 2 == 0).all(), f"seed {seed}: only what both lack is missing"
    assert zero.mean() < rescaled.mean() <= whole, f"seed {seed}: what is lost is lost"
    assert zero.mean() < late.mean() <= whole, f"seed {seed}: only the last loss is still owed"
    kept, _ = _sums_of_ones(place, "previous", seed)
    assert (kept % 2 == 0).all(), f"seed {seed}: what nobody has ever sent is rescaled"
    assert zero.mean() < kept.mean(), f"seed {seed}: mostly there is a former one"


@pytest.mark.usefixtures("place")
def training_converges_within_the_tolerance(place: Place) -> None:
    place.job = LOSSY.format(rule="rescale", seed=3)
    place.prepare()
    launch = Launch(functools.partial(serving.steps, 40), setup={"tolerance": 0.2})
    trained, other = launch.run()[:2]
    assert torch.equal(trained, other)
    first, last = (_loss_with(p) for p in (serving.flat(serving.network()), trained))
    lossless = _loss_with(serving.alone(40, 2))
    assert last < first / 2
    assert last < 1.2 * lossless
    lost = sum(counted["lost_segments"] for counted in launch.counters)
    arrived = sum(counted["received_segments"] for counted in launch.counters)
    assert 0 < lost <= 0.2 * (lost + arrived)


def _loss_with(parameters: torch.Tensor) -> float:
    model = serving.network()
    nn.utils.vector_to_parameters(parameters, model.parameters())
    return sum(serving.loss_of(model, 5, step).item() for step in range(10))


def parameters_that_a_pull_lacks_are_those_of_the_pull_before(place: Place) -> None:
    place.job = LOSSY.format(rule="error-feedback", seed=4)
    place.prepare()
    seen = []

    def train(setup: Setup) -> None:
        model = nn.Linear(500, 100, bias=False)
        nn.init.zeros_(model.weight)
        with ps.Worker(setup, model) as worker:
            for step in range(1, 7):
                worker.push({"weight": torch.ones(100, 500)})
                worker.pull()
                seen.append((step, set(model.weight.unique().tolist())))

    launch = Launch(
        train, workers=1, servers=2, optimizer=None, setup={"tolerance": 0.0, "pull_tolerance": 0.3}
    )
    assert launch.run() == [None] * 3
    assert all(max(values) == step for step, values in seen)
    assert all(values <= set(range(step + 1)) for step, values in seen)
    assert any(len(values) > 1 for _, values in seen), "something was lost"


@pytest.mark.usefixtures("place")
def different_models_are_one_error_everywhere() -> None:
    def train(setup: Setup) -> None:
        with ps.Worker(setup, serving.network() if setup.rank == 0 else nn.Linear(3, 4)) as worker:
            worker.step()

    for end in Launch(train).run():
        assert (
            "worker 1 and worker 0 have different models: parameter 1 is 'weight 4x3' here and "
            "'0.weight 256x32' there"
        ) in _raised(end)


@pytest.mark.usefixtures("place")
def different_setups_are_one_error_everywhere() -> None:
    modes = {"mode": lambda rank: ps.ASYNC if rank == 3 else ps.SYNC, "timeout": 5.0}
    for end in Launch(functools.partial(serving.steps, 3), setup=modes).run():
        assert "mode is 'async' on rank 3 and 'sync' on another" in _raised(end) or (
            "mode is 'sync' on rank" in _raised(end)
        )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"servers": 0}, "0 servers: give 1 or more"),
        ({"servers": 4}, "4 servers among 4 ranks leave no worker: give 1 to 3 servers"),
        ({"servers": 9}, "9 servers among 4 ranks"),
        ({"rank": 4}, "rank 4 of a launch of 4: ranks are 0 to 3"),
        ({"tolerance": 1.0}, "tolerance 1.0: give the share that may be missing"),
        ({"pull_tolerance": -0.1}, "pull_tolerance -0.1"),
        ({"timeout": 0.0}, "a timeout of 0.0 s"),
    ],
)
def what_cannot_be_set_up_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Setup(**{"rank": 0, "world_size": 4, **given})


def a_process_that_nobody_launched_is_told_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(ValueError, match="RANK is not set: start this program by torchrun"):
        Setup(world_size=2)
    with pytest.raises(ValueError, match="mode 'fast': allowed are sync, ssp and async"):
        ps.Mode.named("fast")
    with pytest.raises(ValueError, match="staleness -1"):
        ps.SSP(-1)


def a_model_of_two_types_is_refused() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    with pytest.raises(TypeError, match=r"0\.weight is torch.float32 and 1\.weight is"):
        Layout.of(model)


@pytest.mark.parametrize("servers", [1, 2, 3, 7])
def shards_are_equal_but_for_one_unit_and_cover_everything(servers: int) -> None:
    layout = Layout.of(serving.network())
    shards = layout.shards(servers)
    assert [begin for begin, _ in shards] == [0, *[end for _, end in shards[:-1]]]
    assert shards[-1][1] == layout.elements
    lengths = [end - begin for begin, end in shards]
    assert max(lengths) - min(lengths) <= 32
    pieces = [piece for shard in shards for piece in layout.pieces(shard)]
    assert sum(piece.end - piece.start for piece in pieces) == layout.elements
    assert Layout.from_text(layout.text()) == layout
