"""Judges NVUE in YAML by nvueschema: `python3 -c nvue.py 5.18 < config.yaml`.

Ends with 0 when the configuration is accepted, with 1 when it is not (one reason a line on
standard output), with 3 when a package is not installed.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType


def forbid_extra(module: ModuleType) -> None:
    """Makes every model of a module refuse fields that it does not know."""
    from pydantic import BaseModel

    own = [
        model
        for model in vars(module).values()
        if isinstance(model, type) and issubclass(model, BaseModel) and model is not BaseModel
    ]
    for model in own:
        model.model_config["extra"] = "forbid"
    for model in own:
        model.model_rebuild(force=True)


def bodies(document: object) -> list[object]:
    """What is set: NVUE writes a list with a header and `set`, or the tree alone."""
    if not isinstance(document, list):
        return [document]
    return [part["set"] for part in document if isinstance(part, dict) and "set" in part]


def judge(version: str, text: str) -> list[str]:
    """The reasons for which a configuration is refused."""
    import yaml
    from pydantic import ValidationError

    module = importlib.import_module(f"nvueschema.models.v{version.replace('.', '_')}")
    forbid_extra(module)
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        return [" ".join(str(error).split())]
    reasons = []
    for body in bodies(document):
        try:
            module.NvueConfig.model_validate(body)
        except ValidationError as error:
            for one in error.errors():
                place = ".".join(str(part) for part in one["loc"])
                reasons.append(f"{place}: {one['msg']}")
    return reasons


def main() -> int:
    """Reads standard input and judges it."""
    try:
        reasons = judge(sys.argv[1], sys.stdin.read())
    except ImportError as error:
        print(error)
        return 3
    print("\n".join(reasons))
    return 1 if reasons else 0


sys.exit(main())
