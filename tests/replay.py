"""Compare replays of traces with the packet simulator, for the tables of the diary.

    python3 tests/replay.py cells target/debug/gradwire --scale 16
    python3 tests/replay.py clocks target/debug/gradwire --scale 32
    python3 tests/replay.py search target/debug/gradwire --scale 16
    python3 tests/replay.py crossover target/debug/gradwire

``cells``: 4 models on servers and ring at 3 rates, replayed against simulated. ``clocks``: offsets
of up to 5 ms on 8 hosts, found again, and the replay with and without them. ``search``: the keys
that the search finds, against a fresh simulation with them. ``crossover``: two jobs in turns
against the closed form.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODELS = ["vgg16", "resnet50", "bert-base", "gpt2"]
EXCHANGES = {"servers": (16, "ps=8"), "ring": (8, "ddp,algorithm=ring")}
RATES = [10, 25, 100]


def run(gradwire: str, *words: str) -> Any:  # noqa: ANN401
    """Run the command and return its JSON."""
    done = subprocess.run([gradwire, *words, "--json"], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return json.loads(done.stdout)


def cells(options: argparse.Namespace) -> Iterator[tuple[str, str, str]]:
    """Yield name, fabric and workload of each cell."""
    for model in options.models.split(","):
        for name, (hosts, how) in EXCHANGES.items():
            for rate in RATES:
                workload = f"step:{model}:{how},scale={options.scale}"
                yield f"{model:<10}{name:<8}{rate:>4}G", f"single:{hosts}@{rate}G", workload


def compare_cells(options: argparse.Namespace) -> None:
    """Print the error of each cell, with the coarse stand-in beside."""
    print(f"{'cell':<23}{'simulated':>11}{'replayed':>11}{'error':>8}{'coarse':>8}  ms")
    for name, fabric, workload in cells(options):
        with tempfile.TemporaryDirectory() as folder:
            run(options.gradwire, "sim", "run", fabric, workload, "--trace", folder)
            told = run(options.gradwire, "trace", "replay", folder)
        measured = told["measured_us"]
        errors = [told[key] / measured * 100 - 100 for key in ("replayed_us", "coarse_us")]
        times = measured / 1e3, told["replayed_us"] / 1e3
        print(
            f"{name}{times[0]:>11.3f}{times[1]:>11.3f}{errors[0]:>+7.1f}%{errors[1]:>+7.1f}%",
            flush=True,
        )


def compare_clocks(options: argparse.Namespace) -> None:
    """Print the offsets of 8 hosts, those that were found, and the errors of replays."""
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        workload = f"step:resnet50:ddp,algorithm=ring,scale={options.scale}"
        run(options.gradwire, "sim", "run", "single:8@10G", workload, "--trace", folder)
        offsets = {}
        for path in sorted(Path(folder).glob("events-*.json")):
            trace = json.loads(path.read_text())
            offsets[f"host{len(offsets)}"] = offset = draw.uniform(-5000, 5000)
            for event in trace["traceEvents"]:
                event["ts"] += offset
            path.write_text(json.dumps(trace))
        found = run(options.gradwire, "trace", "align", folder)["hosts"]
        for clock in found:
            real = offsets[clock["host"]] - offsets["host0"]
            off = clock["offset_us"] - real
            print(
                f"{clock['host']} {real:>10.1f} us, off by {off:.2f}, "
                f"within {clock['within_us']:.2f}"
            )
        for words in ([], ["--unaligned"]):
            told = run(options.gradwire, "trace", "replay", folder, *words)
            sane = sorted(told["iterations_measured"]) if "iterations_measured" in told else None
            print(words or "aligned", f"recorded {told['measured_us']:.1f} us,", end=" ")
            print(f"replayed {told['replayed_us']:.1f} us", sane or "")


def compare_search(options: argparse.Namespace) -> None:
    """Print the predicted and the simulated gain of each cell, and how long searches took."""
    print(f"{'cell':<23}{'predicted':>11}{'found':>8}{'partial s':>11}{'full s':>9}  keys")
    for name, fabric, workload in cells(options):
        with tempfile.TemporaryDirectory() as folder:
            before = run(options.gradwire, "sim", "run", fabric, workload, "--trace", folder)
            partial = run(options.gradwire, "trace", "search", folder)
            full = run(options.gradwire, "trace", "search", folder, "--full")
        keys = [f"{key}={value.replace(' ', '')}" for key, value in partial["keys"]]
        words = [word for key in keys for word in ("--set", key)]
        if partial["bucket_cap_mb"]:
            bucket = partial["bucket_cap_mb"] * options.scale
            workload += f",bucket={bucket * 1024:.0f}KiB"
        after = run(options.gradwire, "sim", "run", fabric, workload, *words)
        times = [one["training"][0]["iteration_us"] for one in (before, after)]
        gain = 100 - times[1] / times[0] * 100
        same = (partial["keys"], partial["bucket_cap_mb"]) == (full["keys"], full["bucket_cap_mb"])
        print(
            f"{name}{partial['gain_percent']:>10.1f}%{gain:>7.1f}%{partial['wall_s']:>11.2f}"
            f"{full['wall_s']:>9.2f}  {' '.join(keys)} {partial['bucket_cap_mb'] or ''}"
            f" {'' if same else 'full: ' + str(full['keys']) + str(full['bucket_cap_mb'])}",
            flush=True,
        )


def compare_crossover(options: argparse.Namespace) -> None:
    """Print the speed-up of two jobs in turns, beside the closed form, over a sweep of rates."""
    how = f"ddp,algorithm=ring,update=all,overlap=off,steps=6,scale={options.scale}"
    # First come, first served: front layers of one job must not overtake the other job's rest.
    order = ("--set", "collectives.order=arrival")
    print(f"{'rate':>6}{'E/C':>8}{'closed form':>13}{'simulated':>11}{'replayed':>10}")
    for rate in (2.5, 5, 7.5, 10, 15, 20, 25, 40, 60, 100):
        fabric = f"single:8@{rate}G"
        alone = run(options.gradwire, "sim", "run", fabric, f"step:resnet50:{how}", *order)
        alone = alone["training"][0]
        with tempfile.TemporaryDirectory() as folder:
            words = (
                "sim",
                "run",
                fabric,
                f"step:resnet50:{how},beside=resnet50",
                "--trace",
                folder,
            )
            both = run(options.gradwire, *words, *order)["training"]
            replayed = run(options.gradwire, "trace", "replay", folder)["iterations_us"][1:-2]
            replayed = sum(replayed) / len(replayed)
        computing, exposed = alone["compute_us"], alone["exposed_us"]
        closed = 2 * (computing + exposed) / max(2 * computing, computing + exposed, 2 * exposed)
        sequential = 2 * alone["iteration_us"]
        # The first and the last iterations have the ranks for themselves for a while.
        middle = [time for job in both for time in job["iterations_us"][1:-2]]
        pair = sum(middle) / len(middle)
        print(
            f"{rate:>5}G{exposed / computing:>8.3f}{closed:>13.3f}"
            f"{sequential / pair:>11.3f}{sequential / replayed:>10.3f}",
            flush=True,
        )


def main() -> None:
    """Run the comparison that the command line names."""
    known = {
        "cells": compare_cells,
        "clocks": compare_clocks,
        "search": compare_search,
        "crossover": compare_crossover,
    }
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=known)
    parser.add_argument("gradwire")
    parser.add_argument("--scale", type=int, default=16)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    known[options.what](options)


if __name__ == "__main__":
    main()
