"""Facts about the schemas with which editors check job and fabric files."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

if sys.version_info < (3, 11):
    pytest.skip("tomllib came with Python 3.11", allow_module_level=True)
import tomllib

ROOT = Path(__file__).parents[2]
EXPLICIT = """
name = "one switch"
buffer = { shared = "16MiB", alpha = 1.0 }
mark = 0.5
[[switch]]
name = "leaf 0"
tier = 0
[[link]]
ends = ["host 0", "leaf 0"]
rate = "100G"
[[link]]
ends = ["host 1", "leaf 0"]
rate = "100G"
latency = "500ns"
loss = 0.001
[[fault]]
link = "host 1"
kind = "flap"
down_at = ["1ms", "3ms"]
up_at = ["2ms"]
"""


def _gradwire(*words: str | Path) -> str:
    command = shutil.which("gradwire", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("the command gradwire is not installed")
    line = [command, *map(str, words)]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def _schema(of: str) -> Any:
    schema = json.loads(_gradwire("generate", "schema", of))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def every_default_and_every_example_of_a_job_is_valid() -> None:
    schema = _schema("job")
    for path in sorted(ROOT.glob("examples/*/*job*.toml")) + sorted(ROOT.glob("examples/jobs/*")):
        schema.validate(tomllib.loads(path.read_text()))
        whole = _gradwire("job", "check", path)
        schema.validate(tomllib.loads(whole))


def every_example_of_a_fabric_is_valid() -> None:
    schema = _schema("fabric")
    for path in sorted(ROOT.glob("examples/fabrics/*.toml")):
        schema.validate(tomllib.loads(path.read_text()))
    schema.validate(tomllib.loads(EXPLICIT))


def what_a_reader_takes_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "fabric.toml"
    path.write_text(EXPLICIT)
    assert "flow" in _gradwire("sim", "run", path, "one:2KB")


@pytest.mark.parametrize(
    ("of", "text"),
    [
        ("job", "tolerence = 0.1"),
        ("job", "tolerance = 2"),
        ("job", '[transport]\nwire = "tcp"'),
        ("job", '[transport]\ngap = "1 hour"'),
        ("job", "[priority]\ndscps = [64]"),
        ("fabric", "shpe = 'single:4@100G'"),
        ("fabric", '[[link]]\nends = ["host 0", "leaf 0"]'),
        ("fabric", '[[fault]]\nlink = "host 0"\nkind = "slow"'),
        ("fabric", 'balance = "ecpm"'),
    ],
)
def a_mistake_is_refused(of: str, text: str) -> None:
    assert not _schema(of).is_valid(tomllib.loads(text))
