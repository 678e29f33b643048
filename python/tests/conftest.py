"""Fixtures: one launch of three ranks serves all facts about operations."""

import sys

import pytest

import launching

sys.path.insert(0, str(launching.PROGRAMS))


@pytest.fixture(scope="session")
def reports_of_collectives() -> list[dict[str, str]]:
    """Reports of three ranks, each about every check."""
    return [ended.report for ended in launching.Launch("collectives.py", world=3).run()]
