"""Compare the output of two builds of the command: simulator digests, configurations, JSON.

    cargo build --release -p gradwire-cli
    python3 tests/same_output.py ../old/target/release/gradwire target/release/gradwire

Both run the same commands in this checkout. Values that differ between two runs of one build
(times, memory) and sentences for people (notes, remarks) are ignored. The exit code is 1 when
any command answers differently.
"""

import hashlib
import itertools
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Keys of JSON objects whose values are no promise: measured times, and sentences for people.
VARYING = {"wall_s", "cpu_s", "cpu_per_thread_s", "peak_rss_bytes"}
SENTENCES = {"notes", "note", "remarks", "facts", "message", "said", "told", "why", "mend", "costs"}

FABRICS = {
    "single": "single:9@100G",
    "fat-tree": "fat-tree:k=4@100G",
    "oversubscribed": "examples/fabrics/leaf-spine-oversubscribed.toml",
    "racks": "examples/fabrics/two-racks.toml",
    "gray": "examples/fabrics/gray-link.toml",
    "rail": "examples/fabrics/rail.toml",
}
TRANSPORTS = ("gradwire", "dctcp", "dctcp-10ms", "pfabric", "ndp", "roce")
WORKLOADS = ("permutation:1MB", "incast:7x64KB", "step:resnet50:ddp,scale=64", "all-reduce:1MiB")
PLATFORMS = ("sonic", "nvue:5.11", "nvue:5.14", "junos", "eos", "nxos", "openconfig", "linux")

# Two droppable DSCPs per class serve the platforms that cannot tell packets apart by ECN.
TWO_DSCPS = 'name = "two"\n[priority]\ndroppable_dscps = [38, 30, 22, 14, 9, 1]\n'


def simulations() -> list[str]:
    """Runs of every transport, on every fabric, with every workload."""
    runs = [
        f"sim run {fabric} {workload} --transport {transport} --json"
        for fabric, workload, transport in itertools.product(
            FABRICS.values(), WORKLOADS, TRANSPORTS
        )
    ]
    runs += [
        f"sim run {fabric} permutation:1MB --tolerance 10% --json" for fabric in FABRICS.values()
    ]
    runs += [
        "sim run fat-tree:k=8@100G permutation:2MB --json",
        "sim run fat-tree:k=8@100G permutation:2MB --threads 2 --json",
        "sim run fat-tree:k=4@100G permutation:1MB --background poisson:hadoop@0.3:200us --json",
        "sim run fat-tree:k=4@100G examples/sim/triggers.cm --json",
        "sim run single:2@100G examples/sim/pipeline.goal --json",
        "sim run single:8@100G examples/sim/step.txt --json",
        "sim run single:16@25G step:vgg16:ps=8,scale=64 --json",
        "sim run leaf-spine:2x8x4@100G poisson:websearch@0.4:1ms --balance random --json",
        "sim run leaf-spine:2x8x4@100G poisson:websearch@0.4:1ms --balance adaptive --json",
        "sim compare single:9@100G incast:8x64KB --seeds 3 --json",
        "sim compare fat-tree:k=4@100G step:gpt2:ddp,scale=256 --seeds 2 --json",
        "sim sweep examples/sweeps/gray-core-link.toml --list --json",
        "sim sweep examples/sweeps/transports-under-incast.toml --list --json",
        "eval dlcp --list --json",
        "eval dlcp --quick --list --json",
        "tune schedule single:4@25G step:resnet50:ps=2,scale=64 --trials 4 --json",
        "switch probe --simulate single:2@100G --json",
    ]
    return runs


def configurations(job: str) -> list[str]:
    """Configurations of every platform, changes of a running one, and their inverses."""
    exports = ROOT / "switch-config" / "tests" / "exports"
    running = {path.stem: path for path in sorted(exports.iterdir())}
    commands = []
    for platform, fabric, of in itertools.product(PLATFORMS, FABRICS.values(), ("default", job)):
        where = f"--platform {platform} {of} {fabric}"
        commands += [f"switch render {where}", f"switch render {where} --json"]
        if (export := running.get(platform.split(":")[0])) is not None:
            commands += [f"switch {verb} {where} {export}" for verb in ("diff", "undo", "check")]
            commands.append(f"switch check {where} {export} --json")
        commands.append(f"switch verify {where} --json")
    return commands


def others() -> list[str]:
    """Commands that read a file or nothing."""
    return [
        "job check examples/jobs/tolerant.toml",
        "job check examples/jobs/tolerant.toml --json",
        "job check examples/jobs/lossless.toml --json",
        "model list --json",
        "model show vgg16 --json",
        "model show bert-base --json",
    ]


def reduced(value: object) -> object:
    """Leave out the values that may differ."""
    if isinstance(value, dict):
        left_out = VARYING | SENTENCES
        return {key: reduced(kept) for key, kept in value.items() if key not in left_out}
    if isinstance(value, list):
        return [reduced(kept) for kept in value]
    return value


def answer(command: str, binary: Path, folder: str) -> tuple[int, str]:
    """Return the exit code of a command and the digest of its output."""
    words = [str(binary), *shlex.split(command.replace("FOLDER", folder))]
    ended = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=600)
    text = ended.stdout
    if "--json" in words and ended.returncode in (0, 1):
        values = [json.loads(line) for line in whole_objects(text)]
        text = "\n".join(json.dumps(reduced(value)) for value in values)
    return ended.returncode, hashlib.sha256(text.encode()).hexdigest()[:16]


def whole_objects(text: str) -> list[str]:
    """One JSON value, or one a line."""
    try:
        json.loads(text)
    except ValueError:
        return text.splitlines()
    return [text]


def main() -> None:
    """Run every command with both builds, and name those that answer differently."""
    if len(sys.argv) != 3:
        raise SystemExit(f"usage: {sys.argv[0]} OLD NEW   (two builds of the gradwire command)")
    old, new = (Path(name).resolve() for name in sys.argv[1:])
    different = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "two.toml"
        job.write_text(TWO_DSCPS)
        commands = [*others(), *configurations("FOLDER/two.toml"), *simulations()]
        for number, command in enumerate(commands, 1):
            if sys.stderr.isatty():
                print(f"\r{number} of {len(commands)}", end="", file=sys.stderr, flush=True)
            was, now = answer(command, old, folder), answer(command, new, folder)
            failed += now[0] > 1
            if was != now:
                different += 1
                print(f"different: gradwire {command}\n  was {was}\n  now {now}")
    print(f"{len(commands)} commands ({failed} are refused), {different} answer differently")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
