"""Checks of a group's calls that move no tensors, each run on three ranks."""

import datetime
import time

import torch
import torch.distributed as dist
from expecting import equal, refused

CPU = torch.device("cpu")


def tensors_elsewhere_are_refused_with_advice() -> None:
    """The device is named, and where a tensor may be."""
    backend = dist.group.WORLD._get_backend(CPU)
    elsewhere = [torch.empty(4, device="meta")]
    options = dist.AllreduceOptions()
    refused(lambda: backend.allreduce(elsewhere, options), "its memory cannot be copied")
    refused(lambda: backend.allreduce(elsewhere, options), "give a tensor in CPU memory")


def a_monitored_barrier_names_who_did_not_come() -> None:
    """On rank 0, which waits; the others hear of it. All pass when all come."""
    rank = dist.get_rank()
    group = dist.new_group()
    dist.monitored_barrier(group)
    dist.monitored_barrier(group, wait_all_ranks=True)
    late = datetime.timedelta(milliseconds=300)
    if rank == 0:
        missing = "Rank 2 failed to pass monitoredBarrier in 300 ms"
        refused(lambda: dist.monitored_barrier(group, late), missing)
    if rank == 1:
        heard = "Rank 1 successfully reached monitoredBarrier, but received errors"
        refused(lambda: dist.monitored_barrier(group, 2 * late), heard)
    dist.barrier()
    alone = dist.new_group()
    if rank == 0:
        everyone = "Ranks 1, 2 failed to pass monitoredBarrier in 300 ms"
        refused(lambda: dist.monitored_barrier(alone, late, wait_all_ranks=True), everyone)
    dist.barrier()


def groups_are_split_off_a_group() -> None:
    """split_group makes a group of its own for each part."""
    rank = dist.get_rank()
    part = dist.split_group(split_ranks=[[0, 2], [1]])
    tensor = torch.tensor([float(rank)])
    part.allreduce([tensor]).wait()
    equal(tensor, torch.tensor([1.0 if rank == 1 else 2.0]))


def coalesced_calls_end_as_one_work() -> None:
    """One wait covers all operations between start and end."""
    rank = dist.get_rank()
    summed, shared = torch.full((8,), float(rank)), torch.full((5,), rank)
    group = dist.group.WORLD
    group._start_coalescing(CPU)
    group.allreduce([summed])
    group.broadcast(shared, 1)
    work = group._end_coalescing(CPU)
    work.wait()
    assert work.is_completed()
    equal(summed, torch.full((8,), 3.0))
    equal(shared, torch.full((5,), 1))


def sparse_tensors_are_summed() -> None:
    """Entries of all ranks; those at one place are added. A rank may have none."""
    rank = dist.get_rank()
    for dtype in (torch.float32, torch.int64, torch.float64):
        indices = torch.tensor([[0, rank], [1, 2]])[:, : rank and 2]
        values = torch.ones(indices.shape[1], 2, dtype=dtype) * rank
        tensor = torch.sparse_coo_tensor(indices, values, (4, 4, 2))
        dist.all_reduce(tensor)
        wanted = torch.zeros(4, 4, 2, dtype=dtype)
        for other in (1, 2):
            wanted[0, 1] += other
            wanted[other, 2] += other
        equal(tensor.to_dense(), wanted)
    refused(lambda: dist.all_reduce(tensor, dist.ReduceOp.MAX), "sparse tensors can be summed")


def a_receive_from_any_rank_knows_its_source() -> None:
    """The work reports it, too; an empty message counts as a message."""
    rank = dist.get_rank()
    if rank == 0:
        seen = set()
        for _ in range(2):
            work = dist.group.WORLD.recv_anysource([torch.empty(0)], 7)
            work.wait()
            seen.add(work._source_rank())
        assert seen == {1, 2}
    else:
        dist.send(torch.empty(0), 0, tag=7)


def operations_that_ended_are_completed_in_the_flight_recorder() -> None:
    """PyTorch's own recorder tells operations that hang from completed ones."""
    import json

    from torch._C._distributed_c10d import _dump_fr_trace_json

    dist.all_reduce(torch.ones(4))
    deadline = time.monotonic() + 5
    states: set[str] = set()
    while "completed" not in states and time.monotonic() < deadline:
        trace = json.loads(_dump_fr_trace_json(backend="gradwire"))
        states = {entry["state"] for entry in trace.get("entries", [])}
    assert "completed" in states, states


def sequence_numbers_count_collectives() -> None:
    """One for each collective, the same on every rank."""
    group = dist.new_group()
    backend = group._get_backend(CPU)
    before = backend._get_sequence_number_for_group()
    dist.all_reduce(torch.ones(2), group=group)
    dist.barrier(group)
    assert backend._get_sequence_number_for_group() == before + 2


CHECKS = (
    tensors_elsewhere_are_refused_with_advice,
    a_monitored_barrier_names_who_did_not_come,
    groups_are_split_off_a_group,
    coalesced_calls_end_as_one_work,
    sparse_tensors_are_summed,
    a_receive_from_any_rank_knows_its_source,
    operations_that_ended_are_completed_in_the_flight_recorder,
    sequence_numbers_count_collectives,
)
