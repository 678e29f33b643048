"""Expectations of checks of operations: equal tensors, and refusals that say why."""

from collections.abc import Callable

import torch


def equal(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Fail unless the two are equal, to the rounding of the type."""
    if got.dtype in (torch.float8_e4m3fn, torch.uint16):
        got, wanted = got.view(torch.uint8), wanted.view(torch.uint8)
    torch.testing.assert_close(got, wanted)


def refused(call: Callable[[], object], words: str) -> None:
    """Fail unless the call is refused with a message that has ``words`` in it."""
    try:
        call()
    except (RuntimeError, ValueError, TypeError) as error:
        assert words in str(error), str(error)
    else:
        raise AssertionError(f"accepted, but should say {words!r}")
