"""Options of a process group, for ``pg_options`` of PyTorch's calls that create one."""

from datetime import timedelta

from torch._C._distributed_c10d import Backend as _Backend
from torch.distributed.constants import default_pg_timeout

__all__ = ["Options"]


class Options(_Backend.Options):
    """How a group treats tensors on a GPU."""

    def __init__(self, *, stream_wait: bool, timeout: timedelta = default_pg_timeout) -> None:
        """Choose how ``wait()`` of an operation on a GPU waits.

        Args:
            stream_wait: ``wait()`` blocks the current stream and returns at once, so the program
                can enqueue more work. An operation that fails is not told by its ``wait()`` then,
                but by the next operation. Good for HSDP, whose backward pass would stall otherwise.
            timeout: of the group's operations.
        """
        super().__init__("gradwire", timeout)
        self.stream_wait = stream_wait
