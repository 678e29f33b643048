"""All-reduces in a loop while this process, or its network, is interrupted.

The arguments after the report's path: how (a function below), and the network interface of this
rank where links are cut.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist

SECONDS_STOPPED = 5
SECONDS_CUT = 2
SECONDS_MAX = 40
LONG_BYTES = 700


def stop() -> None:
    """Stop this process from outside of it for some seconds."""
    process = os.getpid()
    subprocess.Popen(["sh", "-c", f"sleep {SECONDS_STOPPED}; kill -CONT {process}"])
    os.kill(process, signal.SIGSTOP)


def link(state: str) -> None:
    """Set the interface of this rank up or down."""
    subprocess.run(["ip", "link", "set", "dev", sys.argv[3], state], check=True)


def cut() -> None:
    """Take the link away for some seconds, and then for good."""
    link("down")
    time.sleep(SECONDS_CUT)
    link("up")
    time.sleep(SECONDS_CUT)
    link("down")


def shrink() -> None:
    """From now on, drop every packet longer than LONG_BYTES that arrives."""
    # Classic BPF as tc reads it: how many instructions, then the code, jumps and operand of each.
    length, is_longer = "128 0 0 0", f"37 0 1 {LONG_BYTES}"
    drop, go_on = "6 0 0 2", "6 0 0 4294967295"
    program = f"4,{length},{is_longer},{drop},{go_on}"
    device = ["dev", sys.argv[3]]
    subprocess.run(["tc", "qdisc", "add", *device, "clsact"], check=True)
    bpf = ["bpf", "da", "bytecode", program]
    subprocess.run(["tc", "filter", "add", *device, "ingress", *bpf], check=True)


def main() -> None:
    """Reduce until an error is raised, or until rank 0 says that it is enough."""
    torch.set_num_threads(1)
    dist.init_process_group("gradwire")
    seen = {"operations": 0, "longest": 0.0, "error": ""}
    dist.barrier()
    interrupt = {"stop": stop, "cut": cut, "shrink": shrink}[sys.argv[2]]
    if dist.get_rank() == 1:
        threading.Thread(target=interrupt).start()
    begun = time.monotonic()
    tensor = torch.zeros(1 << 16)
    try:
        while tensor[0] == 0:
            enough = sys.argv[2] == "stop" and seen["operations"] > 0 and seen["longest"] > 3
            started = time.monotonic()
            tensor[0] = float(dist.get_rank() == 0 and (enough or started - begun > SECONDS_MAX))
            dist.all_reduce(tensor)
            took = time.monotonic() - started
            seen["longest"] = max(seen["longest"], took)
            seen["operations"] += 1
    except RuntimeError as error:
        seen.update(error=str(error), seconds=time.monotonic() - started)
    with open(sys.argv[1], "w") as out:
        json.dump(seen, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
