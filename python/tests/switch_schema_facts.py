"""Facts about switch configurations that others judge: nvueschema's models and pyavd.

Both must accept the output of `gradwire switch render`. They or `gradwire switch check` must refuse
a configuration that is broken on purpose, and name the fault.
"""

import functools
import importlib.util
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "cli" / "src" / "switch" / "schema"
EXPORTS = ROOT / "switch-config" / "tests" / "exports"

RELEASES = ("5.11", "5.14", "5.18")
CHIPS = ("sand", "trident")
SEEDS = range(36 if os.environ.get("GRADWIRE_SLOW") else 9)
RATES = (10, 25, 40, 100, 200, 400, 800)
RESERVED = (46, 48, 56)

JOB = """[priority]
dscps = [40, 34, 26, 0]
droppable_dscps = [38, 30, 1]
"""
FABRIC = "leaf-spine:2x2x2@100G,buffer=64MiB*0.25"


def _program(name: str, package: str) -> ModuleType:
    """One of the programs that `gradwire switch check` asks; skips without its package."""
    pytest.importorskip(package, reason=f"{package} is not installed")
    spec = importlib.util.spec_from_file_location(f"schema_{name}", PROGRAMS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def _nvue() -> ModuleType:
    return _program("nvue", "nvueschema")


@functools.cache
def _model(release: str) -> type:
    return _nvue().model_of(release)


@functools.cache
def _eos() -> ModuleType:
    return _program("eos", "pyavd")


def _gradwire(*arguments: str | Path, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run the command; it finds other programs in `path` only, so none that judges by default."""
    beside = Path(sys.executable).with_name("gradwire")
    command = beside if beside.exists() else shutil.which("gradwire")
    if not command:
        pytest.skip("the command gradwire is not installed")
    words = [str(one) for one in (command, "switch", *arguments)]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=60, env={"PATH": path}
    )


def _rendered(platform: str, job: Path, fabric: str = FABRIC, *more: str) -> str:
    ended = _gradwire("render", "--platform", platform, job, fabric, *more)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of three classes of gradients, with DSCPs of their own for droppable packets."""
    path = tmp_path_factory.mktemp("switch") / "job.toml"
    path.write_text(JOB)
    return path


def _random_case(seed: int, folder: Path) -> tuple[Path, str, list[str]]:
    """A job of 2 to 8 classes, a fabric of 10G to 800G, and how the thresholds are meant.

    Every other job has a share for others.
    """
    dice = random.Random(seed)
    classes = dice.randint(2, 8)
    free = [dscp for dscp in range(64) if dscp not in RESERVED]
    dscps = dice.sample(free, 2 * classes - 1)
    path = folder / f"job-{seed}.toml"
    text = f"[priority]\ndscps = {dscps[:classes]}\ndroppable_dscps = {dscps[classes:]}\n"
    if classes > 2 and seed % 2:
        text += f'untagged = "{1 + seed * 7 % 90}%"\n'
    path.write_text(text)
    fabric = f"leaf-spine:{dice.randint(1, 4)}x2x2@{dice.choice(RATES)}G,buffer=16MiB"
    return path, fabric, ["--rtt", f"{dice.randint(1, 40)}us"]


@pytest.mark.parametrize("release", RELEASES)
def every_release_of_nvue_accepts_what_is_rendered(release: str, job: Path) -> None:
    model = _model(release)
    text = _rendered(f"nvue:{release}", job)
    assert _nvue().judge(model, text) == []
    assert _nvue().settings(text)["qos"]["mapping"]["gradwire"]["trust"] == "l3"


def nvue_accepts_trimming_and_the_models_know_it_from_5_14_on(job: Path) -> None:
    text = _rendered("nvue:5.14", job, FABRIC, "--trim", "256B")
    assert _nvue().judge(_model("5.14"), text) == []
    assert any("packet-trim" in one for one in _nvue().judge(_model("5.11"), text))


def words_of_one_release_are_refused_by_another(job: Path) -> None:
    newest = _rendered("nvue:5.18", job)
    reasons = _nvue().judge(_model("5.11"), newest)
    assert any("mode: Extra inputs" in one for one in reasons), reasons
    assert any("ecmp-hash.source-port" in one for one in reasons), reasons


@pytest.mark.parametrize("chip", CHIPS)
def eos_accepts_what_is_rendered_and_prints_it_line_by_line(chip: str, job: Path) -> None:
    text = _rendered(f"eos:{chip}", job)
    assert _eos().judge(text) == []
    assert _spoken(text) == _spoken(_eos().rendered(_eos().understood(text)[0]))


def _spoken(text: str) -> list[str]:
    """Lines without comments and indentation, in order."""
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if line and not line.startswith("!")]


@pytest.mark.parametrize("seed", SEEDS)
def random_policies_are_accepted_by_all(seed: int, tmp_path: Path) -> None:
    path, fabric, more = _random_case(seed, tmp_path)
    for release in RELEASES:
        text = _rendered(f"nvue:{release}", path, fabric, *more)
        assert _nvue().judge(_model(release), text) == [], (seed, release)
    for chip in CHIPS:
        text = _rendered(f"eos:{chip}", path, fabric, *more)
        assert _eos().judge(text) == [], (seed, chip)
        again = _eos().rendered(_eos().understood(text)[0])
        assert _spoken(text) == _spoken(again), (seed, chip)


def exports_that_changes_are_tried_on_are_accepted(job: Path, tmp_path: Path) -> None:
    running = {"nvue:5.14": EXPORTS / "nvue.yaml", "eos:trident": EXPORTS / "eos.cfg"}
    ports = {"nvue:5.14": "swp1,swp2,swp3,swp9", "eos:trident": "Ethernet1-4"}
    judges: dict[str, Callable[[str], list[str]]] = {
        "nvue:5.14": lambda text: _nvue().judge(_model("5.14"), text),
        "eos:trident": lambda text: _eos().judge(text),
    }
    for platform, export in running.items():
        assert judges[platform](export.read_text()) == []
        about = ["--platform", platform, job, FABRIC, export, "--ports", ports[platform]]
        ended = _gradwire("diff", *about)
        assert ended.returncode == 0, ended.stderr
        if platform.startswith("nvue"):
            assert judges[platform](ended.stdout) == []


# A text of the configuration, its broken form, the judge that refuses it (the models: "schema",
# our own rules: "check"), and words of the complaint.
NVUE_FAULTS = [
    ("probability: 100", "probability: 101", "schema", "probability: Input should be less"),
    ("trust: l3", "trust: dscp", "schema", "gradwire.trust: Input should be"),
    ("red: enable", "red: maybe", "schema", "red: Input should be 'enable' or 'disable'"),
    ("mode: strict", "mode: wrr", "schema", "mode: Input should be 'dwrr' or 'strict'"),
    ("min-threshold:", "threshold:", "schema", "threshold: Extra inputs"),
    ("max-threshold: ", "max-threshold: -", "schema", "max-threshold: Input should be greater"),
    ("port-default-sp: 0", "port-default-sp: 8", "schema", "port-default-sp: Input should be"),
    ("source-port: 'on'", "source-port: both", "schema", "source-port: Input should be"),
    ("- set:", "- put:", "check", "no operation of NVUE"),
    ("max-threshold: ", "max-threshold: 1 # ", "check", "threshold-order"),
    ("'63':", "'64':", "check", "schema: qos.mapping.gradwire.dscp.64"),
    ("profile: gradwire-100G", "profile: gradwire-1G", "check", "dangling-name"),
    ("red: enable", "red: disable", "check", "early-drop-off"),
    ("ecn: enable", "ecn: disable", "check", "ecn-off"),
    ("probability: 100", "probability: 5", "check", "probability"),
    ("mode: strict", "mode: dwrr", "check", "service-order"),
    ("'2':\n              ecn", "'9':\n              ecn", "check", "queue-range"),
    ("mode: strict", "bw-percent: 9\n              mode: strict", "check", "strict-weight"),
    ("trust: l3", "trust: l2", "check", "dscp-queue"),
    (
        "\n    qos:\n",
        "\n    qos:\n      roce:\n        enable: 'on'\n        mode: lossless\n",
        "check",
        "pause-on",
    ),
]

EOS_FAULTS = [
    ("drop-probability 100", "drop-probability 200", "schema", "above the maximum allowed"),
    ("drop-precedence 2 min", "drop-precedence 3 min", "schema", "above the maximum allowed"),
    ("weight 0", "weight 16", "schema", "weight: The value '16' is above"),
    ("minimum-threshold", "minimum", "schema", "no such command"),
    ("bytes", "octets", "schema", "is not among the valid values"),
    ("priority strict", "priority first", "schema", "is not among the valid values"),
    ("qos trust dscp", "qos trust tos", "schema", "is not among the valid values"),
    (" 0 threshold 1/4", " 0 threshold 1/5", "schema", "is not among the valid values"),
    (" queue 0 threshold", " queue 8 threshold", "schema", "above the maximum allowed"),
    ("priority strict", "priority strict\n      priority 3", "schema", "not among the valid"),
    ("minimum-threshold ", "minimum-threshold 9", "check", "threshold-order"),
    ("uc-tx-queue 3\n", "uc-tx-queue 42\n", "check", "queue-range"),
    ("to uc-tx-queue 3", "to uc-tx-queue 99", "check", "queue-range"),
    ("service-profile gradwire-100G", "service-profile gradwire", "check", "dangling-name"),
    ("qos map dscp 34 ", "qos map dscp 64 ", "check", "schema: qos map dscp 64"),
    ("drop-probability 100", "drop-probability 7", "check", "probability"),
    ("      random-detect drop", "      ! random-detect drop", "check", "early-drop-off"),
    ("drop drop-precedence 2", "drop", "check", "drop-precedence"),
    ("no priority-flow-control", "priority-flow-control on", "check", "pause-on"),
    ("priority strict", "no priority", "check", "service-order"),
    ("priority strict", "priority strict\n      bandwidth percent 9", "check", "strict-weight"),
    ("qos map traffic-class 1 to uc-tx-queue 1\n", "", "check", "no-queue"),
    ("qos trust dscp", "qos trust cos", "check", "dscp-queue"),
    (
        "qos map traffic-class 1",
        "qos random-detect ecn allow non-ect\nqos map traffic-class 1",
        "check",
        "early-drop-off",
    ),
]


def _check(platform: str, job: Path, config: Path) -> tuple[int, str]:
    ended = _gradwire("check", "--platform", platform, job, FABRIC, config)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize("fault", NVUE_FAULTS, ids=lambda fault: fault[1].strip()[:30])
def faults_in_nvue_are_named(fault: tuple[str, ...], job: Path, tmp_path: Path) -> None:
    before, after, who, words = fault
    good = _rendered("nvue:5.14", job)
    broken = good.replace(before, after)
    assert broken != good
    if who == "schema":
        reasons = _nvue().judge(_model("5.14"), broken)
        assert any(words in one for one in reasons), reasons
        return
    config = tmp_path / "broken.yaml"
    config.write_text(broken)
    code, said = _check("nvue:5.14", job, config)
    assert code in (1, 2), said
    assert words in said


@pytest.mark.parametrize("fault", EOS_FAULTS, ids=lambda fault: fault[1].strip()[:30])
def faults_in_eos_are_named(fault: tuple[str, ...], job: Path, tmp_path: Path) -> None:
    before, after, who, words = fault
    good = _rendered("eos:trident", job)
    broken = good.replace(before, after)
    assert broken != good
    if who == "schema":
        reasons = _eos().judge(broken)
        assert any(words in one for one in reasons), reasons
        return
    config = tmp_path / "broken.cfg"
    config.write_text(broken)
    code, said = _check("eos:trident", job, config)
    assert code == 1, said
    assert words in said


def the_command_asks_both_and_says_who_refused(job: Path, tmp_path: Path) -> None:
    _program("nvue", "nvueschema")
    _program("eos", "pyavd")
    installed = str(Path(sys.executable).parent)
    for platform, before, after, words in (
        ("nvue:5.18", "mode: absolute", "mode: absolute\n              steps: 3", "nvueschema"),
        ("eos:sand", "   qos trust dscp", "   qos trust dscp\n   shape speed 3", "pyavd"),
    ):
        config = tmp_path / "config"
        good = _rendered(platform, job)
        for text, code in ((good, 0), (good.replace(before, after), 1)):
            config.write_text(text)
            about = ["--platform", platform, job, FABRIC, config]
            ended = _gradwire("check", *about, path=installed)
            assert ended.returncode == code, ended.stdout + ended.stderr
            verdict = "accepted" if code == 0 else "refused"
            assert f"{verdict} by {words}" in ended.stderr, ended.stderr
