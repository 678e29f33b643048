"""Steps of training between 16 hosts of 8 ranks at 25 Gb/s, simulated: dense and with codecs.

``python3 benches/codecs_simulated.py GRADWIRE [--scale 8] [--gbps 2]``. Only the stage between
hosts is simulated, one rank per host with the host's bandwidth: the stages within a host are the
same for all rows. The simulator counts no time for codecs. ``added`` is what 8 cores of a host
take at ``--gbps`` each, nothing of it overlapped: every byte is encoded and decoded twice.
"""

import argparse
import json
import subprocess

MODELS = ("vgg16", "bert-base", "resnet50", "resnet101", "transformer")
CORES = 8
WAYS = {
    "dense ring": ("collectives.algorithm=ring",),
    "dense direct": ("collectives.algorithm=direct",),
    "onebit": ("collectives.codec=onebit", "collectives.codec_min=32KiB"),
    "top-k 1%": ("collectives.codec=topk", "collectives.codec_min=32KiB"),
    "top-k 0.1%": ("collectives.codec=topk", "collectives.codec_share=0.1%"),
    "blockfloat": ("collectives.codec=blockfloat",),
}


def step(given: argparse.Namespace, model: str, settings: tuple[str, ...]) -> tuple[float, float]:
    """Return the milliseconds of a step, in the size of the whole model, and its gigabytes."""
    workload = f"step:{model}:ddp,steps={given.steps},scale={given.scale}"
    changed = [word for one in settings for word in ("--set", one)]
    command = [given.gradwire, "sim", "run", given.fabric, workload, "--json", *changed]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    told = json.loads(done.stdout)
    shown = subprocess.run(
        [given.gradwire, "model", "show", model, "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    mean_us = told["training"][0]["iteration_us"]
    return mean_us * given.scale / 1e3, json.loads(shown.stdout)["bytes"] / 1e9


def main() -> None:
    """Print a row per model and way."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("gradwire")
    options.add_argument("--fabric", default="single:16@25G")
    options.add_argument("--scale", type=int, default=8)
    options.add_argument("--steps", type=int, default=3)
    options.add_argument("--gbps", type=float, default=2.0)
    options.add_argument("--models", nargs="+", default=list(MODELS))
    given = options.parse_args()
    print(f"{'model':>12}{'way':>14}{'step ms':>10}{'of ring':>9}{'added ms':>10}{'of ring':>9}")
    for model in given.models:
        ring = None
        for way, settings in WAYS.items():
            took, gigabytes = step(given, model, settings)
            ring = ring or took
            added = 2 * gigabytes / CORES / given.gbps * 1e3 if "codec" in settings[0] else 0.0
            shares = f"{ring / took:9.2f}{added:10.1f}{ring / (took + added):9.2f}"
            print(f"{model:>12}{way:>14}{took:10.1f}{shares}", flush=True)


if __name__ == "__main__":
    main()
