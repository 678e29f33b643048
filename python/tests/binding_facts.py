"""Facts about the compiled part and its stub."""

import ast
from pathlib import Path

import pytest

import gradwire
import launching
from gradwire import build


def _declared() -> dict[str, set[str]]:
    """Read the public members that the stub declares, by class."""
    stub = Path(gradwire.__file__).with_name("_binding.pyi").read_text()
    return {
        item.name: {member.name for member in item.body if isinstance(member, ast.FunctionDef)}
        for item in ast.parse(stub).body
        if isinstance(item, ast.ClassDef)
    }


@pytest.mark.oldest_torch
def the_stub_declares_what_the_binding_has() -> None:
    binding = build.load()
    for name, members in _declared().items():
        own = {member for member in vars(getattr(binding, name)) if not member.startswith("_")}
        assert own == members - {"__init__"}


def loading_twice_gives_the_same_module() -> None:
    assert build.load() is build.load()


def threads_may_make_and_drop_backends_at_the_same_time() -> None:
    (ended,) = launching.Launch("making.py", world=1).run()
    assert ended.succeeded() == 8000
