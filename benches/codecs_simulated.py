"""Steps of training between 16 hosts of 8 ranks at 25 Gb/s, simulated: dense and with codecs.

``python3 benches/codecs_simulated.py GRADWIRE [--scale 8] [--ablation]``. Only the stage between
hosts is simulated, one rank per host with the host's bandwidth: the stages within a host are the
same for all rows. So top-k is HiTopKComm; ``flat top-k`` has all ranks exchange with all others, 8
sharing a host's bandwidth. Encoding and decoding take simulated time on 8 cores of each host
(``codec=`` of a step): the speeds of one core are those of the diary, measured beside a copy.

``--ablation`` adds the parts of a codec's use one by one, in the order of HiPress (SOSP 2021):

- naive: each tensor is encoded, sent and decoded, by the unit that computes the model, which is
  assumed to be as fast at it as the cores
- pipelined: cores of their own do it, while blocks of the same tensor are on their way
- bulk: tensors share messages, those of DDP's buckets
- selective: as ``gradwire tune codec`` plans for the model, the hosts and the bandwidth; then the
  same without bulk
"""

import argparse
import json
import subprocess
from dataclasses import dataclass

MODELS = ("vgg16", "bert-base", "resnet50", "resnet101", "transformer")
CORES = 8
CORE_GBPS = {"onebit": 5.7 * 8, "topk": 2.9 * 8, "blockfloat": 3.0 * 8}
"""Gigabits of values that a core encodes and decodes in a second."""

SUMS = {"onebit": "blockfloat", "topk": "topk", "blockfloat": "blockfloat"}
"""The codec of sums, by that of contributions."""


@dataclass(frozen=True)
class Way:
    """A way to exchange gradients."""

    how: str = "ddp"
    codec: str = ""
    options: str = ""
    keys: tuple[str, ...] = ()
    ranks: int = 1
    """Ranks of a host that exchange with other hosts."""

    def fabric(self, given: argparse.Namespace) -> str:
        """Return the fabric: each rank has its part of a host's bandwidth."""
        return f"single:{given.hosts * self.ranks}@{given.gbps * 1000 // self.ranks}M"

    def workload(self, model: str, given: argparse.Namespace) -> str:
        """Return the workload of its steps."""
        line = f"step:{model}:{self.how},steps={given.steps},scale={given.scale}"
        if not self.codec:
            return line
        # A rate counts for one pass: half of the time to encode and decode contributions and sums.
        both = 1 / CORE_GBPS[self.codec] + 1 / CORE_GBPS[SUMS[self.codec]]
        return f"{line},codec={2 * CORES / self.ranks / both:.0f}G{self.options}"

    def settings(self) -> list[str]:
        """Return its keys of the job."""
        keys = [*self.keys, *([f"collectives.codec={self.codec}"] if self.codec else [])]
        return [word for key in keys for word in ("--set", key)]


RING = Way(keys=("collectives.algorithm=ring",))
WAYS = {
    "dense ring": RING,
    "dense direct": Way(keys=("collectives.algorithm=direct",)),
    "onebit": Way(codec="onebit", keys=("collectives.codec_min=32KiB",)),
    "top-k 1%": Way(codec="topk", keys=("collectives.codec_min=32KiB",)),
    "flat top-k": Way(codec="topk", keys=("collectives.codec_min=32KiB",), ranks=CORES),
    "top-k 0.1%": Way(codec="topk", keys=("collectives.codec_share=0.1%",)),
    "blockfloat": Way(codec="blockfloat"),
}
EVERY = ("collectives.codec_min=0B",)


def step(given: argparse.Namespace, model: str, way: Way) -> float:
    """Return the milliseconds of a step, in the size of the whole model."""
    command = [
        given.gradwire,
        "sim",
        "run",
        way.fabric(given),
        way.workload(model, given),
        "--json",
    ]
    done = subprocess.run([*command, *way.settings()], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    told = json.loads(done.stdout)
    return told["training"][0]["iteration_us"] * given.scale / 1e3


def planned(given: argparse.Namespace, model: str, how: str) -> Way:
    """Return the way that the planner chooses for onebit."""
    network = ["--servers", str(given.hosts), "--bandwidth", f"{given.gbps}G"]
    command = [given.gradwire, "tune", "codec", "--model", model, *network, "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    rows = {row["codec"]: row for row in json.loads(done.stdout)["codecs"]}
    least = rows["onebit"]["min_elements"]
    print(f"# {model}: onebit for {rows['onebit']['encoded']} tensors, from {least} elements")
    if least is None:
        return RING
    keys = (f"collectives.codec_min={4 * least // given.scale}B",)
    return Way(how=how, codec="onebit", keys=keys)


def ablation(given: argparse.Namespace, model: str) -> dict[str, Way]:
    """Return the ways of the ablation, in HiPress's order."""
    naive = Way(how="tensors", codec="onebit", options=",codec_on=compute", keys=EVERY)
    return {
        "none": Way(how="tensors", keys=RING.keys),
        "naive": naive,
        "pipelined": Way(how="tensors", codec="onebit", keys=EVERY),
        "bulk": Way(codec="onebit", keys=EVERY),
        "selective": planned(given, model, "ddp"),
        "without bulk": planned(given, model, "tensors"),
    }


def main() -> None:
    """Print a row per model and way."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("gradwire")
    options.add_argument("--hosts", type=int, default=16)
    options.add_argument("--gbps", type=int, default=25)
    options.add_argument("--ways", nargs="+", help="only these")
    options.add_argument("--scale", type=int, default=8)
    options.add_argument("--steps", type=int, default=3)
    options.add_argument("--models", nargs="+", default=list(MODELS))
    options.add_argument("--ablation", action="store_true")
    given = options.parse_args()
    print(f"{'model':>12}{'way':>14}{'step ms':>10}{'of first':>10}")
    for model in given.models:
        first = None
        for name, way in (ablation(given, model) if given.ablation else WAYS).items():
            if given.ways and name not in given.ways:
                continue
            took = step(given, model, way)
            first = first or took
            print(f"{model:>12}{name:>14}{took:10.1f}{first / took:10.2f}", flush=True)


if __name__ == "__main__":
    main()
