"""Run a program as one rank under torchrun, and let NCCL take each rank for a host of its own.

NCCL refuses two ranks on one GPU unless their hosts differ, and goes by the network between hosts.
The first argument says which one: ``sockets`` are NCCL's own, ``plugin`` is gradwire. With the
plugin, the end of the program checks NCCL's log: did gradwire carry the messages?
"""

import os
import runpy
import sys
import tempfile
from pathlib import Path

from gradwire import nccl

IN_USE = "gradwire is in use"


def main() -> None:
    """Set NCCL's environment and run the program."""
    network, *sys.argv = sys.argv[1:]
    os.environ["NCCL_HOSTID"] = f"host{os.environ['RANK']}"
    os.environ["NCCL_MAX_CTAS"] = "2"  # both ranks take turns on the GPU
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "nccl.log")
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_FILE=str(log))
        if network == "plugin":
            os.environ.update(nccl.variables(), GRADWIRE_TOKEN="a check on one host")
        sys.path.insert(0, str(Path(sys.argv[0]).parent))
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as end:
            if end.code:
                raise
        said = log.read_text() if log.exists() else ""
    if (IN_USE in said) != (network == "plugin"):
        raise SystemExit(f"NCCL did not go by {network}:\n{said[-3000:]}")


if __name__ == "__main__":
    main()
