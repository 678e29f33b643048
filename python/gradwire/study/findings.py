"""The findings: cells of all seeds together, and the steps that each needed to reach its aim.

``expectations`` says what they should be, ``table`` presents them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from gradwire.study.records import Record
from gradwire.study.task import Plan


@dataclass(frozen=True, order=True)
class Kind:
    """The parameters that cells of different seeds share."""

    task: str
    part: str
    transform: str
    holes: str
    drop: float

    @classmethod
    def of(cls, record: Record) -> Kind:
        """Read it from a record."""
        return cls(*(record[name] for name in ("task", "part", "transform", "holes", "drop")))


@dataclass
class Group:
    """Cells of one kind; every map is by seed."""

    kind: Kind
    final: dict[int, float] = field(default_factory=dict)
    """Score at the end."""

    steps: dict[int, float] = field(default_factory=dict)
    """Steps until it was as good as without losses, except for the margin; infinite if never."""

    accepted: dict[int, float] = field(default_factory=dict)
    """Share of gradients that stayed missing."""

    def told(self) -> dict[str, Any]:
        """Return it for JSON, which has no infinity: there, never is ``null``."""
        steps = {seed: n if math.isfinite(n) else None for seed, n in self.steps.items()}
        kind = asdict(self.kind)
        return {**kind, "final": self.final, "steps": steps, "accepted": self.accepted}


def groups_of(records: Iterable[Record], plans: dict[str, Plan]) -> list[Group]:
    """Group records by kind; those without losses are the first of their task."""
    records = list(records)
    aims = {(r["task"], r["seed"]): r["curve"][-1][1] for r in records if r["drop"] == 0.0}
    groups: dict[Kind, Group] = {}
    for record in records:
        kind, seed, plan = Kind.of(record), record["seed"], plans[record["task"]]
        group = groups.setdefault(kind, Group(kind))
        group.final[seed] = record["curve"][-1][1]
        group.accepted[seed] = record["accepted"]
        aim = aims.get((record["task"], seed))
        if aim is not None:
            group.steps[seed] = _steps_to(record["curve"], aim, plan)
    return list(groups.values())


def mean_and_spread(values: Iterable[float]) -> tuple[float, float]:
    """Return the mean, and half the distance between the minimum and the maximum."""
    values = list(values)
    if float("inf") in values:
        return float("inf"), 0.0
    return statistics.fmean(values), (max(values) - min(values)) / 2


def _steps_to(curve: list[list[float]], aim: float, plan: Plan) -> float:
    """Steps until the aim was reached, by linear interpolation between two scores."""
    good_enough = aim - plan.margin if plan.higher_is_better else aim + plan.margin
    before: list[float] | None = None
    for point in curve:
        if plan.reaches(point[1], aim):
            if before is None:
                return point[0]
            way = (good_enough - before[1]) / (point[1] - before[1])
            return before[0] + way * (point[0] - before[0])
        before = point
    return float("inf")
