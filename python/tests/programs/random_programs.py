"""Runs random programs over gradwire and over Gloo: collectives on random groups of four ranks.

Arguments after the report's path: the first seed and how many programs. A program is a sequence of
operations, each on a group of its own choice; those that are asynchronous stay in flight until the
program ends. Every rank draws the same program from its seed.
"""

import datetime
import itertools
import json
import random
import sys
import traceback
import warnings

import conformance
import torch
import torch.distributed as dist
from conformance import Case, GlooSide, Side

STEPS = 25

Pair = tuple[dist.ProcessGroup, dist.ProcessGroup]


def groups() -> list[tuple[tuple[int, ...], Pair]]:
    """Every group of two and more ranks, over gradwire and over Gloo."""
    world = dist.get_world_size()
    members = [
        chosen
        for size in range(2, world + 1)
        for chosen in itertools.combinations(range(world), size)
    ]
    return [(m, (dist.new_group(m), conformance.gloo_group(m))) for m in members]


def program(seed: int) -> list[tuple[int, Case]]:
    """Steps: a number that chooses the group, and the case."""
    draw = random.Random(seed)
    kinds = list(conformance.kinds())
    steps = []
    for number in range(STEPS):
        operation, reduction, dtype = draw.choice(kinds)
        layout, mode = draw.choice(conformance.LAYOUTS), draw.choice(conformance.MODES)
        case = Case(operation, reduction, dtype, layout, mode, seed * 1000 + number)
        steps.append((draw.randrange(1 << 20), case))
    return steps


def run(seed: int, among: list[tuple[tuple[int, ...], Pair]]) -> list[str]:
    """Run one program; return the differences."""
    flying = []
    for chosen, case in program(seed):
        members, (ours, gloo) = among[chosen % len(among)]
        if dist.get_rank() not in members:
            continue
        own, reference = Side(case, ours), GlooSide(case, gloo)
        operation = conformance.OPERATIONS[case.operation]
        wanted, started = operation(reference), operation(own)
        flying.append((members, own, started, reference, wanted))
    failures = []
    for members, own, started, reference, wanted in flying:
        try:
            results = conformance.finish(started)
            conformance.check(own, results, reference, conformance.finish(wanted))
        except AssertionError as error:
            failures.append(f"program {seed}, group {members}, {own.case}: {error}")
    return failures


def main() -> None:
    """Run the programs, report the differences."""
    path, first, count = sys.argv[1:]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gradwire", timeout=datetime.timedelta(seconds=60))
    among = groups()
    failures: list[str] = []
    for seed in range(int(first), int(first) + int(count)):
        try:
            failures += run(seed, among)
        except Exception:
            failures.append(f"program {seed}: {traceback.format_exc()}")
            break
    counters = dist.group.WORLD._get_backend(torch.device("cpu")).counters()
    with open(path, "w") as out:
        json.dump({"failures": failures, "dropped": counters["faults_dropped"]}, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
