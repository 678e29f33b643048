"""Facts about the files of `deploy`: their readers accept them, and they name things that exist."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
ROOT = DEPLOY.parent


def _documents(name: str) -> list[Any]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))


def an_indexed_job_starts_as_many_pods_as_torchrun_expects() -> None:
    service, config, job = _documents("indexed-job.yaml")
    spec = job["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert spec["completionMode"] == "Indexed"
    assert f"--nnodes={spec['completions']}" in container["args"]
    assert spec["completions"] == spec["parallelism"]
    subdomain = spec["template"]["spec"]["subdomain"]
    assert service["metadata"]["name"] == subdomain
    assert f"--master-addr={job['metadata']['name']}-0.{subdomain}" in container["args"]
    assert service["spec"]["selector"]["job-name"] == job["metadata"]["name"]
    assert config["data"].keys() == {"job.toml"}


def every_volume_that_a_pod_mounts_is_there() -> None:
    pods = [document.get("spec", {}).get("template") for document in _documents("indexed-job.yaml")]
    (operated,) = _documents("pytorchjob.yaml")
    replicas = operated["spec"]["pytorchReplicaSpecs"].values()
    for pod in [*filter(None, pods), *(replica["template"] for replica in replicas)]:
        names = {volume["name"] for volume in pod["spec"]["volumes"]}
        for container in pod["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} == names


def the_commands_of_the_playbook_are_those_of_gradwire() -> None:
    (play,) = yaml.safe_load((DEPLOY / "ansible" / "gradwire.yml").read_text())
    make = next(task for task in play["tasks"] if task["name"].startswith("Make the change"))
    command = shutil.which("gradwire", path=str(Path(sys.executable).parent))
    if command is None:
        pytest.skip("the command gradwire is not installed")
    options = set(re.findall(r"--[a-z]+", play["vars"]["options"]))
    for name in make["loop"]:
        words = [command, "switch", name, "--help"]
        told = subprocess.run(words, check=True, capture_output=True, text=True).stdout
        assert options <= set(re.findall(r"--[a-z]+", told)), name


def bash_reads_the_script_of_slurm() -> None:
    subprocess.run(["bash", "-n", DEPLOY / "slurm.sh"], check=True)


def the_image_has_the_pytorch_of_the_tests() -> None:
    (torch,) = re.findall(r"^torch==(.*)$", (ROOT / "requirements.txt").read_text(), re.MULTILINE)
    assert f"ARG TORCH={torch}\n" in (DEPLOY / "Dockerfile").read_text()


def every_panel_has_a_place_of_its_own() -> None:
    board = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]}
    assert len(places) == len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
