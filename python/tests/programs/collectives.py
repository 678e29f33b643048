"""Runs every check of the operations on three ranks and reports which of them failed, and how.

Each check computes the expected result locally by PyTorch, from the inputs of all ranks.
"""

import datetime
import json
import sys
import time
import traceback

import group_calls
import torch
import torch.distributed as dist
from expecting import equal, refused

import gradwire
from gradwire import adasum

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
MOVED = (*FLOATS, *INTEGERS, torch.bool, torch.complex64, torch.uint16, torch.float8_e4m3fn)
Op = dist.ReduceOp
REDUCTIONS = {
    Op.SUM: lambda inputs: inputs.sum(0),
    Op.AVG: lambda inputs: inputs.sum(0) / len(inputs),
    Op.PRODUCT: lambda inputs: inputs.prod(0),
    Op.MIN: lambda inputs: inputs.amin(0),
    Op.MAX: lambda inputs: inputs.amax(0),
}
BITWISE = {
    Op.BAND: torch.bitwise_and,
    Op.BOR: torch.bitwise_or,
    Op.BXOR: torch.bitwise_xor,
}


def input_of(rank: int, dtype: torch.dtype, elements: int = 1000) -> torch.Tensor:
    """Make the input of ``rank``: small whole numbers, exact in every type."""
    numbers = torch.randint(1, 4, (elements,), generator=torch.Generator().manual_seed(rank))
    return (numbers - 2).bool() if dtype == torch.bool else numbers.to(dtype)


def inputs_of(dtype: torch.dtype, elements: int = 1000) -> torch.Tensor:
    """Stack the inputs of all ranks."""
    return torch.stack([input_of(rank, dtype, elements) for rank in range(dist.get_world_size())])


def reductions_agree_with_pytorch() -> None:
    """Every reduction of every float and integer type, at sizes from one element."""
    for dtype in (*FLOATS, *INTEGERS):
        for op, reduce in REDUCTIONS.items():
            for elements in (1, 7, 1000):
                tensor = input_of(dist.get_rank(), dtype, elements)
                dist.all_reduce(tensor, op)
                equal(tensor, reduce(inputs_of(dtype, elements).double()).to(dtype))


def averages_of_integers_are_divided_sums() -> None:
    """Towards zero, in every operation that reduces; other ranks' tensors of a reduce stay."""
    rank, world = dist.get_rank(), dist.get_world_size()
    own = torch.tensor([-2 - 2 * rank, 2 + rank, rank])  # sums of three ranks: -12, 9, 3
    wanted = torch.tensor([-4, 3, 1])
    strided = torch.stack([own, own], dim=1)[:, 0]
    dist.all_reduce(strided, Op.AVG)
    equal(strided, wanted)
    negative = torch.tensor([-5 if rank == 0 else 0])
    dist.all_reduce(negative, Op.AVG)
    equal(negative, torch.tensor([-1]))
    reduced = own.clone()
    dist.reduce(reduced, 1, Op.AVG)
    equal(reduced, wanted if rank == 1 else own)
    part = torch.zeros(3, dtype=torch.int64)
    dist.reduce_scatter_tensor(part, own.repeat(world), Op.AVG)
    equal(part, wanted)
    dist.all_reduce_coalesced([own], Op.AVG)
    equal(own, wanted)


def bitwise_reductions_agree_with_pytorch() -> None:
    """Bitwise and, or, exclusive or of integers."""
    for dtype in INTEGERS:
        for op, combine in BITWISE.items():
            tensor = input_of(dist.get_rank(), dtype)
            dist.all_reduce(tensor, op)
            first, second, third = inputs_of(dtype)
            equal(tensor, combine(combine(first, second), third))


def bools_reduce_as_logic() -> None:
    """Sum and max are "any", product and min are "all"."""
    inputs = inputs_of(torch.bool)
    for op, wanted in ((Op.SUM, inputs.any(0)), (Op.MAX, inputs.any(0)), (Op.MIN, inputs.all(0))):
        tensor = input_of(dist.get_rank(), torch.bool)
        dist.all_reduce(tensor, op)
        equal(tensor, wanted)


def complex_tensors_sum() -> None:
    """A complex sum is a sum of the parts."""
    tensor = input_of(dist.get_rank(), torch.float32) * (1 + 2j)
    dist.all_reduce(tensor)
    equal(tensor, inputs_of(torch.float32).sum(0) * (1 + 2j))


def undefined_reductions_are_refused() -> None:
    """The message names accepted types, and the group stays usable."""
    whole, real = torch.ones(8, dtype=torch.int32), torch.ones(8)
    refused(lambda: dist.all_reduce(whole.bool(), Op.AVG), "avg of bool")
    refused(lambda: dist.all_reduce(real, Op.BAND), "integer or bool")
    refused(lambda: dist.all_reduce(real.to(torch.float8_e4m3fn)), "convert to float16")
    dist.all_reduce(real)
    equal(real, torch.full((8,), 3.0))


def strided_and_scalar_tensors_are_reduced() -> None:
    """A transposed matrix, every second element, a tensor without dimensions, an empty one."""
    rank = dist.get_rank()
    for view in (lambda t: t.view(10, 100).t(), lambda t: t[::2], lambda t: t[5], lambda t: t[:0]):
        whole = input_of(rank, torch.float32)
        dist.all_reduce(view(whole))
        equal(view(whole), view(inputs_of(torch.float32).sum(0)))


def many_tensors_reduce_as_one() -> None:
    """all_reduce_coalesced of three shapes."""
    rank = dist.get_rank()
    tensors = [input_of(rank, torch.float32, n).view(n, 1) for n in (3, 0, 50)]
    dist.all_reduce_coalesced(tensors)
    for tensor in tensors:
        equal(tensor.flatten(), inputs_of(torch.float32, tensor.numel()).sum(0))


def every_type_is_broadcast_from_every_root() -> None:
    """Includes types that cannot be reduced, and a strided tensor."""
    for root in range(dist.get_world_size()):
        for dtype in MOVED:
            tensor = input_of(dist.get_rank(), dtype)
            dist.broadcast(tensor, root)
            equal(tensor, input_of(root, dtype))
        strided = input_of(dist.get_rank(), torch.float32)[::2]
        dist.broadcast(strided, root)
        equal(strided, input_of(root, torch.float32)[::2])


def every_type_is_gathered() -> None:
    """Into a list and into one tensor."""
    world, rank = dist.get_world_size(), dist.get_rank()
    for dtype in MOVED:
        mine = input_of(rank, dtype)
        parts = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(parts, mine)
        whole = torch.empty(world * len(mine), dtype=dtype)
        dist.all_gather_into_tensor(whole, mine)
        for source in range(world):
            equal(parts[source], input_of(source, dtype))
            equal(whole.view(world, -1)[source], input_of(source, dtype))


def sums_are_scattered() -> None:
    """From a list and from one tensor, with sum and maximum."""
    world, rank = dist.get_world_size(), dist.get_rank()
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for op in (Op.SUM, Op.MAX):
            mine = input_of(rank, dtype, 300)
            wanted = REDUCTIONS[op](inputs_of(dtype, 300)).view(world, -1)[rank].to(dtype)
            out = torch.empty(300 // world, dtype=dtype)
            dist.reduce_scatter_tensor(out, mine, op)
            equal(out, wanted)
            dist.reduce_scatter(out.zero_(), list(mine.chunk(world)), op)
            equal(out, wanted)


def mismatched_sizes_are_refused() -> None:
    """Before anything is sent, with both sizes."""
    refused(lambda: dist.all_gather_into_tensor(torch.empty(7), torch.ones(2)), "6 elements")
    refused(lambda: dist.reduce_scatter_tensor(torch.empty(7), torch.ones(2)), "21 elements")


def messages_match_by_tag_in_order() -> None:
    """Two tags sent in one order are received in the other; equal tags keep their order."""
    world, rank = dist.get_world_size(), dist.get_rank()
    to, source = (rank + 1) % world, (rank - 1) % world
    sends = [
        dist.isend(torch.full((4,), 10.0 * rank + i), to, tag=tag)
        for i, tag in enumerate((1, 1, 2))
    ]
    for wanted, tag in ((2, 2), (0, 1), (1, 1)):
        tensor = torch.empty(4)
        dist.recv(tensor, source, tag=tag)
        equal(tensor, torch.full((4,), 10.0 * source + wanted))
    for send in sends:
        send.wait()
    refused(lambda: dist.send(torch.ones(1), to, tag=65536), "tags are 0 to 65535")


def barriers_hold_every_rank() -> None:
    """No rank leaves before the last has entered."""
    rank = dist.get_rank()
    time.sleep(0.2 * rank)
    arrived = torch.tensor([time.time()], dtype=torch.float64)
    dist.barrier()
    left = time.time()
    dist.all_reduce(arrived, Op.MAX)
    assert left >= arrived.item(), f"rank {rank} left {arrived.item() - left} s too early"


def work_completes_once_and_its_future_holds_the_tensors() -> None:
    """is_completed, wait, result and the future agree."""
    tensor = torch.ones(100_000)
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait()
    assert work.is_completed()
    assert work.is_success()
    (value,) = work.get_future().value()
    equal(value, torch.full_like(value, 3.0))


def waiting_ends_at_its_timeout() -> None:
    """A wait that is too short fails; the operation continues."""
    late = dist.get_rank() > 0
    if late:
        time.sleep(0.5)
    tensor = torch.ones(10)
    work = dist.all_reduce(tensor, async_op=True)
    if not late:
        refused(lambda: work.wait(datetime.timedelta(milliseconds=50)), "timed out")
    work.wait()
    equal(tensor, torch.full((10,), 3.0))


def callbacks_may_wait_for_another_operation() -> None:
    """A callback that blocks on a second all-reduce does not stop the first from progressing."""

    def again(future: torch.futures.Future) -> torch.Tensor:
        (tensor,) = future.value()
        dist.all_reduce(tensor)
        return tensor

    chain = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(again)
    equal(chain.wait(), torch.full((10,), 9.0))


def subgroups_work_side_by_side() -> None:
    """Groups of two, in an order of their own, and groups of one."""
    rank = dist.get_rank()
    pair, reverse = dist.new_group([0, 2]), dist.new_group([2, 1])
    alone = [dist.new_group([member]) for member in range(3)][rank]
    tensor = torch.tensor([float(rank)])
    if rank != 1:
        dist.all_reduce(tensor, group=pair)
        equal(tensor, torch.tensor([2.0]))
    if rank != 0:
        part = torch.tensor([float(rank)])
        dist.broadcast(part, src=1, group=reverse)
        equal(part, torch.tensor([1.0]))
    single = torch.tensor([5.0])
    dist.all_reduce(single, group=alone)
    gathered = torch.empty(1)
    dist.all_gather_into_tensor(gathered, single, group=alone)
    dist.barrier(group=alone)
    equal(gathered, torch.tensor([5.0]))


def objects_travel() -> None:
    """all_gather_object and broadcast_object_list, with objects of different sizes."""
    rank = dist.get_rank()
    objects: list[object] = [None] * 3
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * 1000 * rank})
    assert [item["rank"] for item in objects] == [0, 1, 2]
    shared = ["hello", 42] if rank == 1 else [None, None]
    dist.broadcast_object_list(shared, src=1)
    assert shared == ["hello", 42]


def the_profiler_sees_operations_by_name() -> None:
    """The event carries the backend's name."""
    with torch.profiler.profile() as profile:
        dist.all_reduce(torch.ones(10))
    assert "gradwire:all_reduce" in {event.key for event in profile.key_averages()}


def counters_and_job_can_be_read() -> None:
    """Sent segments are counted; the resolved job has its keys with dots."""
    from gradwire import ddp

    backend = ddp.backend_of()
    before = backend.counters()["sent_segments"]
    dist.all_reduce(torch.ones(100_000))
    assert backend.counters()["sent_segments"] > before
    assert backend.job_tolerance() == 0.0
    assert "transport.mtu" in backend.job()


def adasum_combines_pairs_and_refuses_three() -> None:
    """Equal on both of a pair, and the definition's; three ranks are told what to take instead."""
    rank, pair = dist.get_rank(), dist.new_group([0, 1])
    gradients = inputs_of(torch.float64)
    tensor = gradients[rank].clone()
    if rank < 2:
        gradwire.all_reduce(tensor, op=gradwire.ADASUM, group=pair, starts=[0, 300])
        equal(tensor, adasum.tree(gradients[:2], [0, 300]))
    three = "3 ranks in the group are no power of two; take 2 or 4"
    refused(lambda: gradwire.all_reduce(tensor, op=gradwire.ADASUM), three)
    refused(lambda: gradwire.all_reduce(tensor, op=Op.SUM), "this function has ADASUM only")


CHECKS = (
    reductions_agree_with_pytorch,
    averages_of_integers_are_divided_sums,
    bitwise_reductions_agree_with_pytorch,
    bools_reduce_as_logic,
    complex_tensors_sum,
    undefined_reductions_are_refused,
    strided_and_scalar_tensors_are_reduced,
    many_tensors_reduce_as_one,
    every_type_is_broadcast_from_every_root,
    every_type_is_gathered,
    sums_are_scattered,
    mismatched_sizes_are_refused,
    messages_match_by_tag_in_order,
    barriers_hold_every_rank,
    work_completes_once_and_its_future_holds_the_tensors,
    waiting_ends_at_its_timeout,
    callbacks_may_wait_for_another_operation,
    subgroups_work_side_by_side,
    objects_travel,
    the_profiler_sees_operations_by_name,
    counters_and_job_can_be_read,
    adasum_combines_pairs_and_refuses_three,
    *group_calls.CHECKS,
)


def main() -> None:
    """Run all checks in order; a check that fails leaves its traceback in the report."""
    torch.set_num_threads(1)
    dist.init_process_group("gradwire", timeout=datetime.timedelta(seconds=20))
    report = {}
    for check in CHECKS:
        try:
            check()
            report[check.__name__] = ""
        except Exception:
            report[check.__name__] = traceback.format_exc()
        with open(sys.argv[1], "w") as out:
            json.dump(report, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
