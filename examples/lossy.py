"""Run a program in a network of its own, whose loopback loses packets of every transport alike.

``python examples/lossy.py 1% torchrun --standalone --nproc-per-node 2 train.py`` trains over such a
loopback: its packets have at most 1,500 bytes, and the kernel drops 1 % of them, TCP's and UDP's
alike. It needs the programs ``unshare``, ``ip`` and ``tc``, and root or a kernel that lets users
make network namespaces. The network ends with the program; the machine's own network is not
touched.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

MTU = 1500
INSIDE = "--inside"
SECONDS = 30
"""Making a network takes less."""


def command(drop: float, program: Sequence[str]) -> list[str]:
    """Return the command that runs a program where this share of the packets is dropped."""
    become_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    inside = [sys.executable, __file__, INSIDE, str(drop), *program]
    return ["unshare", *become_root, "--net", *inside]


def refusal() -> str | None:
    """Return why no such network can be made here, None if one can."""
    try:
        made = subprocess.run(
            command(0.01, ["true"]), capture_output=True, text=True, timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return (
        None if made.returncode == 0 else (made.stderr.strip() or "unshare failed").splitlines()[-1]
    )


def dropping(drop: float) -> str:
    """Write a classic BPF program that draws 32 random bits for each packet, as tc reads it.

    The number of instructions, then the code, two jumps and operand of each (linux/filter.h).
    """
    random = (1 << 32) - 0x1000 + 56  # SKF_AD_OFF + SKF_AD_RANDOM
    threshold = int(drop * 0xFFFFFFFF)
    shot, go_on = 2, 0xFFFFFFFF
    return f"4,32 0 0 {random},53 1 0 {threshold},6 0 0 {shot},6 0 0 {go_on}"


def disturb(drop: float) -> None:
    """Bring up the loopback of this network; packets are dropped as they come in."""
    # Without segmentation offload a drop is a drop of one packet of MTU bytes.
    lines = (
        f"ip link set lo mtu {MTU} gso_max_segs 1 up",
        "tc qdisc add dev lo clsact",
        "tc filter add dev lo ingress bpf da bytecode",
    )
    *before, drops = (line.split() for line in lines)
    for line in [*before, [*drops, dropping(drop)]]:
        done = subprocess.run(line, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"lossy: {' '.join(line[:3])}: {done.stderr.strip()}")


def share(written: str) -> float:
    """Read a share of packets: 0.01 or 1%."""
    value = float(written[:-1]) / 100 if written.endswith("%") else float(written)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{written} is not from 0 to 1, or 0% to 100%")
    return value


def main() -> None:
    """Become the program, in the new network."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("drop", type=share, help="share of packets that are dropped: 0.01 or 1%%")
    parser.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments")
    arguments = parser.parse_args()
    if not arguments.program:
        parser.error("give a program to run")
    program = arguments.program
    if arguments.inside:
        disturb(arguments.drop)
    else:
        program = command(arguments.drop, program)
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.exit(f"lossy: {program[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
