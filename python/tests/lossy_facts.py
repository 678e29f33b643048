"""Facts about the loopback that loses packets, over which the demo trains."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.append(str(EXAMPLES))

import lossy  # noqa: E402  It is a script beside the demo, not a package.

DATAGRAMS = 4000
DROP = 0.1
BEYOND_CHANCE = 0.03
"""More than six standard deviations of the share of DATAGRAMS that are dropped by DROP."""

COUNTED = f"""
import socket
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(("127.0.0.1", 0))
receiver.setblocking(False)
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
arrived = 0
for _ in range({DATAGRAMS}):
    sender.sendto(b"x", receiver.getsockname())
    try:
        receiver.recv(1)
        arrived += 1
    except BlockingIOError:
        pass
print(arrived)
"""


def the_loopback_loses_the_asked_share_of_datagrams() -> None:
    if (refusal := lossy.refusal()) is not None:
        pytest.skip(f"no network that loses packets can be made here: {refusal}")
    command = lossy.command(DROP, [sys.executable, "-c", COUNTED])
    arrived = int(subprocess.check_output(command, text=True))
    assert abs(1 - arrived / DATAGRAMS - DROP) < BEYOND_CHANCE


def a_share_above_all_is_refused() -> None:
    program = [sys.executable, str(EXAMPLES / "lossy.py"), "150%", "true"]
    refused = subprocess.run(program, capture_output=True, text=True)
    assert refused.returncode == 2
    assert "150% is not from 0 to 1" in refused.stderr
