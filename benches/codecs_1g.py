"""Train an example between two hosts at 1 Gb/s: dense, codecs, and Gloo with its hooks.

``python3 benches/codecs_1g.py [--example mnist] [--seeds 3] [--steps 250] [--rate 1gbit] [--drop
0]``: the hosts are network namespaces with a token bucket between them. Prints the median steps per
second, and the accuracy of each seed (of ``--example shakespeare`` the loss of an unseen play).
Needs root, and an environment with gradwire.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook

sys.path.insert(0, str(Path(__file__).parent.parent / "examples"))
import train_mnist
import train_shakespeare
from transformer import transformer

ADDRESSES = ("10.11.0.1", "10.11.0.2")
WAYS = (
    "dense",
    "onebit",
    "tbq",
    "terngrad",
    "topk:0.01",
    "blockfloat",
    "gloo",
    "gloo fp16",
    "gloo powersgd",
)


def worker(way: str, given: argparse.Namespace) -> None:
    """Train as one rank; leave a report."""
    torch.set_num_threads(1)
    backend = "gloo" if way.startswith("gloo") else "gradwire"
    dist.init_process_group(backend)
    torch.manual_seed(given.seed)
    is_mnist = given.example == "mnist"
    network = train_mnist.network() if is_mnist else transformer(given.seed)
    model = DistributedDataParallel(network, bucket_cap_mb=4)
    if backend == "gradwire":
        from gradwire import ddp

        ddp.register(model, codec="none" if way == "dense" else way)
    elif way == "gloo fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif way == "gloo powersgd":
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=2, start_powerSGD_iter=10
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    ends: list[float] = []
    register_optimizer_step_post_hook(lambda *_: ends.append(time.perf_counter()))
    learned = train_digits(model, given) if is_mnist else train_plays(model, given)
    ends = ends[train_mnist.WARM_UP_STEPS :]
    steps = [after - before for before, after in itertools.pairwise(ends)]
    report = {
        "steps_per_s": 1 / statistics.median(steps),
        "learned": learned,
        "hash": train_mnist.hash_of(model.module),
    }
    Path(given.report).write_text(json.dumps(report))
    dist.barrier()
    dist.destroy_process_group()


def train_digits(model: nn.Module, given: argparse.Namespace) -> float:
    """Train and return the accuracy."""
    training, validation = train_mnist.load_digits(given.seed)
    given.epochs = -(-given.steps * given.batch * 2 // train_mnist.TRAINING_DIGITS)
    train_mnist.train(model, training, train_mnist.batches(given)[: given.steps])
    return train_mnist.accuracy(model.module, validation)


def train_plays(model: nn.Module, given: argparse.Namespace) -> float:
    """Train and return the loss of an unseen play."""
    train_shakespeare.train(model, given)
    return train_shakespeare.validated(model.module)


def hosts(rate: str) -> list[str]:
    """Make two namespaces with a token bucket at each end; return their names."""
    names = [f"gradwire-codec-{os.getpid()}-{number}" for number in (0, 1)]
    for name in names:
        subprocess.run(["ip", "netns", "add", name], check=True)
    ends = [f"type veth peer name codec1 netns {names[1]}"]
    subprocess.run(["ip", "link", "add", "codec0", "netns", names[0], *ends[0].split()], check=True)
    for number, name in enumerate(names):
        own, inside = f"codec{number}", ["ip", "netns", "exec", name]
        for line in (
            f"ip address add {ADDRESSES[number]}/24 dev {own}",
            "ip link set lo up",
            f"ip link set {own} up",
            f"tc qdisc add dev {own} root tbf rate {rate} burst 64kb latency 20ms",
        ):
            subprocess.run([*inside, *line.split()], check=True)
    return names


def run(way: str, seed: int, names: list[str], given: argparse.Namespace) -> dict[str, object]:
    """Train on both hosts; return the report of the first rank."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder, "job.toml")
        tolerance = 'tolerance = "10%"\nholes = "error-feedback"\n' if given.drop else ""
        job.write_text(
            f'{tolerance}[transport]\nwire = "udp"\nmtu = 1500\n[collectives]\ncodec_min = 0\n'
            f"[faults]\nseed = {seed}\ndrop = {given.drop}\n"
        )
        ranks = []
        for rank, name in enumerate(names):
            environment = dict(
                os.environ,
                RANK=str(rank),
                LOCAL_RANK="0",
                WORLD_SIZE="2",
                MASTER_ADDR=ADDRESSES[0],
                MASTER_PORT="29400",
                GLOO_SOCKET_IFNAME=f"codec{rank}",
                GRADWIRE_IFNAME=f"codec{rank}",
                GRADWIRE_JOB=str(job),
            )
            report = Path(folder, f"rank{rank}.json")
            command = [
                *("ip", "netns", "exec", name, sys.executable, __file__),
                *("--worker", way, "--example", given.example, "--seed", str(seed)),
                *("--steps", str(given.steps), "--batch", str(given.batch)),
                *("--report", str(report)),
            ]
            ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))
        if any([rank.wait() for rank in ranks]):
            raise SystemExit(f"codecs_1g: a rank of {way} failed")
        first, second = (
            json.loads(Path(folder, f"rank{rank}.json").read_text()) for rank in (0, 1)
        )
    if first["hash"] != second["hash"]:
        raise SystemExit(f"codecs_1g: replicas of {way} differ")
    return dict(first)


def main() -> None:
    """Run every way and print a row for each."""
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--example", choices=("mnist", "shakespeare"), default="mnist")
    options.add_argument("--steps", type=int, default=250)
    options.add_argument("--batch", type=int, default=32)
    options.add_argument("--rate", default="1gbit")
    options.add_argument("--drop", type=float, default=0.0)
    options.add_argument("--ways", nargs="+", default=list(WAYS))
    options.add_argument("--worker", help=argparse.SUPPRESS)
    options.add_argument("--seed", type=int, default=1, help=argparse.SUPPRESS)
    options.add_argument("--report", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.worker:
        return worker(given.worker, given)
    names = hosts(given.rate)
    try:
        print("#            way   steps/s  accuracy or loss of each seed")
        for way in given.ways:
            told = [run(way, seed, names, given) for seed in range(1, given.seeds + 1)]
            speed = statistics.median(one["steps_per_s"] for one in told)
            marks = " ".join(f"{one['learned']:.3f}" for one in told)
            print(f"{way:>16} {speed:9.1f}  {marks}", flush=True)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], check=True)
    return None


if __name__ == "__main__":
    main()
