"""The findings as Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable

from gradwire.study.expectations import Verdict
from gradwire.study.findings import Group, Kind, mean_and_spread
from gradwire.study.task import Plan

_SIGNS = {True: "holds", False: "DOES NOT HOLD", None: "cannot be told yet"}


def markdown(groups: list[Group], plans: dict[str, Plan], found: list[Verdict]) -> str:
    """Write one table per task, then each expectation and whether it came true."""
    parts: list[str] = []
    for task, plan in plans.items():
        mine = [group for group in groups if group.kind.task == task]
        if mine:
            parts += [_heading(task, plan, mine), _table(plan, mine)]
    parts.append("\n".join(_expected(found)))
    return "\n\n".join(parts)


def _heading(task: str, plan: Plan, groups: list[Group]) -> str:
    seeds = max(len(group.final) for group in groups)
    direction = "more" if plan.higher_is_better else "less"
    return (
        f"### {task}: {plan.metric} ({direction} is better) after {plan.steps} steps\n\n"
        f"Mean of up to {seeds} seeds, +- half the range; in brackets the epochs until the "
        f"{plan.metric} was within {plan.margin:g} of the same seed's lossless end."
    )


def _table(plan: Plan, groups: list[Group]) -> str:
    drops = sorted({group.kind.drop for group in groups if group.kind.drop > 0.0})
    lossless = [group for group in groups if group.kind.drop == 0.0]
    lines = [
        "| lost | holes | transform | " + " | ".join(f"{drop * 100:g} %" for drop in drops) + " |",
        "|---|---|---|" + "---:|" * len(drops),
    ]
    lines += [
        f"| nothing | | | {_cell(plan, group)} |" + " |" * (len(drops) - 1) for group in lossless
    ]
    by_kind = {group.kind: group for group in groups}
    for row in _rows(by_kind):
        found = [by_kind.get(Kind(*row, drop)) for drop in drops]
        cells = [_cell(plan, group) if group else "" for group in found]
        lines.append(f"| {row[1]} | {row[3]} | {row[2]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _rows(kinds: Iterable[Kind]) -> list[tuple[str, str, str, str]]:
    """Kinds with losses, without their share, in the order in which they were listed."""
    rows = ((k.task, k.part, k.transform, k.holes) for k in kinds if k.drop > 0.0)
    return list(dict.fromkeys(rows))


def _cell(plan: Plan, group: Group) -> str:
    mean, spread = mean_and_spread(group.final.values())
    text = f"{mean:.3f} +- {spread:.3f}"
    if group.steps:
        steps, _ = mean_and_spread(group.steps.values())
        reached = sum(math.isfinite(step) for step in group.steps.values())
        epochs = f"{steps / plan.steps_per_epoch:.2f}"
        if reached < len(group.steps):
            epochs = f"{reached} of {len(group.steps)} reach it"
        text += f" ({epochs})"
    return text


def _expected(found: list[Verdict]) -> list[str]:
    lines = ["### Expected", ""]
    for verdict in found:
        lines.append(f"- {verdict.expectation}: **{_SIGNS[verdict.holds]}**")
        lines += [f"  - {line}" for line in verdict.evidence]
    return lines
