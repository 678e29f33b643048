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


def main() -> None:
    """Reduce until an error is raised, or until rank 0 says that it is enough."""
    torch.set_num_threads(1)
    dist.init_process_group("gradwire")
    seen = {"operations": 0, "longest": 0.0, "error": ""}
    dist.barrier()
    interrupt = {"stop": stop, "cut": cut}[sys.argv[2]]
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
