"""Facts about training under DistributedDataParallel: two ranks, real packets."""

from typing import Any

import pytest
import torch

from launching import Launch
from programs.training import STEPS

DROPS = '[transport]\nmtu = 1500\n[faults]\nseed = 3\ndrop = "2%"\n'
FAULTS = '[transport]\nmtu = 1500\n[faults]\nseed = 3\ndrop = "5%"\n'
MAY_LOSE = '[loss]\nmin_message = "16KiB"\n'
"""Also where a tolerance saves no time."""

TOLERANT = 'tolerance = "20%"\n' + MAY_LOSE + FAULTS


def _trained(backend: str, way: str, job: str = "") -> list[dict[str, Any]]:
    """Train on two ranks and return both reports."""
    return [
        ended.succeeded()
        for ended in Launch("training.py", arguments=(backend, way), job=job).run()
    ]


@pytest.fixture(scope="module")
def gloo() -> list[dict[str, Any]]:
    """The same training over Gloo."""
    return _trained("gloo", "plain")


@pytest.mark.parametrize("way", ["plain", "hook"])
def lossless_training_under_packet_loss_equals_gloo(way: str, gloo: list[dict[str, Any]]) -> None:
    ranks = _trained("gradwire", way, DROPS)
    assert ranks[0]["hash"] == ranks[1]["hash"]
    ours, theirs = torch.tensor(ranks[0]["parameters"]), torch.tensor(gloo[0]["parameters"])
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


@pytest.mark.oldest_torch
def replicas_stay_identical_when_segments_are_lost() -> None:
    ranks = _trained("gradwire", "hook", TOLERANT)
    assert sum(rank["counters"]["lost_segments"] for rank in ranks) > 0
    assert ranks[0]["hash"] == ranks[1]["hash"]


@pytest.mark.parametrize("transform", ["none", "hadamard"])
def layers_may_lose_what_the_job_says_of_them_however_it_is_spread(transform: str) -> None:
    loss = f'{MAY_LOSE}layer_tolerances = ["20%", 0]\ntransform = "{transform}"\n'
    ranks = _trained("gradwire", "hook", loss + FAULTS)
    assert sum(rank["counters"]["lost_segments"] for rank in ranks) > 0
    assert ranks[0]["hash"] == ranks[1]["hash"]


def _lost(loss: str) -> int:
    ranks = _trained("gradwire", "hook", f'tolerance = "20%"\n{MAY_LOSE}{loss}\n{FAULTS}')
    return sum(rank["counters"]["lost_segments"] for rank in ranks)


def nothing_is_lost_where_no_layer_may_lose() -> None:
    assert _lost("layer_tolerances = [0]") == 0


def only_the_second_step_loses_where_every_change_is_one_of_phase() -> None:
    assert 0 < _lost("tight_tolerance = 0\ntight_change = 0") < _lost("") / 3


def the_loss_budget_is_kept_by_steps() -> None:
    assert [rank["step"] for rank in _trained("gradwire", "hook")] == [STEPS, STEPS]


ENCODED = '[collectives]\ncodec_min = 0\n[transport]\nmtu = 1500\nwire = "udp"\n'
ENCODED_LOSSY = (
    'tolerance = "10%"\nholes = "error-feedback"\n'
    + MAY_LOSE
    + ENCODED
    + '[faults]\nseed = 3\ndrop = "5%"\n'
)


@pytest.mark.parametrize("codec", ["onebit", "tbq", "terngrad", "topk:0.02", "blockfloat"])
def replicas_stay_identical_with_a_codec_and_losses(codec: str) -> None:
    ranks = _trained("gradwire", f"codec {codec}", ENCODED_LOSSY)
    assert ranks[0]["hash"] == ranks[1]["hash"]
    assert all(loss == loss for rank in ranks for loss in rank["losses"])  # a NaN is not


def onebit_sends_a_small_part_of_the_packets() -> None:
    sent = [
        sum(rank["counters"]["sent_segments"] for rank in _trained("gradwire", way, ENCODED))
        for way in ("hook", "codec onebit")
    ]
    assert sent[1] < sent[0] / 5


def the_codec_of_the_job_is_that_of_the_hook() -> None:
    of_job = _trained("gradwire", "hook", ENCODED.replace("codec_min", 'codec = "topk"\ncodec_min'))
    named = _trained("gradwire", "codec topk", ENCODED)
    assert of_job[0]["hash"] == named[0]["hash"] == named[1]["hash"]


def adasum_trains_equal_replicas() -> None:
    ranks = _trained("gradwire", "adasum")
    assert ranks[0]["hash"] == ranks[1]["hash"]
    assert ranks[0]["losses"][-1] < ranks[0]["losses"][0]


def an_unknown_codec_is_refused_with_the_known_ones() -> None:
    (ended, _) = Launch("training.py", arguments=("gradwire", "codec gzip")).run()
    assert ended.code != 0
    assert 'codec "gzip": give one of "none", "job", "onebit"' in ended.errors
