"""Check what PyTorch expects of a backend for devices: each line of it.

Every rank runs every check, and reports which of them failed and how. The argument after the
report's path is the device: the module ``late`` or ``gpu`` of this folder.
"""

import importlib
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from gradwire.options import Options

CHECKS: list[Callable[[], None]] = []
KIT = importlib.import_module(sys.argv[2])
MODULE = torch.get_device_module(KIT.TYPE)
BACKEND = f"cpu:gradwire,{KIT.TYPE}:gradwire"
DEVICE = torch.device(KIT.TYPE, 0)
OTHER = torch.device(KIT.TYPE, MODULE.device_count() - 1)
LONG = 3_000_000
"""Elements of a float32 tensor that is cut into two pieces."""


def check(function: Callable[[], None]) -> Callable[[], None]:
    """Run ``function`` as one of the checks."""
    CHECKS.append(function)
    return function


def mine(length: int = 5000, device: torch.device = DEVICE) -> torch.Tensor:
    """Return this rank's numbers."""
    return numbers(dist.get_rank(), length).to(device)


def numbers(rank: int, length: int = 5000) -> torch.Tensor:
    """Return the numbers of a rank, on the CPU: sums of them depend on their order."""
    return torch.randn(length, generator=torch.Generator().manual_seed(rank))


def total(length: int = 5000) -> torch.Tensor:
    """Return the sum that gradwire computes on the CPU."""
    tensor = mine(length, torch.device("cpu"))
    dist.all_reduce(tensor)
    return tensor


def same(tensor: torch.Tensor, wanted: torch.Tensor) -> None:
    """Compare every bit."""
    assert torch.equal(tensor.cpu(), wanted), (tensor.cpu(), wanted)


@check
def the_input_is_ready_when_the_stream_of_the_call_reaches_it() -> None:
    wanted = total()
    stream = MODULE.Stream()
    source = mine()
    MODULE.synchronize()
    with MODULE.stream(stream):
        tensor = torch.zeros(5000, device=DEVICE)
        MODULE.synchronize()
        KIT.keep_busy(stream, 20)
        tensor.copy_(source)
        dist.all_reduce(tensor)
        same(tensor, wanted)


@check
def the_output_is_not_written_before_the_stream_reaches_the_call() -> None:
    stream = MODULE.Stream()
    rank = dist.get_rank()
    with MODULE.stream(stream):
        tensor = torch.full((5000,), float(rank), device=DEVICE)
        before = torch.zeros(5000, device=DEVICE)
        MODULE.synchronize()
        KIT.keep_busy(stream, 20)
        before.copy_(tensor)  # reads what the receive overwrites
        if rank == 0:
            dist.send(torch.full((5000,), 9.0), 1)
        elif rank == 1:
            dist.recv(tensor, 0)
            same(tensor, torch.full((5000,), 9.0))
        same(before, torch.full((5000,), float(rank)))


@check
def the_stream_that_is_current_at_wait_sees_the_output() -> None:
    wanted = total()
    for stream in (MODULE.Stream(), MODULE.current_stream()):
        tensor = mine()
        work = dist.all_reduce(tensor, async_op=True)
        with MODULE.stream(stream):
            work.wait()
            same(tensor.clone(), wanted)


@check
def a_wait_in_another_thread_serves_the_stream_of_that_thread() -> None:
    wanted = total()
    tensor = mine()
    work = dist.all_reduce(tensor, async_op=True)
    seen: list[torch.Tensor] = []

    def wait() -> None:
        with MODULE.stream(MODULE.Stream()):
            work.wait()
            seen.append(tensor.clone().cpu())

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join()
    same(seen[0], wanted)


@check
def a_future_that_is_waited_for_on_another_stream_has_its_value() -> None:
    wanted = total()
    tensors = [mine() for _ in range(4)]
    futures = [dist.all_reduce(tensor, async_op=True).get_future() for tensor in tensors]
    with MODULE.stream(MODULE.Stream(priority=-1)):
        for future, tensor in zip(futures, tensors, strict=True):
            future.wait()
            same(tensor[-1:].clone(), wanted[-1:])
            same(tensor.clone(), wanted)


@check
def a_callback_of_a_future_sees_the_output() -> None:
    wanted = total()
    tensor = mine()
    future = dist.all_reduce(tensor, async_op=True).get_future()
    same(future.then(lambda done: done.value()[0].clone()).wait(), wanted)


@check
def a_callback_may_wait_for_another_operation() -> None:
    wanted = total()

    def again(_done: object) -> torch.Tensor:
        tensor = mine()
        dist.all_reduce(tensor)
        return tensor

    same(dist.all_reduce(mine(), async_op=True).get_future().then(again).wait(), wanted)


@check
def the_current_stream_stays_as_it_is() -> None:
    stream = MODULE.Stream()
    with MODULE.stream(stream):
        dist.all_reduce(mine())
        dist.all_gather([torch.empty(5, device=DEVICE) for _ in range(3)], mine(5))
        assert MODULE.current_stream() == stream


@check
def a_tensor_lives_until_its_result_has_landed() -> None:
    dist.barrier()
    for _ in range(10):
        works = [dist.all_reduce(mine(20_000), async_op=True) for _ in range(3)]
        while not all(work.is_completed() for work in works):
            time.sleep(0.0001)
        del works  # the copies back are enqueued, and perhaps have not happened
        others = [torch.full((20_000,), 7.0, device=DEVICE) for _ in range(3)]
        MODULE.synchronize()
        for other in others:
            same(other, torch.full((20_000,), 7.0))


@check
def an_operation_is_completed_without_a_wait() -> None:
    wanted = total()
    tensor = mine()
    work = dist.all_reduce(tensor, async_op=True)
    while not work.is_completed():
        time.sleep(0.0001)
    work.synchronize()
    same(tensor.clone(), wanted)


@check
def events_end_on_their_own_device() -> None:
    dist.all_reduce(mine(device=OTHER))
    MODULE.synchronize(0)
    assert KIT.strange_destructions() == 0
    for _ in range(50):
        dist.all_reduce(mine())
    assert KIT.live_events() < 30, KIT.live_events()


@check
def a_capture_is_refused_and_the_group_goes_on() -> None:
    tensor = mine()
    MODULE.synchronize()
    with KIT.capture():
        try:
            dist.all_reduce(tensor)
        except RuntimeError as error:
            assert "is captured: a graph cannot contain a network" in str(error), error
        else:
            raise AssertionError("not refused")
    dist.all_reduce(tensor)
    same(tensor, total())


@check
def a_message_of_the_host_does_not_overtake_one_of_the_device() -> None:
    rank = dist.get_rank()
    for i in range(5):
        first, second = torch.full((1000,), float(i)), torch.full((1000,), -1.0)
        if rank == 0:
            on_device = first.to(DEVICE)
            MODULE.synchronize()
            KIT.keep_busy(MODULE.current_stream(), 5)
            works = [dist.isend(on_device, 1), dist.isend(second, 1)]
        elif rank == 1:
            here, there = torch.zeros(1000), torch.zeros(1000, device=DEVICE)
            order = [here, there] if i % 2 else [there, here]
            works = [dist.irecv(tensor, 0) for tensor in order]
        else:
            return
        for work in works:
            work.wait()
        if rank == 1:
            same(order[0], first)
            same(order[1], second)


@check
def devices_may_differ_between_calls_and_not_in_one() -> None:
    wanted = total()
    for device in (DEVICE, OTHER, torch.device("cpu"), DEVICE):
        tensor = mine(device=device)
        dist.all_reduce(tensor)
        same(tensor, wanted)
    for wrong in {OTHER, torch.device("cpu")} - {DEVICE}:
        try:
            dist.all_gather([torch.empty(5, device=wrong) for _ in range(3)], mine(5))
        except RuntimeError as error:
            assert "must be on one device" in str(error), error
        else:
            raise AssertionError("not refused")
    dist.barrier()


@check
def memory_of_no_device_is_refused_with_words() -> None:
    try:
        dist.group.WORLD._get_backend(DEVICE).allreduce([torch.empty(5, device="meta")])
    except RuntimeError as error:
        assert "its memory cannot be copied" in str(error), error
    else:
        raise AssertionError("not refused")


def everything(device: torch.device, length: int) -> list[torch.Tensor]:
    """Run every operation on tensors of one device; return all results."""
    rank, world = dist.get_rank(), dist.get_world_size()
    out: list[torch.Tensor] = []

    def new(count: int = length) -> torch.Tensor:
        return torch.full((count,), -5.0, device=device)

    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX):
        out.append(mine(length, device))
        dist.all_reduce(out[-1], op)
    for root in range(world):
        out.append(mine(length, device))
        dist.broadcast(out[-1], root)
        out.append(mine(length, device))
        dist.reduce(out[-1], root)
        rows = [new() for _ in range(world)] if rank == root else None
        dist.gather(mine(length, device), rows, root)
        out.extend(rows or [])
        out.append(new())
        given = [mine(length, device) + i for i in range(world)] if rank == root else None
        dist.scatter(out[-1], given, root)
    out.append(new(world * length))
    dist.all_gather_into_tensor(out[-1], mine(length, device))
    out.extend(new() for _ in range(world))
    dist.all_gather(out[-world:], mine(length, device))
    out.append(new())
    dist.reduce_scatter_tensor(out[-1], mine(world * length, device))
    out.append(new())
    dist.reduce_scatter(out[-1], list(mine(world * length, device).split(length)))
    out.append(new(world * length))
    dist.all_to_all_single(out[-1], mine(world * length, device))
    out.extend(new(i + 1) for i in range(world))
    parts = [new(rank + 1) for _ in range(world)]
    dist.all_to_all(out[-world:], parts)
    integers = torch.arange(2 * length, device=device)[::2]
    dist.all_reduce(integers, dist.ReduceOp.AVG)
    out.append(integers)
    with dist._coalescing_manager(device=device):
        for _ in range(2):
            out.append(mine(length, device))
            dist.all_reduce(out[-1])
    got = new()
    around = [
        dist.P2POp(dist.isend, mine(length, device), (rank + 1) % world),
        dist.P2POp(dist.irecv, got, (rank - 1) % world),
    ]
    for work in dist.batch_isend_irecv(around):
        work.wait()
    out.append(got)
    return out


@check
def every_operation_has_the_bits_of_the_host() -> None:
    for length in (1, 1000):
        wanted = everything(torch.device("cpu"), length)
        for one, other in zip(everything(DEVICE, length), wanted, strict=True):
            same(one, other)


@check
def pieces_of_a_long_tensor_have_the_bits_of_the_whole() -> None:
    same(_reduced(DEVICE), _reduced(torch.device("cpu")))
    own = mine(LONG // 3)
    rows = torch.empty(3 * own.numel(), device=DEVICE)
    dist.all_gather_into_tensor(rows, own)
    same(rows, torch.cat([numbers(rank, LONG // 3) for rank in range(3)]))
    mean, wanted = torch.empty(LONG // 3, device=DEVICE), torch.empty(LONG // 3)
    dist.reduce_scatter_tensor(mean, mine(LONG), op=dist.ReduceOp.AVG)
    dist.reduce_scatter_tensor(wanted, mine(LONG, torch.device("cpu")), op=dist.ReduceOp.AVG)
    same(mean, wanted)
    there = mine(LONG)
    dist.broadcast(there, 1)
    same(there, numbers(1, LONG))


def _reduced(device: torch.device) -> torch.Tensor:
    tensor = mine(LONG, device)
    dist.all_reduce(tensor)
    return tensor


@check
def a_tensor_with_strides_gets_its_result() -> None:
    tensor = mine(6000)[::2].view(50, 60).t()
    wanted = numbers(dist.get_rank(), 6000)[::2].view(50, 60).t()
    dist.all_reduce(tensor)
    dist.all_reduce(wanted)
    same(tensor, wanted)


@check
def a_group_of_one_rank_changes_nothing() -> None:
    groups = [dist.new_group([rank], backend=BACKEND) for rank in range(3)]
    tensor = mine()
    dist.all_reduce(tensor, group=groups[dist.get_rank()])
    same(tensor, numbers(dist.get_rank()))


@check
def wait_can_block_the_stream_instead_of_the_caller() -> None:
    options = Options(stream_wait=True)
    group = dist.new_group(backend=f"{KIT.TYPE}:gradwire", pg_options=options)
    wanted = total()
    tensor = mine()
    if dist.get_rank() == 0:
        dist.barrier()  # the others have returned from their wait by then
    dist.all_reduce(tensor, group=group)
    if dist.get_rank() != 0:
        dist.barrier()
    same(tensor.clone(), wanted)
    longer = mine(LONG)
    dist.all_reduce(longer, group=group)
    same(longer.clone(), _reduced(torch.device("cpu")))


@check
def an_input_that_never_comes_is_told() -> None:
    group = dist.new_group(backend=BACKEND, timeout=timedelta(seconds=1))
    tensor = mine()
    MODULE.synchronize()
    KIT.keep_busy(MODULE.current_stream(), 2500)
    try:
        dist.all_reduce(tensor, group=group)
    except RuntimeError as error:
        assert "Timed out while the operation waited for its input" in str(error), error
    else:
        raise AssertionError("no error")
    MODULE.synchronize()


def main() -> None:
    """Run every check."""
    dist.init_process_group(BACKEND)
    report = {}
    for one in CHECKS:
        try:
            one()
            report[one.__name__] = ""
        except Exception:
            report[one.__name__] = traceback.format_exc()
            break
    Path(sys.argv[1]).write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
