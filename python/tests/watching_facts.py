"""Facts about the ways to watch a job that ``docs/watching.md`` shows: its own lines run here."""

import re
from pathlib import Path

import pytest
import yaml

from gradwire import native
from launching import Launch

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "watching.md").read_text()


def _block(language: str, word: str) -> str:
    """Return the fenced block of the page that has this word."""
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    (found,) = (block for block in blocks if word in block)
    return found


def opentelemetry_exports_every_counter_of_each_rank() -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="requirements-test.txt")
    launch = Launch("exporting.py", arguments=(_block("python", "opentelemetry"), "4"), timeout=90)
    for rank, ended in enumerate(launch.run()):
        seen = ended.succeeded()
        assert seen.pop("scope") == {"name": "gradwire"}
        assert seen.keys() == {f"gradwire.{name}" for name, _ in native.Counters._fields_}
        assert seen["gradwire.sent_segments"]["value"] > 0
        assert seen["gradwire.lost_segments"]["value"] == 0
        for metric in seen.values():
            assert metric["monotonic"]
            assert metric["attributes"] == {"rank": rank}


def the_collector_asks_ranks_as_prometheus_does() -> None:
    text = (ROOT / "deploy" / "opentelemetry" / "collector.yaml").read_text()
    collector = yaml.safe_load(text)
    receiver = collector["receivers"]["prometheus"]["config"]
    assert receiver == yaml.safe_load(_block("yaml", "scrape_configs"))
    (pipeline,) = collector["service"]["pipelines"].values()
    for kind, names in pipeline.items():
        assert set(names) == collector[kind].keys(), kind
