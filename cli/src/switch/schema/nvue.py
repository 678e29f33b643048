"""Asks the models of nvueschema whether NVUE would accept a configuration.

`python3 nvue.py 5.14 < startup.yaml` exits with 0 when it would; with 1 when not, and each line of
its output is a reason; with 3 when nvueschema is not installed. Keys that the models do not have
are refused.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

REFUSED = 1
"""Exit code when the configuration is not accepted."""

MISSING = 3
"""Exit code when a package is not installed."""

MOST = 20
"""Messages that are told; the rest is counted."""


def model_of(version: str) -> type:
    """The root model of a release, which takes no keys but its own.

    Args:
        version: such as `5.14`.

    Returns:
        The class `NvueConfig` of that release.
    """
    pydantic = importlib.import_module("pydantic")
    models = importlib.import_module("nvueschema.models.v" + version.replace(".", "_"))
    classes = [
        value
        for value in vars(models).values()
        if isinstance(value, type)
        and issubclass(value, pydantic.BaseModel)
        and value is not pydantic.BaseModel
    ]
    for one in classes:
        one.model_config["extra"] = "forbid"
    for one in classes:
        one.model_rebuild(force=True)
    return models.NvueConfig


def texts_kept() -> type:
    """A loader of YAML for which `on` and `no` are texts, as they are for NVUE."""
    yaml = importlib.import_module("yaml")

    class Loader(yaml.SafeLoader):
        """As YAML 1.2 has it, where only `true` and `false` are truth values."""

    kept = {
        letter: [(tag, expression) for tag, expression in rows if not tag.endswith(":bool")]
        for letter, rows in Loader.yaml_implicit_resolvers.items()
    }
    Loader.yaml_implicit_resolvers = kept
    return Loader


def with_text_keys(value: object) -> object:
    """The same tree with keys as texts, not numbers."""
    if isinstance(value, dict):
        return {str(key): with_text_keys(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_text_keys(inner) for inner in value]
    return value


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """One tree over another."""
    result = dict(one)
    for key, value in other.items():
        before = result.get(key)
        both = isinstance(before, dict) and isinstance(value, dict)
        result[key] = merged(before, value) if both else value
    return result


def settings(text: str) -> dict[str, Any]:
    """What a file sets.

    Raises:
        ValueError: it is no list of operations.
    """
    yaml = importlib.import_module("yaml")
    try:
        tree = with_text_keys(yaml.load(text, Loader=texts_kept()))
    except yaml.YAMLError as error:
        raise ValueError(f"this is not YAML: {error}") from error
    if not isinstance(tree, list) or not all(isinstance(item, dict) for item in tree):
        raise ValueError("expected a list of `- header:` and `- set:`")
    result: dict[str, Any] = {}
    for item in tree:
        result = merged(result, item.get("set") or {})
    return result


def judge(model: type, text: str) -> list[str]:
    """Why a model does not accept a file.

    Args:
        model: what `model_of` returned.
        text: the file.

    Returns:
        Reasons; none when it accepts it.
    """
    pydantic = importlib.import_module("pydantic")
    try:
        model.model_validate(settings(text))
    except pydantic.ValidationError as error:
        messages = [
            ".".join(str(key) for key in one["loc"]) + ": " + one["msg"] for one in error.errors()
        ]
        more = [f"and {len(messages) - MOST} more"] if len(messages) > MOST else []
        return messages[:MOST] + more
    except ValueError as error:
        return [str(error)]
    return []


def main() -> int:
    """Judges standard input by the release that was named.

    Returns:
        The exit code.
    """
    try:
        model = model_of(sys.argv[1])
        importlib.import_module("yaml")
    except ImportError as error:
        print(f"not installed: {error.name}", file=sys.stderr)
        return MISSING
    messages = judge(model, sys.stdin.read())
    for message in messages:
        print(message)
    return REFUSED if messages else 0


if __name__ == "__main__":
    sys.exit(main())
