"""What is expected of the findings, and whether it came true.

Two kinds are compared by the differences of their scores, seed by seed, since runs of one seed
start from the same parameters and see the same data. The noise of such a difference is estimated
from all comparisons of one sort together: three seeds alone say little about it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace

from gradwire.study.findings import Group, Kind
from gradwire.study.task import Plan

STANDARD_ERRORS = 3.0
"""A difference of this many is more than noise: a sort has dozens of comparisons."""

ACCEPTED_MAY_DIFFER = 0.1
"""By this part of itself may what stayed missing differ from what was dropped."""


@dataclass(frozen=True)
class Verdict:
    """Whether one expectation came true."""

    expectation: str
    holds: bool | None
    """``None`` where the cells that it is about have not been run."""

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
    sorts = {
        "what stayed missing is about what was dropped": None,
        "rescale is no worse than zero": _against(by_kind, "rescale", "zero"),
        "error-feedback at 10 % is no worse than lossless": _feedback(by_kind),
        "loss in front layers only is no worse than in back layers only": _parts(
            by_kind, "front", "back"
        ),
        "loss of small gradients only is no worse than of large ones only": _parts(
            by_kind, "small", "large"
        ),
    }
    return [
        _accepted(title, groups) if pairs is None else _judged(title, pairs, plans)
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


def _judged(title: str, pairs: list[_Pair], plans: dict[str, Plan]) -> Verdict:
    evidence, holds = [], True
    for task in sorted({pair.better.kind.task for pair in pairs}):
        plan = plans[task]
        mine = [pair for pair in pairs if pair.better.kind.task == task]
        noise = _noise([pair.gains(plan) for pair in mine])
        for pair in mine:
            gains = pair.gains(plan)
            bound = STANDARD_ERRORS * noise / math.sqrt(len(gains)) if gains else math.inf
            gain = statistics.fmean(gains) if gains else 0.0
            fits = gain >= -bound
            holds &= fits
            evidence.append(_line(pair.better.kind, plan, gain, bound, fits))
    return Verdict(title, holds if pairs else None, evidence)


def _line(kind: Kind, plan: Plan, gain: float, bound: float, fits: bool) -> str:
    words = [kind.task, f"{kind.drop * 100:g} %"]
    words += [kind.transform] if kind.transform != "none" else []
    verdict = "" if fits else ": no"
    return f"{' '.join(words)}: {plan.metric} {gain:+.4f} better, noise {bound:.4f}{verdict}"


def _noise(samples: list[list[float]]) -> float:
    """Standard deviation of one difference, from the variances within all samples together."""
    freedom = sum(len(sample) - 1 for sample in samples if len(sample) > 1)
    if freedom == 0:
        return math.inf
    squares = sum(statistics.variance(s) * (len(s) - 1) for s in samples if len(s) > 1)
    return math.sqrt(squares / freedom)
