"""The list of all tasks."""

from __future__ import annotations

from collections.abc import Iterable

from gradwire.study.characters import Characters
from gradwire.study.digits import Digits
from gradwire.study.task import Plan, Task

_TASKS: tuple[type[Digits] | type[Characters], ...] = (Digits, Characters)

PLANS: dict[str, Plan] = {task.name: task.plan for task in _TASKS}


def made(names: Iterable[str]) -> dict[str, Task]:
    """Make the tasks of these names, which reads their data."""
    return {task.name: task() for task in _TASKS if task.name in names}
