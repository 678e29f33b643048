"""Train one network three ways and compare: Gloo, gradwire lossless, gradwire with tolerance.

``make demo`` runs it. All three train over a loopback that loses packets (lossy.py). Where no such
network can be made, gradwire drops its own packets and Gloo's all arrive. The demo prints a table
and leaves ``demo.json`` and ``demo.html`` in the folder that --out names. It fails when the ranks
of a run end with different parameters, or when a run's accuracy is more than a point away from
Gloo's.
"""

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import tomllib

import lossy
import report
from report import Result

EXAMPLES = Path(__file__).resolve().parent
RANKS = 2
LIMIT_SECONDS = 600
ACCURACY_POINT = 0.01
DROP = 0.01
OWN_FAULTS = f"\n[faults]\nseed = 7\ndrop = {DROP}\n"


@dataclass(frozen=True)
class Run:
    """One way to train."""

    name: str
    backend: str
    job: Path | None

    def tolerance(self) -> float:
        """Return the tolerated share of a gradient message."""
        if self.job is None:
            return 0.0
        return lossy.share(str(tomllib.loads(self.job.read_text())["tolerance"]))


RUNS = (
    Run("Gloo", "gloo", None),
    Run("gradwire, lossless", "gradwire", EXAMPLES / "jobs" / "lossless.toml"),
    Run("gradwire, tolerant", "gradwire", EXAMPLES / "jobs" / "tolerant.toml"),
)


@dataclass(frozen=True)
class Network:
    """Who drops packets: the kernel those of every run, or gradwire its own."""

    kernel_drops: bool

    def command(self, program: list[str]) -> list[str]:
        """Return the command that runs a program over this network."""
        return lossy.command(DROP, program) if self.kernel_drops else program

    def job(self, job: Path, out: Path) -> Path:
        """Return the job as this network needs it."""
        if self.kernel_drops:
            return job
        written = out / job.name
        written.write_text(job.read_text() + OWN_FAULTS)
        return written

    def drop(self, run: Run) -> float:
        """Return the share of a run's packets that are dropped."""
        return DROP if self.kernel_drops or run.job is not None else 0.0


def found_network() -> Network:
    """Find out where packets can be dropped here, and say so."""
    refusal = lossy.refusal()
    if refusal is None:
        print(f"The loopback of a network of its own loses {DROP:.0%} of the packets of each.")
    else:
        print(
            f"No network that loses packets can be made here ({refusal}): gradwire drops "
            f"{DROP:.0%} of its own, Gloo's all arrive."
        )
    return Network(kernel_drops=refusal is None)


def launch(run: Run, network: Network, out: Path) -> None:
    """Train on two ranks by torchrun, showing the progress."""
    log = out / "errors.log"
    program = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
        *("--nproc-per-node", str(RANKS), str(EXAMPLES / "train_mnist.py")),
        *("--backend", run.backend, "--out", str(out)),
    ]
    environment = dict(os.environ, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    environment.pop("GRADWIRE_JOB", None)
    if run.job is not None:
        environment["GRADWIRE_JOB"] = str(network.job(run.job, out))
    with log.open("w") as errors:
        process = subprocess.Popen(
            network.command(program),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        started = time.monotonic()
        limit = threading.Timer(LIMIT_SECONDS, process.terminate)
        limit.start()
        for line in process.stdout or ():
            show(run, line.strip())
        code = process.wait()
        limit.cancel()
    if code != 0 and time.monotonic() - started >= LIMIT_SECONDS:
        raise SystemExit(
            f"\ndemo: {run.name} was ended after {LIMIT_SECONDS} s, ten times what it takes on two "
            "idle cores: look with `top` for what else is running, then try again"
        )
    if code != 0:
        tail = "\n".join(log.read_text().splitlines()[-15:])
        raise SystemExit(f"\ndemo: {run.name} failed (exit code {code}); {log} ends with:\n{tail}")


def show(run: Run, line: str) -> None:
    """Show progress: in place on a terminal, else one line in a hundred steps."""
    words = line.split()
    if sys.stdout.isatty():
        print(f"\r{run.name:<20} {line:<50}", end="", flush=True)
    elif words[:1] == ["accuracy"] or (words[:1] == ["step"] and int(words[1]) % 100 == 0):
        print(f"{run.name:<20} {line}", flush=True)


def train(run: Run, network: Network, out: Path) -> Result:
    """Train one way and combine the reports of its ranks."""
    folder = out / run.name.replace(", ", "-").lower()
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    launch(run, network, folder)
    ranks = [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(RANKS)]
    if sys.stdout.isatty():
        print(f"\r{run.name:<20} {'done in':>7} {time.monotonic() - started:.0f} s {' ' * 40}")

    def counted(name: str) -> int | None:
        if "counters" not in ranks[0]:
            return None
        return sum(rank["counters"][name] for rank in ranks)

    return Result(
        name=run.name,
        backend=run.backend,
        drop=network.drop(run),
        tolerance=run.tolerance(),
        accuracy=ranks[0]["accuracy"],
        steps_per_s=min(rank["steps_per_s"] for rank in ranks),
        sent_segments=counted("sent_segments"),
        lost_segments=counted("lost_segments"),
        repaired_segments=counted("repaired_segments"),
        parameter_hashes=[rank["parameter_hash"] for rank in ranks],
        losses=[sum(step) / RANKS for step in zip(*(r["losses"] for r in ranks), strict=True)],
    )


def complaints(results: list[Result]) -> list[str]:
    """List the demo's promises that the results do not keep."""
    found = []
    for result in results:
        if len(set(result.parameter_hashes)) > 1:
            found.append(f"{result.name}: the ranks ended with different parameters")
        away = abs(result.accuracy - results[0].accuracy)
        if away > ACCURACY_POINT + 1e-9:
            found.append(f"{result.name}: accuracy is {away:.1%} away from Gloo's")
    return found


def main() -> None:
    """Run all three, then report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("out"), help="folder for the results")
    out = parser.parse_args().out
    print(f"Training a CNN on 5,000 MNIST digits, {RANKS} ranks, {len(RUNS)} ways.")
    over = found_network()
    results = [train(run, over, out) for run in RUNS]

    print(f"\n{report.table(results)}\n")
    records = [asdict(result) for result in results]
    for record in records:
        del record["name"], record["losses"]
    (out / "demo.json").write_text(json.dumps(records, indent=2) + "\n")
    (out / "demo.html").write_text(report.page(results))
    print(f"Wrote {out / 'demo.json'} and {out / 'demo.html'}")
    for complaint in (found := complaints(results)):
        print(f"demo: {complaint}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
