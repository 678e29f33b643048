"""Expectations of the findings, and whether they came true.

A kind counts as no worse than another if its mean is worse by less than the noise of seeds: the
standard deviation of the scores of one kind, estimated from all kinds of a task together, since
three seeds alone say little about it. The differences seed by seed are printed, too: runs of one
seed begin with the same parameters and see the same data, so these show effects below that noise.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gradwire.study.findings import Group, Kind
from gradwire.study.task import Plan

ACCEPTED_MAY_DIFFER = 0.1
"""Largest relative difference between the share that stayed missing and the share dropped."""


@dataclass(frozen=True)
class Verdict:
    """Whether one expectation came true."""

    expectation: str
    holds: bool | None
    """``None`` if its cells have not been run, or with one seed only."""

    evidence: list[str]


@dataclass(frozen=True)
class _Pair:
    """One kind that should be no worse than another."""

    better: Group
    worse: Group

    def gains(self, plan: Plan) -> list[float]:
        """How much better it was, seed by seed."""
        sign = 1.0 if plan.higher_is_better else -1.0
        seeds = self.better.final.keys() & self.worse.final.keys()
        return [sign * (self.better.final[seed] - self.worse.final[seed]) for seed in sorted(seeds)]


def verdicts(groups: list[Group], plans: dict[str, Plan]) -> list[Verdict]:
    """Judge every expectation."""
    by_kind = {group.kind: group for group in groups}
    noise = {task: _noise([g for g in groups if g.kind.task == task]) for task in plans}
    sorts = {
        "what stayed missing is about what was dropped": None,
        "rescale is no worse than zero, within the noise of seeds": _against(
            by_kind, "rescale", "zero"
        ),
        "error-feedback at 10 % is no worse than lossless, within the noise of seeds": _feedback(
            by_kind
        ),
        "loss in front layers only is no worse than in back layers only": _parts(
            by_kind, "front", "back"
        ),
        "loss of small gradients only is no worse than of large ones only": _parts(
            by_kind, "small", "large"
        ),
    }
    return [
        _accepted(title, groups) if pairs is None else _judged(title, pairs, plans, noise)
        for title, pairs in sorts.items()
    ]


def _against(by_kind: dict[Kind, Group], better: str, worse: str) -> list[_Pair]:
    kinds = [k for k in by_kind if k.holes == better and k.part == "all" and k.drop > 0.0]
    return _pairs(by_kind, [(kind, replace(kind, holes=worse)) for kind in kinds])


def _feedback(by_kind: dict[Kind, Group]) -> list[_Pair]:
    kinds = [k for k in by_kind if k.holes == "error-feedback" and k.drop == 0.1]
    bare = {"part": "all", "transform": "none", "holes": "rescale", "drop": 0.0}
    return _pairs(by_kind, [(kind, replace(kind, **bare)) for kind in kinds])


def _parts(by_kind: dict[Kind, Group], better: str, worse: str) -> list[_Pair]:
    kinds = [kind for kind in by_kind if kind.part == better]
    return _pairs(by_kind, [(kind, replace(kind, part=worse)) for kind in kinds])


def _pairs(by_kind: dict[Kind, Group], kinds: Iterable[tuple[Kind, Kind]]) -> list[_Pair]:
    return [_Pair(by_kind[a], by_kind[b]) for a, b in sorted(kinds) if b in by_kind]


def _accepted(title: str, groups: list[Group]) -> Verdict:
    kinds = [g for g in groups if g.kind.part == "all" and g.kind.drop > 0.0]
    ratios = [share / g.kind.drop for g in kinds for share in g.accepted.values()]
    if not ratios:
        return Verdict(title, None, [])
    holds = all(abs(ratio - 1.0) <= ACCEPTED_MAY_DIFFER for ratio in ratios)
    evidence = f"{min(ratios):.3f} to {max(ratios):.3f} times as much, in {len(ratios)} cells"
    return Verdict(title, holds, [evidence])


def _judged(
    title: str, pairs: list[_Pair], plans: dict[str, Plan], noise: dict[str, float | None]
) -> Verdict:
    evidence: list[str] = []
    fitting: list[bool] = []
    for pair in pairs:
        kind = pair.better.kind
        gains, bound = pair.gains(plans[kind.task]), noise[kind.task]
        if len(gains) > 1 and bound is not None:
            fitting.append(statistics.fmean(gains) >= -bound)
            evidence.append(_line(kind, plans[kind.task], gains, bound))
    return Verdict(title, all(fitting) if fitting else None, evidence)


def _line(kind: Kind, plan: Plan, gains: list[float], bound: float) -> str:
    words = [kind.task, f"{kind.drop * 100:g} %"]
    words += [kind.transform] if kind.transform != "none" else []
    gain = statistics.fmean(gains)
    verdict = "" if gain >= -bound else ": no"
    return (
        f"{' '.join(words)}: {plan.metric} better by {gain:+.4f} "
        f"({min(gains):+.4f} to {max(gains):+.4f}), noise {bound:.4f}{verdict}"
    )


def _noise(groups: list[Group]) -> float | None:
    """Standard deviation between seeds, from the variances within all ``groups`` together."""
    samples = [list(group.final.values()) for group in groups if len(group.final) > 1]
    if not samples:
        return None
    freedom = sum(len(sample) - 1 for sample in samples)
    squares = sum(statistics.variance(sample) * (len(sample) - 1) for sample in samples)
    return math.sqrt(squares / freedom)
