"""PyTorch's own distributed tests, as its wheel ships them, ready to be run by `run.py`.

When this module is imported, PyTorch skips tests that are not for the backend that the environment
names, so variables decide everything here: ``BACKEND``, ``WORLD_SIZE``, ``TEMP_DIR``, and
``SUITE_ALIAS``, the name that means gradwire in every process.
"""

import os
from pathlib import Path

import torch

import gradwire

if os.environ.get("SUITE_ALIAS"):
    gradwire.register(os.environ["SUITE_ALIAS"])

from torch.testing._internal.distributed import distributed_test

torch.set_num_threads(1)


def _empty_meeting_places() -> None:
    """Clear the folders in which the ranks of one test meet.

    PyTorch makes new ones for each test and names them in the environment, which processes that
    come from a fork server made before do not see.
    """
    for name in ("barrier", "test_dir"):
        folder = Path(os.environ["TEMP_DIR"]) / name
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.iterdir():
            file.unlink()


distributed_test.initialize_temp_directories = lambda *_: _empty_meeting_places()
distributed_test.cleanup_temp_dir = lambda: None


class DistributedSuite(
    distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase
):
    """Every test of the suite; each starts its ranks as processes."""

    def setUp(self) -> None:
        """Start the ranks of one test from a process that has PyTorch imported."""
        super().setUp()
        processes = torch.multiprocessing.get_context("forkserver")
        processes.set_forkserver_preload([__name__])
        self._start_processes(processes.Process)
